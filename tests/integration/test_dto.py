"""dto end to end: two revisions from one command, suites and their files, bad libraries."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from dto_libraries import commit, compiled, repository, source
from places import BIN

# A page's worth of work more, which no noise hides.
SLOW = "for (volatile int i = 0; i < 20000; i++) { }"


def opctl(tmp_path, *words, timeout=100):
    """Ask opctl without a daemon."""
    return subprocess.run(
        [sys.executable, BIN / "opctl", "--session-dir", tmp_path / "store", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "CACHE_DIRECTORY": str(tmp_path / "cache")},
    )


def test_a_slow_down_between_two_revisions_from_one_command(tmp_path):
    """Built, linked into one process, REGRESSED with its status; the SHAs are in the result."""
    tree = repository(tmp_path / "tree")
    shas = [commit(tree, "v1", source()), commit(tree, "v2", source(in_copy=SLOW))]
    words = "baseline=git:v1,current=git:v2,tree=./tree,build=make libx.a,artifact=libx.a"
    said = opctl(tmp_path, "probe", "run", "dto", f"{words},size=4k", "--format", "json")
    assert said.returncode == 3, said.stderr
    result = json.loads(said.stdout)
    assert result["verdict"]["result"] == "REGRESSED"
    sides = result["details"]["implementations"]
    assert [sides[side]["commit"] for side in ("baseline", "current")] == shas
    assert [sides[side]["kept_apart_by"] for side in ("baseline", "current")] == ["linked"] * 2
    assert result["details"]["cell"]["layouts"] == 8
    same = words.replace("git:v2", "git:v1")
    said = opctl(tmp_path, "probe", "run", "dto", f"{same},size=16k,rounds=4", "--format", "json")
    assert json.loads(said.stdout)["verdict"]["result"] != "REGRESSED"


def test_a_revision_that_does_not_build(tmp_path):
    """The end of its output, status 1, and no run is kept."""
    tree = repository(tmp_path / "tree")
    commit(tree, "v1", source())
    commit(tree, "v2", "nonsense")
    words = "baseline=git:v1,current=git:v2,tree=./tree,build=make libx.so,artifact=libx.so"
    said = opctl(tmp_path, "probe", "run", "dto", words)
    assert said.returncode == 1
    assert "git:v2" in said.stderr
    assert "x.c:1" in said.stderr
    assert json.loads(opctl(tmp_path, "probe", "list", "--format", "json").stdout)["runs"] == []
    said = opctl(tmp_path, "probe", "run", "dto", words.replace("v2", "v3"))
    assert (said.returncode, "no such revision" in said.stderr) == (2, True)


@pytest.mark.parametrize(
    ("parts", "options", "status", "said"),
    [
        ({"in_copy": "abort();"}, "", 1, "killed by SIGABRT, in memcpy"),
        ({"compare": False}, ",op=memcmp", 2, "defines no memcmp"),
        (
            {
                "before": '__attribute__((constructor)) static void go(void) { puts("noise"); '
                'fflush(stdout); fputs("more", stderr); }'
            },
            "",
            0,
            "",
        ),
    ],
)
def test_libraries_that_misbehave(tmp_path, parts, options, status, said):
    """A crash and a function that lacks are told before anything; noise does no harm."""
    compiled(tmp_path, "libx", source(**parts))
    words = f"baseline=./libx.so,current=./libx.so,size=64,rounds=2,looks=1{options}"
    done = opctl(tmp_path, "probe", "run", "dto", words, "--format", "json")
    assert said in done.stderr
    if status:
        assert done.returncode == status
    else:
        assert done.returncode in (0, 4, 5)
        assert json.loads(done.stdout)["void"] is None
    assert "noise" not in done.stdout


def test_a_suite_writes_its_files(tmp_path):
    """Tables on the terminal and in the folder, samples in the old columns, one worst status."""
    words = "suite=perf,select=memcpy_16k,mode=cpu+stdc,page=4k,perf_iters=200,perf_ab_rounds=2"
    said = opctl(tmp_path, "probe", "run", "dto", f"{words},results_dir=out", "--format", "dto")
    assert said.returncode in (0, 4, 5), said.stderr
    assert said.stdout == (tmp_path / "out/tables.txt").read_text()
    assert "memcpy_16k    cpu " in said.stdout
    with (tmp_path / "out/distributions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 400
    assert {row["config"] for row in rows} == {"cpu", "stdc"}
    assert (tmp_path / "out/distributions_4k_memcpy_ecdf.svg").exists()
    kept = json.loads(opctl(tmp_path, "probe", "show", "2", "--format", "json").stdout)
    assert kept["verdict"]["gating"] is True
    assert kept["parameters"]["results_dir"] == ""
    drawn = opctl(tmp_path, "probe", "show", "1", "2", "--plot", "page.html")
    assert drawn.returncode == 0, drawn.stderr
    page = (tmp_path / "page.html").read_text()
    for kind in ("density", "violin", "ecdf"):
        assert f"memcpy_16k stdc, 4k pages: {kind}" in page
    again = opctl(tmp_path, "probe", "show", "1", "--format", "dto")
    assert "A/B Results — 4KB pages" in again.stdout


def test_modes_that_this_machine_has_not(tmp_path):
    """Alone an error that names the check; in a suite they are left out, and that is said."""
    said = opctl(tmp_path, "probe", "run", "dto", "mode=dsa")
    if said.returncode == 0:
        pytest.skip("this machine has DSA")
    assert said.returncode == 1
    assert "unavailable" in said.stderr
    words = "suite=sanity,select=memcpy_4k,mode=stdc+dsa,page=4k"
    said = opctl(tmp_path, "probe", "run", "dto", words, "--format", "json")
    assert said.returncode == 0, said.stderr
    notes = json.loads(said.stdout)["notes"]
    assert any("left out: mode=dsa: unavailable" in note for note in notes)
