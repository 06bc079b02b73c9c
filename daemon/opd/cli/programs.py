"""The ways in from the shell: ``opd`` and ``opctl``.

While modules load there is no garbage worth looking for, and what a process
holds when it has ended its work need not be freed piece by piece: together a
fifth of the CPU of a start and a stop.
"""

from __future__ import annotations

import gc
import os

from opd import quick


def opd() -> None:
    """Run the daemon and exit with its status."""
    quick.begin()
    from opd.cli.opd import main

    os._exit(main())


def opctl() -> None:
    """Run the client and exit with its status."""
    gc.set_threshold(100_000)  # `opctl top` may run for days
    from opd.cli.opctl import main

    os._exit(main())
