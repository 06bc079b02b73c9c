import math
import random

import pytest
from scipy import stats

from opd.stats.bootstrap import resample
from opd.stats.verdict import (
    Margins,
    benjamini_hochberg,
    holm,
    judge,
    judge_family,
    judge_history,
)


def groups(draw, change, spread=0.01, processes=4, rounds=15):
    """Blocks of processes, each with a little luck of its own."""
    made = []
    for _ in range(processes):
        luck = draw.gauss(0, spread / 10)
        made.append([change + luck + draw.gauss(0, spread) for _ in range(rounds)])
    return made


def results(change, *, times, spread=0.01, null=0.0):
    """How often each result comes of so many comparisons, with doubling up to four looks."""
    draw = random.Random(int(1e6 * (change + spread)) + 17)
    counts = {}
    for _ in range(times):
        blocks, again = [], []
        for look in range(1, 5):
            more = 4 if look == 1 else len(blocks)
            blocks += groups(draw, change, spread, processes=more)
            again += groups(draw, null, spread, processes=more)
            verdict = judge(blocks, again, look=look)
            if verdict.result != "UNDECIDED":
                break
        counts[verdict.result] = counts.get(verdict.result, 0) + 1
    return counts


def test_what_did_not_change_is_never_regressed():
    """A against A: no REGRESSED, and hardly ever undecided."""
    counts = results(0.0, times=40)
    assert "REGRESSED" not in counts
    assert counts["OK"] >= 38


def test_a_planted_twentieth_is_found():
    """5 % slower is REGRESSED."""
    assert results(0.05, times=20)["REGRESSED"] >= 19


def test_faster_is_ok():
    """What got better by a lot has not regressed."""
    assert results(-0.2, times=5) == {"OK": 5}


def test_a_null_control_that_changed_makes_it_invalid():
    """The machine was not the same for both: no verdict about them."""
    draw = random.Random(4)
    verdict = judge(groups(draw, 0.05), groups(draw, 0.03))
    assert verdict.result == "INVALID"
    assert "compared with itself" in verdict.reason


def test_noise_is_undecided_and_says_how_much_it_takes():
    """Few, wide blocks decide nothing; and more of them are asked for than there are."""
    draw = random.Random(9)
    verdict = judge(groups(draw, 0.01, spread=0.2))
    assert verdict.result == "UNDECIDED"
    assert verdict.more >= verdict.n == 60
    assert str(verdict.more) in verdict.reason


def test_one_block_bounds_nothing():
    """Then the interval has no end above; a number there would be made up."""
    verdict = judge([[0.01]], [[0.0]])
    assert (verdict.result, verdict.low, verdict.high) == ("UNDECIDED", -100.0, math.inf)


def test_margins_keep_small_changes_from_being_regressions():
    """Surely 0.3 % slower is OK by default, and REGRESSED when no margin is given."""
    draw = random.Random(2)
    blocks = groups(draw, 0.003, spread=0.0005)
    assert judge(blocks).result == "OK"
    assert judge(blocks, margins=Margins(low=0.0, high=0.02)).result == "REGRESSED"


def test_p_is_scipys_t_test_up_to_trimming():
    """Of one process the chance of so much without a change is about that of Student's test."""
    draw = random.Random(8)
    blocks = [0.007 + draw.gauss(0, 0.01) for _ in range(40)]
    ours = judge([blocks], margins=Margins(low=0.0, high=0.02)).p
    theirs = stats.ttest_1samp(blocks, 0.0, alternative="greater").pvalue
    assert ours == pytest.approx(float(theirs), rel=3, abs=1e-4)


def test_holm_and_benjamini_hochberg_are_as_published():
    """Both against the definitions; the second against scipy."""
    draw = random.Random(6)
    for _ in range(50):
        p = [draw.random() ** 4 for _ in range(draw.randint(1, 30))]
        adjusted = stats.false_discovery_control(p, method="bh")
        assert benjamini_hochberg(p, 0.05) == [bool(x <= 0.05) for x in adjusted]
        order = sorted(range(len(p)), key=p.__getitem__)
        running, expected = 0.0, [False] * len(p)
        for rank, at in enumerate(order):
            running = max(running, min(1.0, p[at] * (len(p) - rank)))
            expected[at] = running <= 0.05
        assert holm(p, 0.05) == expected


def test_one_of_many_has_to_be_surer():
    """In a family of 120 what would pass alone is undecided; what is sure stays."""
    draw = random.Random(3)
    sure = judge(groups(draw, 0.05))
    blocks = groups(draw, 0.0, spread=0.015)
    found = resample(blocks)
    barely_so = 0.005 + 3.0 * found.error - found.estimate
    barely = judge([[block + barely_so for block in group] for group in blocks])
    alone = judge_family([barely])[0]
    family = judge_family([sure, barely, *(judge(groups(draw, 0.0)) for _ in range(30))])
    assert family[0].result == "REGRESSED"
    assert family[0].family == 32
    assert barely.result == alone.result == "REGRESSED"
    assert family[1].result == "UNDECIDED"
    assert "one of 32" in family[1].reason


def test_history_is_judged_by_how_runs_differ():
    """A change within the spread from run to run is no regression; far outside it is."""
    runs = [0.0, 0.05, -0.04, 0.03, -0.05, 0.06, 0.01, -0.02]
    assert judge_history(0.06, runs).result == "UNDECIDED"
    assert judge_history(0.5, runs).result == "REGRESSED"
    assert judge_history(-0.5, runs).result == "OK"
    assert judge_history(0.5, runs).advisory


def test_history_needs_runs():
    """Without five earlier ones nothing is known of the spread."""
    verdict = judge_history(0.5, [0.0, 0.1])
    assert (verdict.result, verdict.more) == ("UNDECIDED", 3)


def test_what_is_to_be_seen_is_looked_for_while_there_are_looks():
    """OK below the upper margin ends it only at the last look, unless it is below ``seen``."""
    margins = Margins(low=0.005, high=0.02, seen=0.01)
    one = [[0.007 + 0.016 * (i % 5 - 2) for i in range(20)] for _ in range(8)]
    assert judge(one, margins=Margins(), look=1).result == "OK"
    assert judge(one, margins=margins, look=1).result == "UNDECIDED"
    assert judge(one, margins=margins, look=2, looks=2).result == "OK"
    none = [[0.001 * (i % 5 - 2) for i in range(20)] for _ in range(8)]
    assert judge(none, margins=margins, look=1).result == "OK"
