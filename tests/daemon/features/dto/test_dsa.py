"""Modes dsa and dsa_auto on an emulated device, without and with faults."""

import json
import subprocess
import sys

import pytest

from dsa_machine import emulator, environment, machine
from opd.errors import OperationFailedError
from opd.features.dto import dsa
from opd.features.dto.options import DtoOptions
from opd_native.dsa import DsaReport

QUICK = "rounds=2,iterations=250,looks=1,warmup=5,perf_core_freq_mhz=0,perf_uncore_freq_mhz=0"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The emulator to preload."""
    return emulator(tmp_path_factory.mktemp("emulator"))


@pytest.fixture
def run(library, tmp_path):
    """Run the probe so on the emulated machine: exit status, and result or complaint."""
    machine(tmp_path / "root")

    def run(text, **faults):
        opctl = [sys.executable, "-c", "from opd.cli.programs import opctl; opctl()"]
        store = ["--session-dir", tmp_path / "store", "--format", "json"]
        done = subprocess.run(
            [*opctl, *store, "probe", "run", "dto", text],
            env=environment(library, tmp_path / "root", **faults),
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            return done.returncode, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def test_the_device_does_what_is_measured(run):
    """Both sides' calls go to the device, and the result says so."""
    status, result = run(f"mode=dsa,size=100k,current=sse2,{QUICK}")
    assert status in (0, 3, 4, 5)
    assert not result["void"]
    for side in ("baseline", "current"):
        told = result["details"]["implementations"][f"{side}_dsa"]
        assert told["counts"]["device_bytes"] > 0
        assert told["counts"]["cpu_bytes"] == 0
        assert told["queues"] == ["wq0.0: shared by write(), 16 entries, 65536 bytes a descriptor"]
        assert set(told["statuses"]) == {"0x01 success"}
        assert any(f"{side}: " in note and "100.0 %" in note for note in result["notes"])


def test_dsa_auto_offloads_only_what_pays(run):
    """A slow device does none of the calls that count; from which size on is told."""
    status, result = run(f"mode=dsa_auto,size=4k,op=memset,{QUICK}", delay_ns=300_000)
    assert status in (0, 3, 4, 5)
    told = result["details"]["implementations"]["current_dsa"]
    assert told["crossover"]["least"] is None
    assert told["counts"]["small"] == told["counts"]["calls"] > 0
    assert any("pays at no size up to 65536 bytes" in note for note in result["notes"])


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"every": 1, "hang": 1}, "did not complete"),
        ({"busy_percent": 100}, "the device did nothing: "),
    ],
)
def test_a_device_that_does_nothing_makes_the_run_void(run, faults, words):
    """One that never completes is given up; what was then measured is the CPU."""
    status, result = run(f"mode=dsa,size=64k,dsa_timeout=0.01,{QUICK}", **faults)
    assert status == 1
    assert words in result["void"]


def test_answers_are_right_whatever_the_device_does(run):
    """suite=functional in mode dsa on a device with all faults at once."""
    faults = {"fault_page": -1, "busy_percent": 20, "every": 5, "status": 32, "spoil": 1}
    status, result = run("suite=functional,mode=dsa,largest=140k,random_cases=50", **faults)
    assert status == 0
    metrics = {metric["name"]: metric["median"] for metric in result["metrics"]}
    assert metrics["differences"] == 0
    assert metrics["cases"] > 10_000
    counts = result["details"]["implementations"]["current_dsa"]["counts"]
    assert min(counts[name] for name in ("device_bytes", "nested", "faults", "redone")) > 0


def test_what_is_wrong_with_the_queue_is_said_before_anything_is_measured(run, tmp_path):
    """The check that failed, and its remedy."""
    machine(tmp_path / "root", type="kernel")
    status, complaint = run("mode=dsa")
    assert status == 1
    assert "mode=dsa: unavailable: wq0.0 type: type is kernel, not user" in complaint


def test_no_device_is_a_refusal(monkeypatch):
    """Modes that offload are refused with the reason; the others are not concerned."""
    monkeypatch.setattr(dsa, "examine", lambda: DsaReport(0, "no DSA", (), 0))
    for mode in ("dsa", "dsa_auto"):
        with pytest.raises(OperationFailedError, match=f"mode={mode}: unavailable: no DSA"):
            dsa.check_device(DtoOptions(mode=mode))
    dsa.check_device(DtoOptions(mode="cpu"))
