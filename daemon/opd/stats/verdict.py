"""REGRESSED, OK, UNDECIDED or INVALID: what a comparison comes to, with what error.

All changes are logs of ratios turned so that more than 0 is worse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from opd.stats.bootstrap import resample
from opd.stats.tails import student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.stats.bootstrap import Groups, Resampled

Result = Literal["REGRESSED", "OK", "UNDECIDED", "INVALID"]

LOOKS_MOST = 4
_ALPHA_WORSE = 0.01
_ALPHA_FINE = 0.025
_RUNS_LEAST = 5
_MORE_MOST = 1_000_000
_LOG_MOST = 700.0  # beyond it exp() overflows


class Margins(msgspec.Struct, frozen=True):
    """Changes in logs: REGRESSED is surely above ``low``, OK surely below ``high``.

    ``seen``: a change of so much is to be found. While it may be looked again,
    OK is only what is surely below it; 0: as ``high``.
    """

    low: float = 0.005
    high: float = 0.02
    seen: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to. Changes in percent, worse is positive.

    ``low``, ``high``: the interval at 95 %. ``n``: pairs or blocks of
    ``processes``. ``more``: how many further ones it takes, at a guess, when
    undecided. ``p``: how likely so much is without a change beyond the lower
    margin. ``null_low``, ``null_high``: the same interval for what was compared
    with itself. ``family``: in how many comparisons it was one. ``advisory``:
    one side is history, so that the spread from run to run decides.
    """

    result: Result
    reason: str
    change_percent: float
    low: float
    high: float
    n: int
    processes: int
    more: int = 0
    look: int = 1
    p: float = 1.0
    null_low: float | None = None
    null_high: float | None = None
    family: int = 1
    advisory: bool = False


def judge(
    groups: Groups,
    null: Groups | None = None,
    *,
    margins: Margins | None = None,
    look: int = 1,
    looks: int = LOOKS_MOST,
) -> Verdict:
    """Judge blocks by process, and those of the null control (A against A again).

    ``look``: how often the samples were looked at, this time included; each of
    four spends a quarter of the error. ``looks``: how often at most. Raises
    ValueError without blocks.
    """
    margins = margins or Margins()
    fine = margins.high
    if look < looks and margins.seen:
        fine = min(fine, margins.seen)
    found = resample(groups)
    null_low = null_high = None
    invalid = ""
    if null is not None and any(null):
        again = resample(null)
        null_low, null_high = again.bound(_ALPHA_FINE), again.bound(1 - _ALPHA_FINE)
        share = _ALPHA_WORSE / 2 / LOOKS_MOST
        if again.bound(share) > margins.low or again.bound(1 - share) < -margins.low:
            invalid = (
                f"compared with itself it changed by {percent(again.estimate):+.2f} %:"
                " the machine was not the same for both"
            )
    low = found.bound(_ALPHA_WORSE / LOOKS_MOST)
    high = found.bound(1 - _ALPHA_FINE / LOOKS_MOST)
    more = 0
    result: Result
    if invalid:
        result, reason = "INVALID", invalid
    elif low > margins.low:
        result, reason = "REGRESSED", f"surely worse by more than {percent(margins.low):.2g} %"
    elif high < fine:
        result, reason = "OK", f"surely not worse by {percent(fine):.2g} %"
    else:
        more = more_needed(found, margins)
        result, reason = "UNDECIDED", f"needs about {more} more"
    return Verdict(
        result=result,
        reason=reason,
        change_percent=percent(found.estimate),
        low=percent(found.bound(_ALPHA_FINE)),
        high=percent(found.bound(1 - _ALPHA_FINE)),
        n=found.n,
        processes=found.processes,
        more=more,
        look=look,
        p=found.p_above(margins.low),
        null_low=None if null_low is None else percent(null_low),
        null_high=None if null_high is None else percent(null_high),
    )


def more_needed(found: Resampled, margins: Margins) -> int:
    """How many further blocks it takes, at least as many again as there are.

    The interval shrinks as the root of their number; it has to leave either
    margin.
    """
    half = student_quantile(1 - _ALPHA_WORSE / LOOKS_MOST, found.freedom) * found.error
    room = max(found.estimate - margins.low, margins.high - found.estimate)
    if found.n < 2 or room <= 0.0 or math.isinf(half):
        return max(found.n, 1)
    return min(max(found.n, math.ceil(found.n * ((half / room) ** 2 - 1))), _MORE_MOST)


def judge_family(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Of many comparisons at once: REGRESSED only what Holm's method still says.

    What it takes back is UNDECIDED.
    """
    tested = [at for at, verdict in enumerate(verdicts) if verdict.result != "INVALID"]
    kept = dict(zip(tested, holm([verdicts[at].p for at in tested], _ALPHA_WORSE), strict=True))
    family = len(tested)
    judged = []
    for at, verdict in enumerate(verdicts):
        changed = msgspec.structs.replace(verdict, family=family)
        if verdict.result == "REGRESSED" and not kept[at]:
            changed = msgspec.structs.replace(
                changed,
                result="UNDECIDED",
                reason=f"worse, but not surely so as one of {family} comparisons",
                more=max(verdict.n, 1),
            )
        judged.append(changed)
    return judged


def holm(p: Sequence[float], alpha: float) -> list[bool]:
    """Which hypotheses fall when the chance of any false one is to be ``alpha``.

    >>> holm([0.001, 0.04, 0.03], 0.05)
    [True, False, False]
    """
    falls = [False] * len(p)
    for rank, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[at] > alpha / (len(p) - rank):
            break
        falls[at] = True
    return falls


def benjamini_hochberg(p: Sequence[float], q: float) -> list[bool]:
    """Which hypotheses fall when the share of false ones among them is to be ``q``.

    >>> benjamini_hochberg([0.001, 0.04, 0.03], 0.05)
    [True, True, True]
    """
    order = sorted(range(len(p)), key=p.__getitem__)
    last = max((rank for rank, at in enumerate(order, 1) if p[at] <= q * rank / len(p)), default=0)
    falls = [False] * len(p)
    for at in order[:last]:
        falls[at] = True
    return falls


def judge_history(
    change: float, runs: Sequence[float], *, margins: Margins | None = None
) -> Verdict:
    """Judge a change between two runs at different times, by the spread from run to run.

    ``runs``: logs of what earlier runs of the same measurement came to. At
    least 5 are needed: the levels of two runs differ by 5 to 12 percent on
    some machines with nothing changed, which no spread inside a run tells.
    """
    margins = margins or Margins()
    n = len(runs)
    shown = percent(change)
    if n < _RUNS_LEAST:
        return Verdict(
            result="UNDECIDED",
            reason=f"the spread from run to run is not known: needs {_RUNS_LEAST - n} more runs",
            change_percent=shown,
            low=-math.inf,
            high=math.inf,
            n=n,
            processes=n,
            more=_RUNS_LEAST - n,
            advisory=True,
        )
    mean = math.fsum(runs) / n
    spread = math.sqrt(2 * math.fsum((x - mean) ** 2 for x in runs) / (n - 1))
    low = change - spread * student_quantile(1 - _ALPHA_WORSE, n - 1)
    high = change + spread * student_quantile(1 - _ALPHA_FINE, n - 1)
    words = f"runs differ by {percent(spread):.2g} % on this machine"
    result: Result = "UNDECIDED"
    if low > margins.low:
        result = "REGRESSED"
    elif high < margins.high:
        result = "OK"
    return Verdict(
        result=result,
        reason=words,
        change_percent=shown,
        low=percent(change - spread * student_quantile(1 - _ALPHA_FINE, n - 1)),
        high=percent(high),
        n=n,
        processes=n,
        more=n if result == "UNDECIDED" else 0,
        advisory=True,
    )


def percent(log: float) -> float:
    """A log of a ratio as a change in percent; infinite where nothing bounds it.

    >>> percent(math.inf), percent(-math.inf)
    (inf, -100.0)
    """
    return 100.0 * math.expm1(log) if log < _LOG_MOST else math.inf
