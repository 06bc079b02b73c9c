"""All features that are installed, as JSON on stdout: asked in a child, not in the daemon.

Plugins that nobody asked for are imported to be listed; what that takes, and
what they do, ends with the child.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from opd.errors import OperationFailedError
from opd.process import name_process

TIME_LIMIT_S = 30.0


def installed_features() -> list[dict[str, Any]]:
    """What ``opd.features.listing.list_features`` gives, from a child.

    Raises OperationFailedError when it crashes or takes longer than 30 s.
    """
    command = [sys.executable, "-m", "opd.features.installed"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=TIME_LIMIT_S
        )
        # Plugins may print; what we print comes last, on a line of its own.
        features: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise OperationFailedError(
            f"listing the plugins took longer than {TIME_LIMIT_S:g} s"
        ) from None
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise OperationFailedError(
            f"listing the plugins ended with status {error.returncode}: {' '.join(last)}"
        ) from error
    except (ValueError, IndexError) as error:
        raise OperationFailedError(f"listing the plugins gave nonsense: {error}") from error
    return features


class _Quiet:
    """Takes log lines: the listing has its own words for what they say."""

    def info(self, event: str, **values: Any) -> None:
        """Nothing."""

    warning = error = info


QUIET = _Quiet()


def main() -> int:
    """List for the daemon."""
    from opd.features.listing import list_features
    from opd.features.registry import Registry

    name_process("opd-features")
    found = list_features(Registry(), QUIET)
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    import os

    os._exit(main())  # whatever threads a plugin began
