"""Duties come in their turn, and one that fails neither stops nor floods."""

from __future__ import annotations

from structlog.testing import CapturingLogger

from opd.errors import OperationFailedError
from opd.service.duties import Duties


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_duty_comes_in_its_turn_and_missed_turns_are_not_made_up() -> None:
    """A daemon that slept does not hurry through what it missed."""
    clock, calls, log = _Clock(), [], CapturingLogger()
    duties = Duties(clock)
    assert duties.wait_s() is None
    duties.add("often", 1.0, lambda: calls.append("often"))
    duties.add("seldom", 3.0, lambda: calls.append("seldom"))
    assert duties.wait_s() == 1.0
    duties.run_due(log)
    assert calls == []
    clock.now += 1.0
    duties.run_due(log)
    assert calls == ["often"]
    clock.now += 50.0
    assert duties.wait_s() == 0.0
    duties.run_due(log)
    assert calls == ["often", "often", "seldom"]


def test_a_duty_that_raises_is_logged_once_and_called_again() -> None:
    """The first failure in a row is logged, and the next turn comes."""
    clock, log = _Clock(), CapturingLogger()
    duties = Duties(clock)
    working = False

    def duty() -> None:
        if not working:
            raise OSError("gone")

    duties.add("frail", 1.0, duty)
    for _ in range(3):
        clock.now += 1.0
        duties.run_due(log)
    assert [call.kwargs["duty"] for call in log.calls] == ["frail"]
    working = True
    clock.now += 1.0
    duties.run_due(log)
    working = False
    clock.now += 1.0
    duties.run_due(log)
    assert len(log.calls) == 2


def test_a_slow_worker_is_said_in_one_line() -> None:
    """What the program foresees is a warning without a traceback."""
    clock, log = _Clock(), CapturingLogger()
    duties = Duties(clock)

    def duty() -> None:
        raise OperationFailedError("seen: the store's worker did not answer within 2 s")

    duties.add("machine", 1.0, duty)
    for _ in range(2):
        clock.now += 1.0
        duties.run_due(log)
    assert [(call.method_name, call.kwargs["error"][:5]) for call in log.calls] == [
        ("warning", "seen:")
    ]
