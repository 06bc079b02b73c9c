"""The hooks of profile_hash."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import OperationFailedError
from opd.features.declared import Feature, Stats, UnavailableError
from opd.features.hookspecs import hookimpl
from opd.features.profile_hash.cpus import nodes_by_cpu
from opd.features.profile_hash.memory import check_memory
from opd.features.profile_hash.options import ProfileHashOptions
from opd.features.profile_hash.statistics import stats_of
from opd.features.profile_hash.target import find_code
from opd.features.profilebuffer import Buffer
from opd_native.errors import NativeError
from opd_native.pc_hash import PcHash, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events.request import EventRequest
    from opd.features.context import Context
    from opd.features.profile_hash.target import Named
    from opd.sampling.window import EventInfo
    from opd_native.pc_hash import Target
    from opd_native.sampler import Sampler

NAME = "profile_hash"
_FLUSH_MS = 1000


class ProfileHash:
    """The feature from its init to its deinit. Any thread may read it."""

    def __init__(self, options: ProfileHashOptions, context: Context, code: Named) -> None:
        nodes = nodes_by_cpu()
        check_memory(options, code.target, cpus=len(nodes))
        self.options = options
        self._context = context
        self.code = code
        self.hashed = PcHash(
            slots=options.slots,
            ways=options.all_ways,
            policy=options.policy,
            nodes=nodes,
            length=code.target.length,
        )
        self.event = ""  # what is counted
        self._tap: Tap | None = None
        self._sampler: Sampler | None = None
        self._since = time.monotonic()
        self._turn = threading.Lock()  # of those who ask, and of the end

    @property
    def target(self) -> Target:
        """Which addresses."""
        return self.code.target

    # ---- life

    def begin(self) -> None:
        """Ask to be told of the run's events, and for one of its own if none of them is it."""
        wanted = self._wanted()
        asked = self._context.asked
        at = next((i for i, one in enumerate(asked) if wanted and _is_same(one, wanted)), 0)
        if wanted is None or (asked and _is_same(asked[at], wanted)):
            self._context.when_opened(lambda sampler, events: self._count(sampler, events, at))
            return
        own: list[int] = []
        # By another name: of one that is asked for, reports would count both.
        self._context.add_kernel_event(
            msgspec.structs.replace(wanted, name=NAME),
            opened=lambda _sampler, index, _ids: own.append(index),
        )
        self._context.when_opened(
            lambda sampler, events: self._count(sampler, events, own[0], wanted.name)
        )

    def _wanted(self) -> EventRequest | None:
        """The event to count; None: the daemon's first as it is."""
        options, asked = self.options, self._context.asked
        if options.event:
            request = options.request()
        elif options.rate and asked:
            request = asked[0]
        else:
            return None
        if not options.rate:
            return request
        rungs = tuple(
            msgspec.structs.replace(rung, hz=options.rate, period=None)
            for rung in request.fallbacks
        )
        return msgspec.structs.replace(request, hz=options.rate, period=None, fallbacks=rungs)

    def _count(
        self, sampler: Sampler, events: Sequence[EventInfo], index: int, name: str = ""
    ) -> None:
        event = events[index]
        rate = f"{event.hz} Hz" if event.hz is not None else f"one in {event.period}"
        self.event = f"{name or event.name}, {rate}"
        self._tap = Tap(self.hashed, index, self.target)
        with self._turn:
            self._sampler = sampler
            sampler.set_tap(self._tap)
        self._since = time.monotonic()

    def end(self) -> None:
        """Count no more, and let go."""
        with self._turn:
            sampler, self._sampler = self._sampler, None
            if sampler is not None:
                sampler.set_tap(None)
            self.code.close()

    # ---- answers

    def settle(self) -> None:
        """Have every sample taken before the call counted. Raises OperationFailedError."""
        with self._turn:
            if self._sampler is None:
                raise OperationFailedError("profile_hash counts nothing: sampling begins or ends")
            # A drain that is late gives what it has.
            with contextlib.suppress(NativeError):
                self._sampler.flush(time.monotonic_ns(), _FLUSH_MS)

    def read(self) -> Buffer:
        """Flip, flush, and give what the buffer holds. Raises OperationFailedError."""
        self.settle()
        slots, ticks = self.hashed.read()
        with self._turn:
            if self._sampler is None:
                raise OperationFailedError("profile_hash counts nothing: sampling begins or ends")
            try:
                lookup = self.code.lookup()
            except NativeError as error:
                raise OperationFailedError(f"no names of {self.code.what}: {error}") from error
        return Buffer(
            what=self.code.kind,
            image=self.code.what,
            start=self.target.start,
            shift=self.target.shift,
            length=self.target.length,
            slots=slots,
            ticks=ticks,
            outside=self._tap.outside() if self._tap is not None else 0,
            lookup=lookup,
        )

    def reset(self) -> None:
        """Flip, and have all slots at 0. Raises OperationFailedError."""
        self.settle()
        self.hashed.reset()

    def stats(self) -> Stats:
        """Flip, flush, count."""
        if self._sampler is not None:
            self.settle()
        self.hashed.flush()
        return stats_of(
            self.hashed.stats(),
            self.hashed.stats_by_cpu(),
            outside=self._tap.outside() if self._tap is not None else 0,
            seconds=time.monotonic() - self._since,
            table=f"{self.options.slots} slots a table, policy {self.options.policy}; {self.event}",
        )


def _is_same(one: EventRequest, other: EventRequest) -> bool:
    """Whether both ask for the same samples."""

    def key(request: EventRequest) -> dict[str, Any]:
        fields = msgspec.structs.asdict(request)
        del fields["name"], fields["fallbacks"]
        return fields

    return key(one) == key(other)


_running: dict[str, ProfileHash] = {}


def running() -> ProfileHash | None:
    """The feature, while it runs."""
    return _running.get(NAME)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The one."""
    return [
        Feature(
            name=NAME,
            summary="a histogram of the kernel's program counters (or a module's, a file's)"
            " that readprofile can read",
            options=ProfileHashOptions,
        )
    ]


@hookimpl
def opd_ext_init(feature: Feature, options: ProfileHashOptions, context: Context) -> None:
    """Find what to count, make the tables, ask for samples."""
    _end(feature)  # of a try before this one
    code = find_code(options)
    try:
        one = ProfileHash(options, context, code)
    except UnavailableError:
        code.close()
        raise
    except NativeError as error:
        code.close()
        raise UnavailableError(f"no room for its tables: {error}") from error
    one.begin()
    _running[feature.name] = one


@hookimpl
def opd_ext_deinit(feature: Feature) -> None:
    """Let go of the sampler."""
    _end(feature)


def _end(feature: Feature) -> None:
    one = _running.pop(feature.name, None)
    if one is not None:
        one.end()


@hookimpl
def opd_ext_print_stats(feature: Feature) -> Stats:
    """Hits, updates of the buffer, and what a hit costs."""
    one = _running.get(feature.name)
    return one.stats() if one is not None else Stats({})
