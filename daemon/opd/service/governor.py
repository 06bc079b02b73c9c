"""When to sample less, and when to dare more again: the control, without clocks or processes.

CPU time beyond the budget is debt, and what is not used pays it back. Once the
debt is as much as ``DEBT_SECONDS`` of budget, and the last seconds alone were
over the budget too, the rate is lowered in one step to where the load seen
would fit. It goes up again in small steps, each only when the load seen, taken
for wholly due to the rate, would still fit well below the budget and has done so
for ``HOLD_SECONDS``. A rate that had to be taken back soon doubles that time.

Not all that opd does follows from the rate: a storm of processes has to be
followed at any. When a step down saved next to nothing, the next one would too:
the rate stays, the time over the budget is counted, and only after
``HOLD_MOST_SECONDS`` it is tried again.
"""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 12.0  # of the load that is judged, at least
DEBT_SECONDS = 30.0  # at least
HOLD_SECONDS = 30.0
HOLD_MOST_SECONDS = 600.0
# What the first names cost is given, once.
CREDIT_SECONDS = 1.0
AIM = 0.8  # of the budget, after a change
DARE = 0.7  # of the budget: below it more is tried
DOWN_MOST = 0.2
UP_MOST = 1.5
_FUTILE = 0.1  # of the usage: a step that would save less is not taken
_NEARLY_ALL = 0.95
_NO_CHANGE = 0.98


class Governor:
    """Holds a load under ``budget`` (CPU seconds a second) by a share of the rate asked.

    ``floor`` is the least share; ``interval`` how often, in seconds, the load
    comes in a lump. ``observe`` is told the CPU time so far now and then, in
    any rhythm of seconds.
    """

    def __init__(self, budget: float, floor: float, *, interval: float = 10.0) -> None:
        self.budget = budget
        self.floor = floor
        self.share = 1.0
        self.usage = 0.0  # CPU seconds a second, of the last seconds
        self.changes = 0
        self.over_seconds = 0.0  # over the budget with nothing left to lower
        self.lowered_seconds = 0.0
        self._window = max(WINDOW_SECONDS, 1.2 * interval)
        self._patience = max(DEBT_SECONDS, 3 * interval) * budget
        self._debt = -CREDIT_SECONDS
        self._seen: deque[tuple[float, float]] = deque()
        self._changed = float("-inf")
        self._rose = float("-inf")
        self._restless = float("-inf")  # when there last was too much for a higher rate
        self._hold = HOLD_SECONDS
        self._before: tuple[float, float] | None = None  # share and usage before the last step down

    def forget(self) -> None:
        """The next observation is the first: what was between is nobody's load."""
        self._seen.clear()

    def observe(self, now: float, cpu_seconds: float) -> float | None:
        """Take note of the CPU time so far; the share to go to, or None to stay.

        ``now`` is a monotonic clock in seconds.
        """
        seen = self._seen
        if not seen:
            seen.append((now, cpu_seconds))
            return None
        last, cpu_last = seen[-1]
        elapsed, used = now - last, max(cpu_seconds - cpu_last, 0.0)
        if elapsed <= 0:
            return None
        seen.append((now, cpu_seconds))
        while len(seen) > 2 and now - seen[1][0] >= self._window:
            seen.popleft()
        first, cpu_first = seen[0]
        self.usage = max(cpu_seconds - cpu_first, 0.0) / (now - first)
        # Credit is spent and not earned again.
        lowest = min(self._debt, 0.0)
        self._debt = max(self._debt + used - self.budget * elapsed, lowest)
        if self.share < 1.0:
            self.lowered_seconds += elapsed
        if self.usage > DARE * self.budget:
            self._restless = now
        if self.usage > self.budget:
            return self._over(now, elapsed)
        return self._under(now)

    def _over(self, now: float, elapsed: float) -> float | None:
        if self._debt < self._patience or now - self._changed < self._window:
            return None
        share = max(self.floor, self.share * max(DOWN_MOST, AIM * self.budget / self.usage))
        if share > self.share * _NO_CHANGE or self._is_futile(now, share):
            self.over_seconds += elapsed
            return None
        if now - self._rose < HOLD_MOST_SECONDS:
            self._hold = min(2 * self._hold, HOLD_MOST_SECONDS)
        self._before = (self.share, self.usage)
        return self._change(now, share)

    def _is_futile(self, now: float, share: float) -> bool:
        """Whether the last step down tells that one to ``share`` would save next to nothing."""
        if self._before is None or now - self._changed > HOLD_MOST_SECONDS:
            return False
        share_before, usage_before = self._before
        of_the_rate = max(usage_before - self.usage, 0.0) / (share_before - self.share)
        return of_the_rate * (self.share - share) < _FUTILE * self.usage

    def _under(self, now: float) -> float | None:
        if self.share >= 1.0:
            if now - self._changed > HOLD_MOST_SECONDS:
                self._hold = HOLD_SECONDS
            return None
        if now - max(self._changed, self._restless) < self._hold:
            return None
        step = min(UP_MOST, AIM * self.budget / self.usage) if self.usage else UP_MOST
        share = self.share * step
        self._rose = now
        self._before = None
        return self._change(now, 1.0 if share >= _NEARLY_ALL else share)

    def _change(self, now: float, share: float) -> float:
        self.share = share
        self.changes += 1
        self._changed = now
        # What follows is another load: it is judged by itself, half the patience used up.
        self._debt = min(self._debt, self._patience / 2)
        last = self._seen[-1]
        self._seen.clear()
        self._seen.append(last)
        return share
