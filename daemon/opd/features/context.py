"""What a feature may do with opd: feed records, ask for events of the kernel, be called."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opd.events import EventRequest
    from opd.features.declared import Event, Feature
    from opd.features.guard import Log
    from opd.features.records import Records
    from opd.sampling.window import EventInfo
    from opd_native.sampler import Sampler

CALLS_MOST = 16
KERNEL_EVENTS_MOST = 16


class KernelEvent(NamedTuple):
    """An event of the kernel that a feature wants opened beside those asked for.

    ``opened(sampler, index, ids)``: the native sampler, the event's index there
    (and in the run), and the ids of the feature's own events in the run by
    name. It registers a decoder, say, and is trusted code on the main thread.
    ``refused(errno)``: the kernel has no such event.
    """

    request: EventRequest
    opened: Callable[..., None] | None
    refused: Callable[[int], None] | None


class Context:
    """Given to ``opd_ext_init``, valid until ``opd_ext_deinit``."""

    def __init__(
        self, feature: Feature, records: Records, log: Log, asked: Sequence[EventRequest] = ()
    ) -> None:
        self.feature = feature
        # What the daemon was asked to sample, by its index in the run.
        self.asked = tuple(asked)
        self._opened_calls: list[Callable[[Sampler, Sequence[EventInfo]], None]] = []
        self._records = records
        self._log = log
        self._chosen: tuple[Event, ...] = feature.events
        self._window_calls: list[Callable[[int, int], object]] = []
        self._kernel_events: list[KernelEvent] = []
        self._sealed = False

    # ---- in opd_ext_init only

    def use_events(self, names: Iterable[str]) -> None:
        """Have only these events in the run, in this order; all of them if not called.

        Raises ValueError for a name that the feature does not declare.
        """
        self._check_open()
        known = {event.name: event for event in self.feature.events}
        chosen = []
        for name in names:
            if name not in known:
                raise ValueError(f"no event {name!r}; there are: {' '.join(known)}")
            if known[name] not in chosen:
                chosen.append(known[name])
        self._chosen = tuple(chosen)

    def each_window(self, call: Callable[[int, int], None]) -> None:
        """Call ``call(start_ns, end_ns)`` for each window, before it is stored.

        On the feature's thread, within the budget of the window's hooks. What
        it feeds in is of that window. Raises ValueError after 16 calls.
        """
        self._check_open()
        if len(self._window_calls) >= CALLS_MOST:
            raise ValueError(f"at most {CALLS_MOST} calls a window")
        self._window_calls.append(call)

    def when_opened(self, call: Callable[[Sampler, Sequence[EventInfo]], None]) -> None:
        """Call ``call(sampler, events)`` once the run's events are open, before they count.

        The native sampler and its events by index: what was asked for comes
        first (``asked``). It is trusted code on the main thread; what it raises
        makes the feature unavailable. Raises ValueError after 16 calls.
        """
        self._check_open()
        if len(self._opened_calls) >= CALLS_MOST:
            raise ValueError(f"at most {CALLS_MOST} calls")
        self._opened_calls.append(call)

    def add_kernel_event(
        self,
        request: EventRequest,
        *,
        opened: Callable[..., None] | None = None,
        refused: Callable[[int], None] | None = None,
    ) -> None:
        """Have an event of the kernel opened beside those that were asked for.

        See :class:`KernelEvent`. When the kernel refuses it, the feature is
        unavailable and the rest goes on. Raises ValueError after 16 of them.
        """
        self._check_open()
        if len(self._kernel_events) >= KERNEL_EVENTS_MOST:
            raise ValueError(f"at most {KERNEL_EVENTS_MOST} events of the kernel")
        self._kernel_events.append(KernelEvent(request, opened, refused))

    # ---- at any time, on any thread

    def record(
        self,
        event: str,
        weight: int = 1,
        *,
        hits: int = 1,
        symbol: str = "",
        comm: str = "",
        pid: int = 0,
        columns: Mapping[str, int] | None = None,
    ) -> bool:
        """Feed in ``hits`` samples of an own event, of ``weight`` in all.

        They are stored with the present window, under image ``[FEATURE]`` and
        symbol ``symbol`` (else the event's name), of process ``pid`` called
        ``comm``. ``columns``: what to add to the event's extra columns. Those
        alike in all but numbers are added up; at most 4096 different ones a
        window are kept: then False, and they are counted as ``refused``.
        Raises ValueError for what the event does not declare.
        """
        return self._records.add(
            event,
            weight=weight,
            hits=hits,
            symbol=symbol,
            comm=comm,
            pid=pid,
            columns=columns or {},
        )

    def log(self, word: str, **fields: object) -> None:
        """Write a log line ``feature.said`` with the feature's name."""
        self._log.info("feature.said", feature=self.feature.name, word=str(word)[:1000], **fields)

    # ---- for opd, not for plugins

    @property
    def chosen(self) -> tuple[Event, ...]:
        """The events in the run."""
        return self._chosen

    @property
    def window_calls(self) -> list[Callable[[int, int], object]]:
        """What to call for each window."""
        return self._window_calls

    @property
    def kernel_events(self) -> list[KernelEvent]:
        """What to open."""
        return self._kernel_events

    @property
    def opened_calls(self) -> list[Callable[[Sampler, Sequence[EventInfo]], None]]:
        """What to call once events are open."""
        return self._opened_calls

    def seal(self) -> None:
        """``opd_ext_init`` has returned: what is registered is fixed."""
        self._sealed = True

    def _check_open(self) -> None:
        if self._sealed:
            raise ValueError("only in opd_ext_init")
