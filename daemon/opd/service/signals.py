"""Signals as words that the main loop reads; handlers do nothing."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The work is done by whoever reads the pipe."""


class Signals:
    """Delivers SIGTERM, SIGINT, SIGHUP and SIGUSR1 to a loop, in a ``with`` block.

    Main thread only. ``fileno()`` becomes readable (for a poller); ``read()``
    takes what came, without waiting. A child that is exec'd starts with the
    default handlers. On leaving, the former handlers are back.
    """

    def __init__(self) -> None:
        self._read_fd = -1
        self._write_fd = -1
        self._former_fd = -1
        self._former: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Self:
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # A full pipe already says that there is something to read.
        self._former_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in HANDLED:
            self._former[number] = signal.signal(number, _nothing)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former.clear()
        signal.set_wakeup_fd(self._former_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._read_fd

    def read(self) -> list[str]:
        """Names such as ``"SIGHUP"``, in the order they came; empty when none did."""
        try:
            numbers = os.read(self._read_fd, 4096)
        except BlockingIOError:
            return []
        # The wake-up pipe also carries signals that others handle, such as SIGCHLD.
        return [signal.Signals(number).name for number in numbers if number in HANDLED]

    def wait(self, timeout_s: float | None = None) -> list[str]:
        """Like ``read``, after waiting for a signal, at most ``timeout_s`` seconds."""
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        poller.poll(None if timeout_s is None else timeout_s * 1000)
        return self.read()
