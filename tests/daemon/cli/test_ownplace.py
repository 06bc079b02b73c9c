"""Probes asked for under taskset."""

import os

import pytest

from opd.cli.ownplace import measure_with_own_cpus, with_own_cpus


@pytest.fixture
def narrow(monkeypatch):
    """As under taskset -c 1-2,5 on eight CPUs."""
    affinity = {0: {1, 2, 5}, 1: set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", affinity.__getitem__)
    return affinity


@pytest.mark.usefixtures("narrow")
def test_what_opctl_may_use_the_probe_may_use():
    """Unless the options say which, or it is a schedule."""
    assert with_own_cpus("") == "cpus=1-2+5"
    assert with_own_cpus("memory=1m") == "memory=1m,cpus=1-2+5"
    for given in ("cpus=0", "memory=1m,cpus=0", "every=1h,memory=1m"):
        assert with_own_cpus(given) == given
    assert measure_with_own_cpus("pft") == "pft:cpus=1-2+5"
    assert measure_with_own_cpus("pft:memory=1m") == "pft:memory=1m,cpus=1-2+5"
    assert measure_with_own_cpus("12") == "12"


def test_anywhere_else_nothing_is_added(narrow, monkeypatch):
    """All that init may use, or init is of nobody's business here."""
    narrow[0] = narrow[1]
    assert with_own_cpus("") == ""
    assert measure_with_own_cpus("pft") == "pft"

    def hidden(pid):
        if pid:
            raise PermissionError
        return {1}

    monkeypatch.setattr(os, "sched_getaffinity", hidden)
    assert with_own_cpus("memory=1m") == "memory=1m"
