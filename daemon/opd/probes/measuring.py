"""What a probe's ``measure`` is given: where raw samples go, in the probe's own process."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, NoReturn

from opd.errors import OpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opd.features.declared import Metric
    from opd.probes.wire import FromChild
    from opd.stats.verdict import Verdict

# Samples of a run; more would only fill the store.
SAMPLES_MOST = 1 << 20
NOTES_MOST = 64
TEXT_MOST = 1024
DETAIL_BYTES_MOST = 4 << 20
STATS_MOST = 256
WHOLE = -1


class VoidRunError(OpdError):
    """Raised in ``measure``: what was measured does not count, for this reason."""

    code = "void_run"


class Measuring:
    """Takes what is measured. For the thread that ``measure`` is called on."""

    def __init__(
        self, metrics: tuple[Metric, ...], cpus: tuple[int, ...], send: Callable[[FromChild], None]
    ) -> None:
        """``send`` has a message told to the parent."""
        self._metrics = {metric.name: metric for metric in metrics}
        self._send = send
        self._arm = 0
        self._base = 0
        self._next = 0
        self._samples = 0
        self._notes: set[str] = set()
        self._detail_bytes = 0
        self.cpus = cpus
        """The CPUs of the process, ascending."""

    def sample(self, metric: str, value: float, *, repeat: int = 0, worker: int = WHOLE) -> None:
        """One raw sample of a declared metric.

        ``repeat`` counts within this call of ``measure``, from 0. ``worker``: of
        one worker alone; such samples are kept beside those of the whole, and
        are no part of the metric's distribution. Raises ValueError.
        """
        self.samples(metric, (value,), repeat=repeat, worker=worker)

    def samples(
        self, metric: str, values: Iterable[float], *, repeat: int = 0, worker: int = WHOLE
    ) -> None:
        """Several of one repeat, in order; at most a million in all. Raises ValueError."""
        if metric not in self._metrics:
            raise ValueError(f"no metric {metric!r}; declared: {' '.join(self._metrics)}")
        column = array("d", values)
        if not all(map(math.isfinite, column)):
            raise ValueError(f"{metric}: a sample is no finite number")
        self._samples += len(column)
        if self._samples > SAMPLES_MOST:
            raise ValueError(f"more than {SAMPLES_MOST} samples")
        self._next = max(self._next, repeat + 1)
        from opd.probes.wire import Samples

        self._send(Samples(self._arm, metric, self._base + repeat, worker, column.tobytes()))

    def progress(self, done: float, of: float) -> None:
        """Tell how far it is."""
        from opd.probes.wire import Progress

        self._send(Progress(self._arm, done, of))

    def note(self, text: str) -> None:
        """Say once what a reader of the result must know: what was left out, or done instead."""
        text = str(text)[:TEXT_MOST]
        if text not in self._notes and len(self._notes) < NOTES_MOST:
            from opd.probes.wire import Note

            self._notes.add(text)
            self._send(Note(self._arm, text))

    def detail(self, name: str, value: Any) -> None:
        """Keep more than numbers beside the result (a table, a curve): anything JSON can hold.

        The latest of a name counts. Raises ValueError beyond 4 MiB in all.
        """
        import msgspec

        from opd.probes.wire import Detail

        text = msgspec.json.encode(value)
        self._detail_bytes += len(text)
        if self._detail_bytes > DETAIL_BYTES_MOST:
            raise ValueError(f"details take more than {DETAIL_BYTES_MOST} bytes")
        self._send(Detail(self._arm, str(name)[:TEXT_MOST], text.decode()))

    def stats(self, values: dict[str, int | float | str]) -> None:
        """Say what ``opctl stats`` shows of this run as the probe's own, beside its metrics.

        Numbers and short texts by name, at most 256. The latest call of a run counts. Raises
        ValueError.
        """
        if len(values) > STATS_MOST or not all(
            isinstance(key, str) and isinstance(value, int | float | str)
            for key, value in values.items()
        ):
            raise ValueError(f"stats: expected at most {STATS_MOST} numbers or texts by name")
        self.detail(
            "stats",
            {
                key: value[:TEXT_MOST] if isinstance(value, str) else value
                for key, value in values.items()
            },
        )

    def verdict(self, verdict: Verdict, *, metric: str, gating: bool = True) -> None:
        """Give the run a verdict of the probe's own; the latest counts.

        ``metric``: the declared one that was judged. ``gating`` False: for
        reference only, so that it decides no exit status and is no part of a
        family. A sweep's gating verdicts are judged together once more, by
        Holm's method. In a comparison opd judges, and this is left out. Raises
        ValueError.
        """
        if metric not in self._metrics:
            raise ValueError(f"no metric {metric!r}; declared: {' '.join(self._metrics)}")
        import msgspec

        from opd.probes.results import verdict_map
        from opd.probes.wire import Judged

        told = {**verdict_map(verdict), "metric": metric, "gating": gating}
        self._send(Judged(self._arm, msgspec.json.encode(told).decode()))

    def void(self, reason: str) -> NoReturn:
        """End the run: what was measured does not count."""
        raise VoidRunError(reason)

    # ---- for opd, not for probes

    def begin(self, arm: int, base: int) -> None:
        """From now on it is the options number ``arm``; its repeats count on from ``base``."""
        self._arm, self._base, self._next = arm, base, 0

    @property
    def repeats(self) -> int:
        """How many repeats the call had so far."""
        return self._next
