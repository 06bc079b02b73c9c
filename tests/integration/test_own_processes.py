"""opd of a plain user: his own processes, all of them, each once, nobody else's, and it says so."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from other_users import OTHER_USER, USER, as_user

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
HZ = 499


@pytest.fixture(params=[2, 1])
def paranoid(request):
    """The sysctl at a level that forbids whole CPUs; as it was afterwards."""
    before = PARANOID.read_text(encoding="ascii")
    try:
        PARANOID.write_text(str(request.param), encoding="ascii")
    except OSError as error:
        pytest.skip(f"perf_event_paranoid cannot be set here: {error.strerror}")
    yield request.param
    PARANOID.write_text(before, encoding="ascii")


@pytest.fixture
def burn(place, busy):
    """Give a function that burns CPU as a user, in a program called as wanted."""
    started = []

    def start(user, name, seconds, *, wait=False):
        program = place.path / name
        if not program.exists():
            program.write_bytes(busy.read_bytes())
            program.chmod(0o755)
        command = [*as_user(user), program, "plain", str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        started.append(process)
        if wait:
            process.wait()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def own_daemon(place, start_daemon, paranoid, burn):  # noqa: ARG001 - the level comes first
    """A plain user's daemon; a program of his, and one of somebody else, run already."""
    burn(USER, "before", 60)
    burn(OTHER_USER, "foreign", 60)
    number = sum(1 for path in place.path.iterdir() if path.name.startswith("own"))
    folder = place.folder(f"own{number}", owner=USER)
    program = [*as_user(USER), place.python, "-m", "opd.cli.opd"]
    daemon = start_daemon("-e", f"cpu-clock:{HZ}hz", program=program, directory=folder)
    yield daemon
    assert daemon.stop() == 0


def samples(daemon, name):
    """The samples of a program so far."""
    return sum(row["samples"] for row in daemon.rows("comm") if row["comm"] == name)


def test_it_samples_what_the_user_runs_and_nobody_else(own_daemon, burn, paranoid):
    """What ran before, what comes later, what that forks; each once; not other users'."""
    time.sleep(1.5)  # the next look at what is new
    burn(USER, "later", 60)
    time.sleep(2.5)
    rows = own_daemon.rows("comm", "mode", "symbol")
    names = {row["comm"] for row in rows}
    assert {"before", "later"} <= names
    assert "foreign" not in names
    assert "swapper" not in names
    heaviest = next(row for row in rows if row["comm"] == "later")
    assert heaviest["symbol"] == "plain_work"
    modes = {row["mode"] for row in rows}
    assert modes == {"user"} if paranoid == 2 else "user" in modes


def test_what_a_sampled_process_starts_is_sampled_once(own_daemon, place, busy):
    """A child inherits; the look at what is new does not add it a second time."""
    program = place.path / "child"
    program.write_bytes(busy.read_bytes())
    program.chmod(0o755)
    script = f"sleep 3; {program} plain 2; exit 0"
    shell = subprocess.Popen([*as_user(USER), "sh", "-c", script], stdout=subprocess.DEVNULL)
    _pid, _status, used = os.wait4(shell.pid, 0)
    shell.returncode = 0  # it was waited for
    assert 0.6 < samples(own_daemon, "child") / HZ / used.ru_utime < 1.6


def test_status_and_answers_say_so(own_daemon, paranoid):
    """The log, status, its ladder and every answer's source name the user."""
    status = own_daemon.ask("status")
    assert status["scope"] == "own"
    assert status["own"]["uid"] == USER
    assert status["own"]["threads"] >= 2
    assert any(f"uid {USER}" in step for step in status["ladder"])
    report = own_daemon.ask("report")
    event = "cpu-clock:u" if paranoid == 2 else "cpu-clock"
    assert report["quality"]["source"] == f"{event} of uid {USER}"
    assert "sampling.own_processes" in own_daemon.log()
    assert "CAP_PERFMON" in own_daemon.log()
    text = own_daemon.opctl("status").stdout
    assert f"only processes of uid {USER}" in text


def test_a_process_for_which_no_files_are_left_is_counted(place, start_daemon):
    """Each thread, CPU and event takes an open file: what does not fit is left out and said."""
    command = [*as_user(USER), "sh", "-c", "for i in $(seq 60); do sleep 60 & done; wait"]
    sleeping = subprocess.Popen(command, start_new_session=True)
    try:
        time.sleep(0.5)
        folder = place.folder("few-files", owner=USER)
        program = ["prlimit", "--nofile=160:160", *as_user(USER)]
        program += [place.python, "-m", "opd.cli.opd"]
        daemon = start_daemon("-e", "cpu-clock", program=program, directory=folder)
        status = daemon.ask("status")
        if status["scope"] != "own":
            pytest.skip("perf_event_paranoid lets everybody sample whole CPUs")
        assert status["own"]["left_out"] > 0
        assert status["own"]["threads"] <= status["own"]["threads_most"]
        assert "left out" in daemon.opctl("status").stdout
        assert daemon.stop() == 0
    finally:
        os.killpg(sleeping.pid, signal.SIGKILL)
        sleeping.wait()


def test_a_reload_keeps_to_the_users_processes(place, start_daemon, burn, paranoid):
    """SIGHUP with another event: the same processes, newly opened."""
    burn(USER, "steady", 60)
    folder = place.folder(f"reload{paranoid}", owner=USER)
    settings = folder / "opd.toml"
    settings.write_text('[sampling]\nevents = ["cpu-clock:499hz"]\n')
    program = [*as_user(USER), place.python, "-m", "opd.cli.opd"]
    daemon = start_daemon("--config", str(settings), program=program, directory=folder)
    settings.write_text('[sampling]\nevents = ["task-clock:499hz"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 30
    while "config.reloaded" not in daemon.log():
        assert time.monotonic() < until, daemon.log()
        time.sleep(0.05)
    time.sleep(1)
    daemon.ask("dump")
    rows = daemon.ask("report", "-e", "task-clock", "--sort", "comm")["rows"]
    assert "steady" in {row["comm"] for row in rows}
    assert daemon.ask("status")["scope"] == "own"
    assert daemon.stop() == 0


def test_a_burst_takes_one_of_them(own_daemon, place, burn):
    """`opctl record --pid` of a process of his own, by the user himself."""
    process = burn(USER, "wanted", 60)
    time.sleep(0.3)
    arguments = ("record", "--pid", str(process.pid), "--for", "1s", "--name", "one")
    done = place.opctl(USER, own_daemon.endpoint, *arguments)
    assert done.returncode == 0, done.stderr
    rows = own_daemon.ask("report", "--session", "one", "--sort", "comm,symbol")["rows"]
    assert {row["comm"] for row in rows} == {"wanted"}
    assert rows[0]["symbol"] == "plain_work"


def test_by_default_all_is_in_the_users_own_directories(place, paranoid):
    """Socket in $XDG_RUNTIME_DIR, history in ~/.local/state; opctl finds it by itself."""
    home = place.folder(f"home{paranoid}", owner=USER, mode=0o700)
    run = place.folder(f"run{paranoid}", owner=USER, mode=0o700)
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": str(run), "PATH": os.environ["PATH"]}
    words = [*as_user(USER), place.python, "-m"]
    with (place.path / "log-of-user").open("wb") as log:
        daemon = subprocess.Popen([*words, "opd.cli.opd"], env=environment, stderr=log)
    try:
        until = time.monotonic() + 30
        while not (run / "opd/opd.sock").exists():
            assert daemon.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        done = subprocess.run(
            [*words, "opd.cli.opctl", "dump"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if Path("/run/opd/opd.sock").exists():
            pytest.skip("the system's own opd runs here and is asked first")
        assert done.returncode == 0, done.stderr
        assert (home / ".local/state/opd/opd.db").exists()
        assert (run / "opd").stat().st_mode & 0o777 == 0o750
    finally:
        daemon.terminate()
        assert daemon.wait(30) == 0
