"""Statistics of probes beside those of features."""

import pytest

from opd.errors import StoreError, UnknownNameError
from opd.query import probestats
from opd.store import probes
from opd.store.database import open_writer, transaction
from opd.store.queries import open_reader


def no_feature():
    """Answer as a daemon without features."""
    raise UnknownNameError("feature 'x' does not run here")


@pytest.fixture
def reader(tmp_path):
    """Give a reader of a store with a good, a void and an unended run of the probe ``p``."""
    connection = open_writer(tmp_path)
    run = {"seconds": 2.0, "own_cpus": 1.5}
    metric = {"name": "rate", "unit": "1/s", "better": "higher", "median": 5.0, "low": 4.0}
    metric |= {"high": 6.0, "cv": 0.1, "n": 3}
    with transaction(connection):
        for void, origin in ((None, "schedule"), ("killed", "compare"), ("", "asked")):
            number = probes.begin(
                connection, {"probe": "p", "parameters": {"a": 1}, "origin": origin, "at_ns": 10}
            )
            if void == "":
                continue
            probes.end(
                connection,
                {
                    "id": number,
                    "probe": "p",
                    "started_ns": 1_000_000_000,
                    "ended_ns": 3_000_000_000,
                    "machine": {} if void else {"run": run},
                    "metrics": [] if void else [metric],
                    "verdict": None,
                    "void": void,
                    "notes": ["a note"],
                    "details": {} if void else {"stats": {"colour": "blue"}},
                    "samples": [],
                },
            )
    connection.close()
    with open_reader(tmp_path) as reader:
        yield reader


def test_runs_are_counted_and_the_last_is_shown(reader):
    """What they took, how many were void, and why the last of these was."""
    told = probestats.stats_answer(reader, "p", no_feature)["p"]
    assert told["state"] == "probe"
    probe = told["probe"]
    counts = {name: probe[name] for name in ("runs", "void", "comparisons", "scheduled")}
    assert counts == {"runs": 3, "void": 1, "comparisons": 1, "scheduled": 1}
    assert (probe["wall_seconds"], probe["cpu_seconds"]) == (4.0, 3.0)
    assert probe["last_void"] == {"id": 2, "reason": "killed"}
    assert (probe["last"]["id"], probe["last"]["void"]) == (2, "killed")


def test_what_a_feature_says_stays_and_the_probe_adds_to_it(reader):
    """One name may be both."""
    both = probestats.stats_answer(reader, None, lambda: {"p": {"state": "running", "own": {}}})
    assert (both["p"]["state"], both["p"]["probe"]["runs"]) == ("running", 3)
    assert set(probestats.stats_answer(reader, None, dict)) == {"p"}


def test_what_the_probe_said_of_its_last_run_is_its_own(tmp_path):
    """Measuring.stats comes back under own."""
    connection = open_writer(tmp_path)
    with transaction(connection):
        number = probes.begin(
            connection, {"probe": "q", "parameters": {}, "origin": "asked", "at_ns": 10}
        )
        ended = {"id": number, "probe": "q", "started_ns": 1, "ended_ns": 2, "machine": {}}
        ended |= {"metrics": [], "verdict": None, "void": None, "notes": [], "samples": []}
        probes.end(connection, ended | {"details": {"stats": {"colour": "blue"}}})
    connection.close()
    with open_reader(tmp_path) as reader:
        told = probestats.stats_answer(reader, "q", no_feature)["q"]
    assert told["own"] == {"colour": "blue"}


def test_a_probe_that_never_ran_is_known_and_nonsense_is_not(reader):
    """Offered by an installed feature: no runs. Else the error of features stands."""
    assert probestats.stats_answer(reader, "calibrate", no_feature) == {
        "calibrate": {"state": "probe", "own": {}, "probe": {"runs": 0}}
    }
    with pytest.raises(UnknownNameError):
        probestats.stats_answer(reader, "nonsense", no_feature)


def test_a_store_of_probes_alone_has_no_session(reader):
    """What features say is then nothing, and no error."""

    def no_session():
        raise StoreError("no session in the store yet")

    assert set(probestats.stats_answer(reader, None, no_session)) == {"p"}
    with pytest.raises(StoreError):
        probestats.stats_answer(reader, "nonsense", no_session)
