"""Each capability of the unit, tried by dropping it: what breaks, and nothing else.

docs/service.md has the same as a table.
"""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from other_users import SERVICE_CAPABILITIES, USER, as_user

EVENT = ("-e", "cpu-clock:999hz")

# A binary deleted while it runs, one that only its owner may read, one like any
# other, the kernel: which of them have names without the capability.
EVERYTHING = {"gone", "secret", "plain", "kernel"}
NAMED_WITHOUT = {
    "nothing": EVERYTHING,
    "sys_ptrace": EVERYTHING - {"gone"},
    "checkpoint_restore": EVERYTHING - {"gone"},
    "dac_read_search": EVERYTHING - {"gone", "secret"},
    "syslog": EVERYTHING - {"kernel"},
}


def without(name):
    """The unit's capabilities less one."""
    return [each for each in SERVICE_CAPABILITIES if each != name]


@pytest.fixture
def start_as(place, start_daemon):
    """Give a function that starts opd as a made-up user with some capabilities."""

    def start(capabilities, *arguments, before=(), ready=True):
        number = sum(1 for path in place.path.iterdir() if path.name.startswith("daemon"))
        folder = place.folder(f"daemon{number}", owner=USER)
        program = [*before, *as_user(USER, capabilities=capabilities)]
        program += [place.python, "-m", "opd.cli.opd"]
        return start_daemon(*arguments, program=program, directory=folder, ready=ready)

    return start


@pytest.fixture
def running(place, busy):
    """Root's programs that run already: paths by the name of each."""
    private = place.path / "private"
    private.mkdir(mode=0o700)
    paths = {name: place.path / name for name in ("gone", "plain")} | {"secret": private / "secret"}
    for path in paths.values():
        shutil.copy(busy, path)
    paths["secret"].chmod(0o700)
    processes = [
        subprocess.Popen([path, "plain", "60"], stdout=subprocess.DEVNULL)
        for path in paths.values()
    ]
    time.sleep(0.2)
    paths["gone"].unlink()
    yield paths
    for process in processes:
        process.kill()
        process.wait()
    paths["plain"].unlink()
    shutil.rmtree(private)


@pytest.mark.parametrize("name", NAMED_WITHOUT)
def test_what_has_no_name_without_it(start_as, running, name):
    """Processes that ran before opd did, and the kernel, with one capability less."""
    daemon = start_as(without(name), *EVENT)
    time.sleep(1.0)
    heaviest = {}
    for row in daemon.rows("image", "symbol"):
        heaviest.setdefault(row["image"], row["symbol"])
    symbols = {key: heaviest[str(path)] for key, path in running.items()}
    symbols["kernel"] = heaviest["[kernel]"]
    named = {key for key, symbol in symbols.items() if symbol != "[unknown]"}
    assert named == NAMED_WITHOUT[name]
    assert daemon.stop() == 0


def test_without_perfmon_it_may_only_look_at_its_own(start_as, running):
    """CAP_PERFMON dropped: no event on whole CPUs where perf_event_paranoid forbids it."""
    level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    if level < 1:
        pytest.skip(f"perf_event_paranoid {level} lets everybody sample whole CPUs")
    daemon = start_as(without("perfmon"), *EVENT, ready=False)
    if level > 2:
        assert daemon.process.wait(30) == 77
        assert "CAP_PERFMON" in daemon.log()
        return
    assert daemon.wait_ready() is None
    assert daemon.ask("status")["scope"] == "own"
    images = {row["image"] for row in daemon.rows("image")}
    assert not images & {str(path) for path in running.values()}
    assert daemon.stop() == 0


def test_tracepoints_need_dac_read_search(start_as):
    """Tracefs is root's alone: without CAP_DAC_READ_SEARCH they are refused by name."""
    event = ("-e", "sched:sched_switch")
    with_all = start_as(SERVICE_CAPABILITIES, *event)
    assert with_all.stop() == 0
    daemon = start_as(without("dac_read_search"), *event, ready=False)
    assert daemon.process.wait(30) == 77
    assert "tracing" in daemon.log()


def test_rings_beyond_the_locked_memory_are_made_smaller(start_as, tmp_path):
    """RLIMIT_MEMLOCK, or CAP_IPC_LOCK in its place, is what large rings need."""
    settings = tmp_path / "opd.toml"
    settings.write_text("[sampling]\nring_kib = 8192\n")
    tmp_path.chmod(0o755)
    asked = ("--config", str(settings), *EVENT)
    low = ("prlimit", "--memlock=65536:65536")
    sizes = {}
    for key, capabilities in (
        ("no", SERVICE_CAPABILITIES),
        ("yes", (*SERVICE_CAPABILITIES, "ipc_lock")),
    ):
        daemon = start_as(capabilities, *asked, before=low)
        drain = daemon.ask("status")["drain"]
        sizes[key] = drain["ring_bytes"] // drain["cpus"]
        assert ("rings.smaller" in daemon.log()) == (key == "no")
        assert daemon.stop() == 0
    assert sizes["yes"] > 8192 * 1024 > sizes["no"]


def test_without_any_locked_memory_it_is_said(start_as):
    """A second opd of the same user, and nothing left: exit 77 names the limit, not a filter."""
    low = ("prlimit", "--memlock=0:0")
    first = start_as(SERVICE_CAPABILITIES, *EVENT, before=low)
    second = start_as(SERVICE_CAPABILITIES, *EVENT, before=low, ready=False)
    if second.wait_ready() is None:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
        assert level < 0, "it started without locked memory"
        pytest.skip("perf_event_paranoid -1 lifts the limit")
    assert second.process.returncode == 77
    assert "RLIMIT_MEMLOCK is 0 KiB" in second.log()
    assert first.stop() == 0
