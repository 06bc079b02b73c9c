"""Real processes in real cgroups, named as systemd and the container runtimes name theirs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import pytest

from cgroups import cgroups_of, first_version, second_version
from places import BIN

ID = "3f" * 32
OTHER_ID = "a0" * 32
SECONDS = "0.6"
FEWEST = 100  # samples of 0.6 s at 999 Hz, with room for a busy machine


@pytest.fixture(scope="module")
def daemon(start_daemon, tmp_path_factory):
    """One daemon for all of these, quick to sample."""
    settings = tmp_path_factory.mktemp("labels") / "opd.toml"
    # These tests ask more of it in a minute than people do in a day.
    settings.write_text('[governor]\ncpu_percent = "off"\n')
    daemon = start_daemon(
        *("--config", str(settings), "-e", "cpu-clock:999hz", "--separate", "cgroup")
    )
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture(params=["v1", "v2"])
def cgroups(request):
    """Cgroups of each version that is mounted here."""
    hierarchy = first_version() if request.param == "v1" else second_version()
    with cgroups_of(hierarchy, request.param) as made:
        yield made


@pytest.fixture
def unified():
    """Cgroups of version 2."""
    with cgroups_of(second_version(), "v2") as made:
        yield made


@pytest.fixture
def old():
    """Cgroups of a hierarchy of version 1."""
    with cgroups_of(first_version(), "v1") as made:
        yield made


def run(command):
    """Run it to its end; its pid."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == 0
    return process.pid


def samples(rows, **wanted):
    """Sum the samples of the rows that match."""
    return sum(
        row["samples"] for row in rows if all(row[key] == value for key, value in wanted.items())
    )


@pytest.mark.parametrize(
    "place",
    [
        ("/system.slice/opd-test-web.service", "opd-test-web.service", "[none]"),
        (r"/system.slice/opd\x2dtest.mount", "opd-test.mount", "[none]"),
        (f"/system.slice/docker-{ID}.scope", f"docker-{ID}.scope", ID),
        (f"/opd-test-docker/docker/{ID}", "[none]", ID),
        (f"/machine.slice/libpod-{ID}.scope/container", f"libpod-{ID}.scope", ID),
        (
            f"/opd-test-pods/kubepods.slice/kubepods-pod{'0' * 32}.slice/cri-containerd-{ID}.scope",
            f"cri-containerd-{ID}.scope",
            ID,
        ),
        ("/lxc.payload.opd-test/system.slice/a.service", "a.service", "opd-test"),
    ],
)
def test_a_process_counts_to_its_unit_and_container(daemon, busy, cgroups, place):
    """Whatever made the cgroup, its samples are found by path, unit and container."""
    path, unit, container = place
    pid = run(cgroups.inside(path, busy, "plain", SECONDS))
    rows = daemon.rows("pid", "cgroup", "unit", "container")
    wanted = {"cgroup": path, "unit": unit, "container": container}
    assert samples(rows, pid=pid, **wanted) > FEWEST
    # Before it moved, its first instructions were elsewhere.
    assert samples(rows, pid=pid) - samples(rows, pid=pid, **wanted) < FEWEST / 10


def test_the_answer_can_be_about_one_unit(daemon, busy, cgroups):
    """``--where unit=…`` keeps that unit; roll-ups and windows agree with the sum over all."""
    unit = "opd-test-one.service"
    run(cgroups.inside(f"/system.slice/{unit}", busy, "plain", SECONDS))
    everything = daemon.rows("unit", "comm")
    only = daemon.ask("report", "--where", f"unit={unit}", "--sort", "comm", "--top", "0")["rows"]
    assert samples(only) == samples(everything, unit=unit) > FEWEST


def test_version_2_is_exact_and_says_so(daemon, busy, unified):
    """The id in the sample tells: no process is looked at."""
    daemon.ask("dump")
    before = daemon.ask("status")["quality"]["labels"]["exact"]
    run(unified.inside("/opd-test-exact.service", busy, "plain", SECONDS))
    daemon.ask("dump")
    assert daemon.ask("status")["quality"]["labels"]["exact"] - before > FEWEST


def test_a_process_moved_in_version_2_counts_to_both(daemon, busy, unified):
    """From the moment it is moved its samples are of the new cgroup, before it of the old."""
    with subprocess.Popen(
        unified.inside("/opd-test-from.service", busy, "plain", "2"), stdout=subprocess.DEVNULL
    ) as process:
        time.sleep(0.8)
        unified.move(process.pid, "/opd-test-to.service")
    rows = daemon.rows("pid", "unit")
    assert samples(rows, pid=process.pid, unit="opd-test-from.service") > FEWEST
    assert samples(rows, pid=process.pid, unit="opd-test-to.service") > FEWEST


def test_a_process_moved_in_version_1_is_seen_when_it_is_a_second_old(daemon, busy, old):
    """What moves it after its exec is noticed, if late: the text is read again."""
    with subprocess.Popen(
        old.inside("/opd-test-from.service", busy, "plain", "2.5"), stdout=subprocess.DEVNULL
    ) as process:
        time.sleep(0.2)
        old.move(process.pid, "/opd-test-to.service")
    rows = daemon.rows("pid", "unit")
    assert samples(rows, pid=process.pid, unit="opd-test-to.service") > FEWEST


@pytest.mark.parametrize("execs", [True, False], ids=["exec", "fork"])
def test_processes_too_short_to_be_read_are_where_their_parent_is(daemon, cgroups, tmp_path, execs):
    """Of a storm of processes in a container next to nothing is counted elsewhere."""
    name = f"storm{'12'[cgroups.hierarchy == second_version()]}{'fe'[execs]}"
    shell = shutil.copy("/bin/sh", tmp_path / name)
    command = "/bin/true" if not execs else f"{shell} -c :"
    loop = f"i=0; while [ $i -lt 700 ]; do ({command}); i=$((i + 1)); done"
    before = daemon.ask("status")["quality"]["labels"]
    pid = run(cgroups.inside(f"/opd-test-storm/docker/{OTHER_ID}", shell, "-c", loop))
    rows = daemon.rows("comm", "pid", "container")
    of_storm = [row for row in rows if row["comm"] == name]
    inside = samples(of_storm, container=OTHER_ID)
    assert inside > FEWEST
    assert inside > 0.98 * samples(of_storm)
    assert len({row["pid"] for row in of_storm}) > FEWEST
    assert samples(of_storm, pid=pid, container=OTHER_ID) > 0
    after = daemon.ask("status")["quality"]["labels"]
    grown = {known: after[known] - before[known] for known in after}
    assert grown["exact" if cgroups.hierarchy == second_version() else "inherited"] > FEWEST


def test_threads_of_the_kernel_are_in_the_root(daemon):
    """What belongs to no unit says so."""
    rows = daemon.rows("comm", "cgroup", "unit")
    assert {row["cgroup"] for row in rows if row["comm"] == "swapper"} <= {"/"}
    assert {row["unit"] for row in rows if row["cgroup"] == "/"} == {"[none]"}


def test_quality_tells_how_every_sample_was_known(daemon):
    """The four sum up to the samples of the event."""
    daemon.ask("dump")
    answer = daemon.ask("report", "--sort", "cgroup", "--top", "0")
    labels = answer["quality"]["labels"]
    assert set(labels) == {"exact", "read", "inherited", "unknown"}
    assert sum(labels.values()) == answer["total"]
    unknown = samples(answer["rows"], cgroup="[unknown]")
    assert unknown == labels["unknown"]


def test_top_shows_units(daemon, busy, cgroups):
    """``opctl top --sort unit,container`` sees a unit that burns CPU now."""
    with subprocess.Popen(
        cgroups.inside(f"/system.slice/docker-{ID}.scope", busy, "plain", "60"),
        stdout=subprocess.DEVNULL,
    ) as process:
        seen = 0
        for _ in range(20):  # a busy machine may be slow to start it
            answer = daemon.ask("top", "--interval", "1", "-n", "1", "--sort", "unit,container")
            seen = samples(answer["rows"], unit=f"docker-{ID}.scope", container=ID)
            if seen:
                break
        process.kill()
    assert seen > 0


def imported(recording, directory):
    """Report a recording by cgroup, from a store of its own."""
    command = [BIN / "opctl", "--session-dir", directory, "--format", "json"]
    subprocess.run([*command, "import", recording], check=True, capture_output=True)
    report = [*command, "report", "--sort", "comm,cgroup,unit", "--top", "0"]
    done = subprocess.run(report, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("asked", [True, False])
def test_a_recording_keeps_the_cgroups_that_it_has(perf, busy, unified, tmp_path, asked):
    """``perf record --all-cgroups`` tells them exactly; without it they are unknown."""
    path = "/opd-test-recorded.service"
    command = [perf, "record", "-q", "-a", "-e", "cpu-clock", "-F", "999", "-o", tmp_path / "data"]
    command += ["--all-cgroups"] if asked else []
    done = subprocess.run(
        [*command, "--", *unified.inside(path, busy, "plain", SECONDS)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"perf record is refused here: {done.stderr.strip()[-200:]}")
    answer = imported(tmp_path / "data", tmp_path / "store")
    labels = answer["quality"]["labels"]
    assert labels == {
        "exact": answer["total"] if asked else 0,
        "read": 0,
        "inherited": 0,
        "unknown": 0 if asked else answer["total"],
    }
    place = {"cgroup": path, "unit": path[1:]} if asked else {"cgroup": "[unknown]"}
    assert samples(answer["rows"], comm="busy", **place) > FEWEST
