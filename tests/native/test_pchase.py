"""Pointer chains through the wrapper."""

from __future__ import annotations

import pytest

from opd_native.errors import NativeError
from opd_native.pchase import Access, Chase, ChaseError, pass_line


def test_steps_are_whole_passes():
    """Iterations of a chain are steps of its nodes, up to a round of the loop."""
    chase = Chase(chain=16384, iterations=5)
    facts = chase.facts()
    assert facts.nodes == 256
    (row,) = chase.run()
    assert 5 * 256 <= row.steps < 5 * 256 + facts.unroll
    assert row.ns > 0
    assert row.ticks > 0


def test_both_loops_take_the_same_kinds():
    """The compiler's loop does without a hint; what it has not is refused."""
    assert Chase(chain=16384, iterations=1, plain_c=True).facts().compiled is False
    with pytest.raises(ChaseError, match="a loop of 3 chains"):
        Chase(chain=16384, iterations=1, plain_c=True, chains=3)


def test_what_is_wrong_is_named():
    """Refused before anything is built."""
    with pytest.raises(ChaseError, match="neither iterations nor"):
        Chase(chain=16384)
    with pytest.raises(ChaseError, match="a stride of no lines"):
        Chase(chain=16384, iterations=1, access=Access.FORWARD, stride=0)
    with pytest.raises(ChaseError, match="cpus: 1 given, 2 needed"):
        Chase(chain=16384, iterations=1, threads=2, cpus=[0])
    with pytest.raises(ChaseError, match="CPU 5000"):
        Chase(chain=16384, iterations=1, cpus=[5000])
    with pytest.raises(NativeError, match="between CPUs 0 and 0"):
        pass_line(0, 0)
