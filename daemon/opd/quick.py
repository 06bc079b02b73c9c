"""What the programs do before all else, so that a start costs little CPU."""

from __future__ import annotations

import gc
import sys


def begin() -> None:
    """Load what every program here needs, without what it does not.

    While modules load there is no garbage worth looking for; ``process.started``
    ends that. msgspec takes typing_extensions where it is installed (20 ms), for
    what Python has had in ``typing`` since 3.11.
    """
    gc.disable()
    hidden = "typing_extensions" not in sys.modules
    if hidden:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        if hidden:
            del sys.modules["typing_extensions"]
