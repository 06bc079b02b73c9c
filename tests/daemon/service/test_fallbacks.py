"""What was asked for and cannot be had is said once, with its remedy."""

from __future__ import annotations

import pytest

from opd.service.fallbacks import DRAIN_SAMPLES_A_SECOND, log_load


class Told:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        """Keep it."""
        self.warnings.append((event, fields))


@pytest.mark.parametrize("samples", [0.0, 512 * 99.0, float(DRAIN_SAMPLES_A_SECOND)])
def test_a_load_that_one_thread_carries_is_no_warning(samples):
    """512 CPUs at the default rate are no matter."""
    told = Told()
    log_load(told, samples)
    assert told.warnings == []


def test_a_load_that_one_thread_does_not_carry_is_told_with_its_remedy():
    """512 CPUs at 999 Hz: how many samples, how many are carried, what to do."""
    told = Told()
    log_load(told, 512 * 999.0)
    [(event, fields)] = told.warnings
    assert event == "drain.overloaded"
    assert (fields["samples_a_second"], fields["carries"]) == (511488, DRAIN_SAMPLES_A_SECOND)
    assert "--event" in str(fields["remedy"])
