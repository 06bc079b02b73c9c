"""What a process asks of the kernel and of malloc about itself (contract: opd/process.h)."""

from opd_native._core import lib
from opd_native.errors import check


def return_memory() -> None:
    """Have malloc give freed memory back: a large window must not be paid for ever."""
    lib.opd_process_return_memory()


def trim_memory() -> None:
    """Give the kernel back at once what malloc holds and nobody uses."""
    lib.opd_process_trim_memory()


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    check(lib.opd_process_die_with_parent(), "PR_SET_PDEATHSIG")
