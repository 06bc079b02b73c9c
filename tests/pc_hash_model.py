"""A model of the tables of program counters, by what opd/pc_hash.h says of them: slow and plain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORD = 1 << 32
GROUP = 8


@dataclass
class _Entry:
    slot: int
    hits: int = 1


@dataclass
class _Cpu:
    groups: list[list[_Entry]]
    counters: Counter[str] = field(default_factory=Counter)
    probe_max: int = 0
    has_news: bool = False


class Model:
    """CPUs' tables before a buffer of words; the buffer may begin with ticks in it."""

    def __init__(
        self, *, slots: int, ways: int, policy: str, cpus: int, buffer: Sequence[int]
    ) -> None:
        self.ways, self.policy = ways, policy
        self.in_group = min(ways, GROUP)
        self.group_count = slots // self.in_group
        self.buffer = list(buffer)
        self.cpus = [_Cpu([[] for _ in range(self.group_count)]) for _ in range(cpus)]
        self.flips = 0

    # ---- what happens

    def add(self, cpu: int, slot: int) -> None:
        """One hit."""
        mine = self.cpus[cpu]
        mine.counters["hits"] += 1
        mine.has_news = True
        looked = 0
        for group in self._groups(mine, slot):
            for entry in group:
                looked += 1
                if entry.slot == slot:
                    entry.hits += 1
                    mine.probe_max = max(mine.probe_max, looked)
                    return
            if len(group) < self.in_group:
                group.append(_Entry(slot))
                mine.probe_max = max(mine.probe_max, looked + 1)
                return
        assert looked == self.ways
        mine.probe_max = self.ways
        self._no_room(mine, slot)

    def flush(self) -> None:
        """All CPUs flip."""
        self.flips += 1
        for mine in self.cpus:
            self._flip(mine)

    def flush_cpu(self, cpu: int) -> None:
        """One does: it went offline. A CPU that there is not has nothing to flip."""
        if cpu >= len(self.cpus):
            return
        self.flips += 1
        self._flip(self.cpus[cpu])

    def read(self) -> list[tuple[int, int]]:
        """Flush; the slots that have hits, in order."""
        self.flush()
        return [(slot, hits) for slot, hits in enumerate(self.buffer) if hits]

    def reset(self) -> None:
        """Flush, then nothing is in the buffer."""
        self.flush()
        self.buffer = [0] * len(self.buffer)

    # ---- what is counted

    def stats(self) -> dict[str, int]:
        """Of all CPUs."""
        whole = sum((one.counters for one in self.cpus), Counter())
        return _stats(whole, flips=self.flips, probe_max=max(one.probe_max for one in self.cpus))

    def stats_cpu(self, cpu: int) -> dict[str, int]:
        """Of one."""
        mine = self.cpus[cpu]
        return _stats(mine.counters, flips=mine.counters["flips"], probe_max=mine.probe_max)

    # ---- within

    def _groups(self, mine: _Cpu, slot: int) -> Iterator[list[_Entry]]:
        step = 2 * (slot // self.group_count) + 1
        for probe in range(self.ways // self.in_group):
            yield mine.groups[(slot + probe * step) % self.group_count]

    def _no_room(self, mine: _Cpu, slot: int) -> None:
        first = mine.groups[slot % self.group_count]
        if self.policy == "flush":
            self._publish_table(mine)
            mine.counters["flushes"] += 1
            first.append(_Entry(slot))
        elif self.policy == "evict":
            turn = mine.counters["evictions"] % self.in_group
            self._publish(mine, first[turn])
            mine.counters["evictions"] += 1
            first[turn] = _Entry(slot)
        else:
            self._publish(mine, _Entry(slot))

    def _flip(self, mine: _Cpu) -> None:
        if mine.has_news:
            mine.has_news = False
            mine.counters["flips"] += 1
            self._publish_table(mine)

    def _publish_table(self, mine: _Cpu) -> None:
        for group in mine.groups:
            for entry in group:
                self._publish(mine, entry)
            group.clear()

    def _publish(self, mine: _Cpu, entry: _Entry) -> None:
        total = self.buffer[entry.slot] + entry.hits
        self.buffer[entry.slot] = total % WORD
        mine.counters["wraps"] += total // WORD
        mine.counters["shared_updates"] += 1


def _stats(counted: Counter[str], *, flips: int, probe_max: int) -> dict[str, int]:
    names = ("hits", "shared_updates", "flushes", "evictions", "wraps")
    return {**{name: counted[name] for name in names}, "flips": flips, "probe_max": probe_max}
