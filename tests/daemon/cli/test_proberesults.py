"""Results of probes as text."""

import argparse
import json

import pytest

from opd.cli import proberesults
from opd.errors import UsageError

METRIC = {"name": "ratio", "unit": "1", "better": "lower", "median": 1.00123, "low": 1.0}
METRIC |= {"high": 1.002, "cv": 0.01, "n": 3}
VERDICT = {"result": "REGRESSED", "change_percent": 2.0, "low": 1.5, "high": 2.5}
VERDICT |= {"advisory": False, "metric": "ratio", "reason": "all of it is worse"}


def result(number, **other):
    """A run as the store tells it."""
    told = {"id": number, "probe": "calibrate", "parameters": {"what": "loop", "nice": 0}}
    told |= {"started_ns": 10**18, "ended_ns": 2 * 10**18, "void": None, "notes": []}
    return told | {"metrics": [METRIC], "verdict": None} | other


def printed(capsys, form, *results):
    """What is printed of them in that form."""
    proberesults.print_results(list(results), argparse.Namespace(format=form))
    return capsys.readouterr().out


def test_a_table_shows_in_which_options_runs_differ(capsys):
    """Options that all have alike are no news; neither is nice=0 of a single run."""
    text = printed(capsys, "table", result(1), result(2, parameters={"what": "mem", "nice": 0}))
    assert "what=mem" in text
    assert "nice" not in text
    assert "1.0012" in text  # two decimals would not tell ratios apart


def test_a_void_run_has_a_row_and_says_why(capsys):
    """Without any figure."""
    text = printed(capsys, "table", result(7, metrics=[], void="killed by signal 9"))
    assert "7: void: killed by signal 9" in text


def test_a_run_that_goes_on_says_so(capsys):
    """It has no end yet."""
    assert "4: it runs still" in printed(capsys, "table", result(4, ended_ns=None))


def test_a_verdict_is_told_with_its_interval(capsys):
    """In a line of its own."""
    text = printed(capsys, "table", result(3, verdict=VERDICT))
    assert "REGRESSED: +2.00 % (+1.50 to +2.50 %) ratio: all of it is worse" in text


def test_json_of_several_has_the_verdict_of_all(capsys):
    """The worst of them."""
    fine = VERDICT | {"result": "OK"}
    told = json.loads(printed(capsys, "json", result(1, verdict=VERDICT), result(2, verdict=fine)))
    assert told["verdict"]["result"] == "REGRESSED"
    assert [one["id"] for one in told["results"]] == [1, 2]


def test_an_unknown_form_names_those_there_are():
    """The probe's own among them."""
    with pytest.raises(UsageError, match="'xml': there are: table json csv"):
        proberesults.print_results([result(1)], argparse.Namespace(format="xml"))
