"""One thread that runs foreign code for callers who wait no longer than a budget.

What is done to code that uses more: an exception is raised in its thread
(PyThreadState_SetAsyncExc), which ends any Python code at its next bytecode. A
call into C that does not return cannot be ended so; its thread is given up
until it returns, and with it the feature. While code runs, the growth of
opd's memory is looked at every few milliseconds, and the address space is
limited, so that one giant allocation fails in the code that asked for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import resource
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from opd.process import trim_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

Result = TypeVar("Result")

GRACE_S = 0.5
_JUMPS = 4
_FIRST_LOOK_S = 0.002
_LOOK_S = 0.01
_ASK_AGAIN_S = 0.05
_PAGE = resource.getpagesize()
# Beyond what is mapped when the code begins, at least, and a quarter of the machine's
# memory. Far more than any budget: others map meanwhile too.
_ADDRESS_SPACE_MORE = 1 << 30


class Interrupted(BaseException):
    """Raised inside code that used up its budget; not an Exception, so that it gets through."""


class Budget(NamedTuple):
    """What a call may use: seconds of the clock, bytes that opd may grow by meanwhile.

    ``addresses``: the address space is limited too. Not for imports: libraries
    map much that they never touch.
    """

    seconds: float
    memory_bytes: int
    addresses: bool = True


class OverranError(Exception):
    """The code was interrupted; the message says what it used up."""


class StuckError(OverranError):
    """The code could not be interrupted, and its thread is still in it."""


class LeftError(Exception):
    """The code raised what is meant to end a program."""


class BusyError(Exception):
    """Other calls run, and took the caller's patience."""


class _Job(Generic[Result]):
    """One call; ``lock`` guards ``running``: only then may an exception be raised in it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self.work = work
        self.lock = threading.Lock()
        self.running = False
        self.done = threading.Event()
        self.result: Result | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """On the thread itself. Returns when it is done, whatever was raised when."""
        try:
            self.running = True
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - also SystemExit of foreign code
            self.error = error
        self.end()

    def end(self) -> None:
        """Tell whoever waits; again when an interrupt came before that was done."""
        while not self.done.is_set():
            try:
                with self.lock:
                    self.running = False
                # What was sent comes at the next jump backwards. To take it back
                # instead (an exception of NULL) leaves CPython's eval breaker set.
                for _ in range(_JUMPS):
                    pass
                self.done.set()
            except Interrupted:
                continue  # it came between the end of the code and here


class HookThread:
    """Runs one call at a time, each for a caller that waits. Any thread may call.

    Of all such threads one runs at a time: what opd grows by meanwhile is then
    of the code that runs. The thread begins with the first call. ``name`` is
    its own.
    """

    _turn = threading.Lock()

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stuck: _Job[Any] | None = None

    def call(
        self, work: Callable[[], Result], budget: Budget, *, patience_s: float | None = None
    ) -> Result:
        """What ``work`` returns. Raises what it raises, and the errors of this module.

        The caller waits for the budget and half a second at most, and before
        that as long for its turn (or for ``patience_s``).
        """
        if patience_s is None:
            patience_s = budget.seconds + GRACE_S
        if not self._turn.acquire(timeout=patience_s):
            raise BusyError("other hooks run")
        try:
            if self._stuck is not None and not self._stuck.done.is_set():
                raise StuckError("it is still in the call that could not be interrupted")
            self._stuck = None
            job = _Job(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name=self.name, daemon=True)
                self._thread.start()
            with AddressSpace() if budget.addresses else contextlib.nullcontext():
                self._jobs.put(job)
                self._await(job, budget)
        finally:
            self._turn.release()
        if isinstance(job.error, Exception):
            raise job.error
        if job.error is not None:  # SystemExit, KeyboardInterrupt: not for the caller
            raise LeftError(f"it raised {type(job.error).__name__}")
        return job.result  # type: ignore[return-value]  # it was set where no error was

    @property
    def is_stuck(self) -> bool:
        """Whether the thread is in a call that was given up."""
        return self._stuck is not None and not self._stuck.done.is_set()

    def close(self) -> None:
        """Let the thread end; one that is stuck ends with the process."""
        self._jobs.put(None)

    def _main(self) -> None:
        """An interrupt may come anywhere between a job's begin and its end, here too."""
        job: _Job[Any] | None = None
        while True:
            try:
                if job is not None and not job.done.is_set():
                    job.end()
                job = None  # what it holds may be large
                job = self._jobs.get()
                if job is None:
                    return
                job.run()
            except Interrupted:
                continue

    def _await(self, job: _Job[Any], budget: Budget) -> None:
        """Wait for the end of the job, and see to it. Raises OverranError."""
        began = time.monotonic()
        before = resident_bytes()
        wait, overrun = _FIRST_LOOK_S, ""
        while not job.done.wait(wait):
            wait = _LOOK_S
            grown = resident_bytes() - before
            if grown > budget.memory_bytes:
                overrun = f"used {grown >> 20} MiB, more than {budget.memory_bytes >> 20}"
            elif time.monotonic() - began > budget.seconds:
                overrun = f"took longer than {budget.seconds:g} s"
            if overrun:
                break
        else:
            if isinstance(job.error, MemoryError):
                _give_back(job)
            return
        where = self._where()
        self._interrupt(job)
        if not job.done.is_set():
            self._stuck = job
            raise StuckError(f"it {overrun} and cannot be interrupted{where}")
        _give_back(job)
        raise OverranError(f"it {overrun}{where}")

    def _interrupt(self, job: _Job[Any]) -> None:
        until = time.monotonic() + GRACE_S
        thread = self._thread.ident if self._thread is not None else None
        while not job.done.is_set() and time.monotonic() < until:
            with job.lock:
                if job.running and thread is not None:
                    _raise_in(thread, Interrupted)
            # Code may catch it, or be in C for a moment: it is asked again.
            job.done.wait(_ASK_AGAIN_S)

    def _where(self) -> str:
        """The line that the thread is at."""
        import sys

        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread else None  # noqa: SLF001 - there is no other way
        return f" (in {frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _give_back(job: _Job[Any]) -> None:
    """Free what the code held: its frames hang on the traceback."""
    job.result = None
    if job.error is not None:
        job.error = job.error.with_traceback(None)
    gc.collect()
    trim_memory()


def resident_bytes() -> int:
    """This process's resident memory."""
    with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - read often
        return int(file.read().split()[1]) * _PAGE


class AddressSpace:
    """Limits what may be mapped while foreign code runs; the last of several lifts the limit."""

    _lock = threading.Lock()
    _users = 0
    _before = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def __enter__(self) -> None:
        cls = AddressSpace
        with cls._lock:
            cls._users += 1
            if cls._users > 1:
                return
            cls._before = resource.getrlimit(resource.RLIMIT_AS)
            soft, hard = cls._before
            with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - read often
                mapped = int(file.read().split()[0]) * _PAGE
            quarter = os.sysconf("SC_PHYS_PAGES") * _PAGE // 4
            limit = mapped + max(_ADDRESS_SPACE_MORE, quarter)
            if soft == resource.RLIM_INFINITY or limit < soft:
                resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        cls = AddressSpace
        with cls._lock:
            cls._users -= 1
            if cls._users == 0:
                resource.setrlimit(resource.RLIMIT_AS, cls._before)
