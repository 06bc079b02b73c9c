"""Tells systemd about readiness, reloads, stopping and life: sd_notify(3)'s protocol.

Without $NOTIFY_SOCKET every call does nothing.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class Notifier:
    """Sends state lines to the service manager; ``address`` None sends nothing.

    Every call returns whether the lines were handed over, and never raises: a
    manager that is gone is no reason to stop profiling.
    """

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s
        """Seconds within which ``watchdog`` must be called, or None: half of this is wise."""

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> Self:
        """From $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID, which are then removed.

        Removed, so that children neither speak for the daemon nor feed its watchdog.
        """
        environ = os.environ if environ is None else environ
        address = environ.pop("NOTIFY_SOCKET", None)
        usec = environ.pop("WATCHDOG_USEC", "")
        pid = environ.pop("WATCHDOG_PID", "")
        ours = pid in {"", str(os.getpid())}
        watchdog_s = int(usec) / 1e6 if ours and usec.isdecimal() and int(usec) > 0 else None
        return cls(address, watchdog_s=watchdog_s)

    def ready(self, status: str | None = None) -> bool:
        """Start-up, or a reload, is finished."""
        return self._send("READY=1", *self._status(status))

    def status(self, text: str) -> bool:
        """One line for ``systemctl status``."""
        return self._send(*self._status(text))

    def reloading(self) -> bool:
        """A reload begins; ``ready`` ends it.

        The time stamp is what Type=notify-reload waits for.
        """
        now_usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._send("RELOADING=1", f"MONOTONIC_USEC={now_usec}")

    def stopping(self, status: str | None = None) -> bool:
        """The shutdown begins."""
        return self._send("STOPPING=1", *self._status(status))

    def watchdog(self) -> bool:
        """The daemon is alive."""
        return self._send("WATCHDOG=1")

    def main_pid(self, pid: int) -> bool:
        """Which process is the service."""
        return self._send(f"MAINPID={pid}")

    @staticmethod
    def _status(text: str | None) -> list[str]:
        # A line break would start a new assignment.
        return [] if text is None else ["STATUS=" + " ".join(text.splitlines())]

    def _send(self, *lines: str) -> bool:
        # Paths and abstract names only; vsock is for machines, not services.
        if not self._address or self._address[0] not in "/@":
            return False
        address = self._address
        if address[0] == "@":
            address = "\0" + address[1:]
        message = "\n".join(lines).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A manager that does not read must not stop the sampler.
                sender.settimeout(1.0)
                sender.connect(address)
                sender.sendall(message)
        except (OSError, ValueError):
            return False
        return True
