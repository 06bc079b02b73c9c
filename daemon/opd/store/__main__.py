"""The worker as a program. Run by its path: ``-m`` would look for it with modules of its own.

As in opd.cli.programs, nothing is freed at the end.
"""

import os

from opd import quick

quick.begin()

from opd.store.worker import main  # noqa: E402 - after the line above

os._exit(main())
