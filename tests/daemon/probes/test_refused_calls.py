"""Probes where a filter refuses NUMA's system calls, as in a container: said, never silent."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from places import BIN

NUMA = "mbind+set_mempolicy+get_mempolicy"
WRAPPER = Path(__file__).parents[2] / "without_calls.py"


@pytest.fixture
def opctl(tmp_path):
    """Run opctl without a daemon, the calls refused."""

    def run(error, *words):
        command = [sys.executable, WRAPPER, error, NUMA, BIN / "opctl"]
        command += ["--session-dir", tmp_path / "store", "probe", "run", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


def test_the_filter_refuses_what_it_is_to():
    """The wrapper itself: these calls fail so, others do not."""
    code = (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "for n in (237, 238, 239): print(c.syscall(n, 0, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
        "print(c.syscall(39) > 0)"
    )
    command = [sys.executable, WRAPPER, "ENOSYS", NUMA, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [f"-1 {errno.ENOSYS}"] * 3 + ["True"]


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("pft", "memory=1m,policy=bind,nodes=0"), "policy=bind cannot be had here: "),
        (("pft", "memory=1m,policy=interleave,node=0"), "policy=interleave cannot"),
        (("pft", "memory=1m,policy=default,fifo=1"), "policy=default cannot"),
        (("pchase", "chain=64k,numa=add:0"), "numa=add:0: memory cannot be placed here: "),
        (("pchase", "chain=64k,numa=map:0/0"), "numa=map:0/0: memory cannot"),
    ],
)
def test_a_placement_is_refused_before_anything_runs(opctl, error, words, part):
    """With the call's reason, who may be at fault, and no run that was kept."""
    done = opctl(error, *words)
    assert done.returncode == 1, done
    said = {"EPERM": "Operation not permitted", "ENOSYS": "Function not implemented"}[error]
    for one in (part, said, "seccomp", "mbind"):
        assert one in done.stderr
    assert "void" not in done.stdout


def test_what_places_nothing_runs(opctl):
    """Without a policy no such call is made."""
    for words in (("pft", "memory=1m,repeats=1"), ("pchase", "chain=64k,seconds=0.002")):
        done = opctl("EPERM", *words, "--format", "json")
        assert (done.returncode, json.loads(done.stdout)["void"]) == (0, None), done
