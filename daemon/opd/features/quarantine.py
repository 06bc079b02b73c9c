"""What becomes of a feature whose hooks fail: it is left alone, longer each time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from opd.errors import OpdError
from opd.features.checks import NonsenseError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

FIRST_S = 10.0
LONGEST_S = 600.0


class Quarantine:
    """Failures of one feature. A hook that goes well again is forgiven; others' are not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row: dict[str, int] = {}
        self._until = 0.0
        self.failures = 0
        self.last_error = ""
        self.last_hook = ""

    def failed(self, hook: str, error: str) -> float:
        """Count a failure; seconds that the feature is left alone from now on."""
        self.failures += 1
        self.last_hook, self.last_error = hook, error
        row = self._in_a_row[hook] = self._in_a_row.get(hook, 0) + 1
        seconds: float = min(FIRST_S * 2.0 ** min(row - 1, 16), LONGEST_S)
        self._until = max(self._until, self._clock() + seconds)
        return seconds

    def went_well(self, hook: str) -> None:
        """Forget the hook's failures in a row."""
        self._in_a_row.pop(hook, None)

    def left_s(self) -> float:
        """Seconds that it is still to be left alone; 0 when it may be called."""
        return max(0.0, self._until - self._clock())


class HookError(Exception):
    """What foreign code raised, as text."""


def described(work: Callable[[], Result]) -> Result:
    """What ``work`` returns. Raises HookError: what it raised, put into words on this thread.

    The words of an exception are made by foreign code as well.
    """
    try:
        return work()
    except (OpdError, NonsenseError):
        raise
    except Exception as error:  # noqa: BLE001 - foreign code
        raise HookError(_describe(error)) from None


def _describe(error: Exception) -> str:
    """An error in one line with the place it came from."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" (in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    try:
        text = " ".join(str(error).split())[:500]
    except Exception:  # noqa: BLE001 - foreign code
        text = "its words cannot be had"
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
