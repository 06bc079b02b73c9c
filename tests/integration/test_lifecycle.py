"""A daemon's life: start, signals, worker and daemon killed, restart, refusals."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfdata_writer import USER, Attr, PerfData
from places import BIN

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
PR_CAPBSET_DROP = 24


def wait_for(condition, seconds=20.0):
    """Poll until it is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.05)


def test_sigterm_stores_everything_and_leaves_no_child(start_daemon, busy):
    """SIGTERM dumps what was sampled, ends the worker and exits 0."""
    daemon = start_daemon("-e", "cpu-clock:999hz", "--interval", "3600")
    children = psutil.Process(daemon.process.pid).children(recursive=True)
    assert children
    subprocess.run([busy, "plain", "0.3"], check=True, capture_output=True)
    assert daemon.stop() == 0
    assert not any(child.is_running() for child in children)
    offline = ["--session-dir", str(daemon.store), "--format", "json"]
    done = subprocess.run(
        [BIN / "opctl", *offline, "report", "--sort", "symbol", "--top", "0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain_work" in done.stdout


def test_ctrl_c_ends_like_sigterm(start_daemon):
    """SIGINT is a clean end too."""
    daemon = start_daemon()
    assert daemon.stop(signal.SIGINT) == 0


def test_sigusr1_logs_statistics_and_sighup_reloads(start_daemon, tmp_path):
    """Signals are answered by the log; a broken setting leaves the old one in force."""
    config = tmp_path / "opd.toml"
    config.write_text("[daemon]\ninterval = 5.0\n")
    daemon = start_daemon("--config", str(config))
    daemon.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "daemon.stats" in daemon.log())
    config.write_text('[daemon]\ninterval = "soon"\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "config.refused" in daemon.log())
    assert "Traceback" not in daemon.log()
    assert "interval" in daemon.log()
    config.write_text('[sampling]\nevents = ["task-clock"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "config.reloaded" in daemon.log())
    assert [event["name"] for event in daemon.ask("status")["events"]] == ["task-clock"]
    assert daemon.stop() == 0


def test_start_and_stop_sampling(start_daemon, busy):
    """After stop nothing is counted, after start it is again."""
    daemon = start_daemon("-e", "cpu-clock:999hz")
    daemon.opctl("stop")
    assert daemon.ask("status")["sampling"] is False
    daemon.ask("dump")
    before = daemon.ask("status")["samples"]
    subprocess.run([busy, "plain", "0.2"], check=True, capture_output=True)
    daemon.ask("dump")
    assert daemon.ask("status")["samples"] == before
    daemon.opctl("start")
    subprocess.run([busy, "plain", "0.2"], check=True, capture_output=True)
    daemon.ask("dump")
    assert daemon.ask("status")["samples"] > before
    assert daemon.stop() == 0


def test_a_killed_worker_loses_nothing(start_daemon, busy):
    """Killing (-9) the worker: it comes back, every window is stored once."""
    daemon = start_daemon("-e", "cpu-clock:999hz", "--interval", "0.2")
    for _ in range(3):
        os.kill(daemon.ask("status")["worker"]["pid"], signal.SIGKILL)
        subprocess.run([busy, "plain", "0.3"], check=True, capture_output=True)
        daemon.ask("dump")
    status = daemon.ask("status")
    assert status["quality"]["windows"]["missing"] == 0
    assert status["quality"]["lost"] == {"ring_full": 0, "window_dropped": 0, "hash_full": 0}
    total = sum(row["samples"] for row in daemon.rows("comm"))
    assert total >= status["samples"]
    assert daemon.stop() == 0


def test_a_stopped_worker_delays_answers_but_loses_nothing(start_daemon, busy):
    """SIGSTOP of the worker: sampling and queries go on, windows wait for it."""
    daemon = start_daemon("-e", "cpu-clock:999hz", "--interval", "0.2")
    worker = daemon.ask("status")["worker"]["pid"]
    os.kill(worker, signal.SIGSTOP)
    try:
        subprocess.run([busy, "plain", "0.5"], check=True, capture_output=True)
        time.sleep(0.5)
        assert daemon.ask("status")["worker"]["waiting"] > 0
    finally:
        os.kill(worker, signal.SIGCONT)
    symbols = {row["symbol"] for row in daemon.rows("symbol")}
    assert "plain_work" in symbols
    assert daemon.ask("status")["quality"]["windows"]["missing"] == 0
    assert daemon.stop() == 0


def test_a_killed_daemon_takes_its_worker_along_and_can_start_again(start_daemon, busy):
    """Killing (-9) the daemon: no orphan, a readable store, the same endpoint works again."""
    daemon = start_daemon("-e", "cpu-clock:999hz")
    worker = psutil.Process(daemon.ask("status")["worker"]["pid"])
    subprocess.run([busy, "plain", "0.3"], check=True, capture_output=True)
    daemon.ask("dump")
    daemon.process.kill()
    daemon.process.wait()
    wait_for(lambda: not worker.is_running())
    daemon.log_path.unlink()
    again = start_daemon("-e", "cpu-clock:999hz", directory=daemon.directory)
    assert "plain_work" in {row["symbol"] for row in again.rows("symbol")}
    assert again.stop() == 0


def test_a_store_deleted_under_it_is_noticed_and_begun_anew(start_daemon, busy):
    """Files removed under a running daemon: it says so, and what comes next can be asked."""
    daemon = start_daemon("-e", "cpu-clock:999hz", "--interval", "0.2")
    daemon.ask("dump")
    for file in daemon.store.iterdir():
        file.unlink()
    subprocess.run([busy, "plain", "0.4"], check=True, capture_output=True)
    wait_for(lambda: "store was removed" in daemon.log())
    subprocess.run([busy, "plain", "0.4"], check=True, capture_output=True)
    assert "plain_work" in {row["symbol"] for row in daemon.rows("symbol")}
    assert daemon.stop() == 0


def test_sigterm_is_heard_while_a_recording_is_read(start_daemon, tmp_path):
    """A replay that takes long ends at once, and cleanly, when asked to."""
    data = PerfData([Attr("cpu-clock", ids=(1,))])
    for i in range(200000):
        data.sample(event=0, pid=7, ip=0x400000 + i, time=1000 + i, chain=[USER, i, i * 7 + 1])
    data.write(tmp_path / "long.data")
    daemon = start_daemon("--replay", str(tmp_path / "long.data"), ready=False)
    wait_for(lambda: "worker.ready" in daemon.log())
    assert daemon.stop() == 0


def test_a_session_dir_that_cannot_be_used_is_a_wrong_setting(tmp_path):
    """A file where the session directory should be exits 78 with its path."""
    (tmp_path / "file").write_text("")
    command = [BIN / "opd", "--session-dir", tmp_path / "file"]
    done = subprocess.run(
        [*command, "--endpoint", f"ipc://{tmp_path}/s"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if done.returncode == 77:
        pytest.skip("perf_event_open is refused here")
    assert done.returncode == 78
    assert str(tmp_path / "file") in done.stderr


def test_an_endpoint_in_use_names_its_holder(start_daemon):
    """A second daemon at the same endpoint ends with 1 and the first one's pid."""
    first = start_daemon()
    command = [str(BIN / "opd"), "--session-dir", str(first.directory / "other")]
    done = subprocess.run(
        [*command, "--endpoint", first.endpoint],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert str(first.process.pid) in done.stderr
    assert first.stop() == 0


def drop_perf_capabilities():
    """Leave the bounding set without what CPU-wide events need; takes effect at exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_SYS_ADMIN, CAP_PERFMON):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping capabilities needs root")
def test_without_permission_it_says_what_to_change(start_daemon):
    """Refused whole CPUs, it looks at its own user's processes and names sysctl and capability."""
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    if paranoid < 1:
        pytest.skip("perf_event_paranoid lets everybody in here")
    daemon = start_daemon(ready=False, preexec_fn=drop_perf_capabilities)
    if paranoid <= 2:
        assert daemon.wait_ready() is None
        assert daemon.ask("status")["scope"] == "own"
        assert daemon.stop() == 0
    else:
        assert daemon.process.wait(30) == 77
    assert "perf_event_paranoid" in daemon.log()
    assert "CAP_PERFMON" in daemon.log()


def test_no_daemon_is_said_at_once(tmp_path):
    """Without a daemon opctl exits 69 and says how to start one."""
    done = subprocess.run(
        [BIN / "opctl", "--endpoint", f"ipc://{tmp_path}/none.sock", "status"],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert done.returncode == 69
    assert "opd" in done.stderr
    assert done.stdout == ""


def test_shutdown_returns_when_the_daemon_is_gone(start_daemon):
    """`opctl shutdown` ends the daemon with status 0."""
    daemon = start_daemon()
    daemon.opctl("shutdown")
    assert daemon.process.wait(30) == 0


def test_the_client_is_light():
    """`opctl status` loads none of the daemon's libraries."""
    heavy = ("structlog", "pluggy", "duckdb", "numpy", "rich", "symbolic", "opd_native")
    code = (
        "import sys\n"
        "sys.argv = ['opctl', '--endpoint', 'ipc:///nonexistent/x.sock', 'status']\n"
        "from opd.cli.opctl import main\n"
        "main()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]"
