"""The worker as a program. Run by its path: ``-m`` would look for it with modules of its own.

As in opd.cli.programs: no garbage while modules load, nothing freed at the end.
"""

import gc
import os

gc.disable()

from opd.store.worker import main  # noqa: E402 - after the line above

os._exit(main())
