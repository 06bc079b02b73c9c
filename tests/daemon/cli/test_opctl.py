"""opctl as people start it: processes, pipes, terminals, exit statuses."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import importlib
import io
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from opd.cli import output
from opd.cli.opctl import COMMANDS, FORMATS, build_parser, join_times, main
from opd.store.database import open_writer

ROOT = Path(__file__).parents[3]
SERVE = ROOT / "tests" / "daemon" / "query" / "backend_for_tests.py"
OPCTL = [sys.executable, "-m", "opd.cli.opctl"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "OPD_ENDPOINT"},
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("daemon", "plugins", "native")),
}


@pytest.fixture
def endpoint(tmp_path):
    """The endpoint of a daemon process."""
    made = f"ipc://{tmp_path}/run/opd.sock"
    command = [sys.executable, str(SERVE), made, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout.readline() == "ready\n"
        yield made
        process.kill()


def opctl(*words, endpoint=None, **settings):
    """Run opctl as a process."""
    environment = {**ENVIRONMENT, **({"OPD_ENDPOINT": endpoint} if endpoint else {})}
    return subprocess.run(
        [*OPCTL, *words], capture_output=True, text=True, env=environment, check=False, **settings
    )


def answer_of(*words, endpoint):
    """The JSON that a successful opctl printed."""
    done = opctl(*words, "--format", "json", endpoint=endpoint)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_status_has_the_contracts_keys(endpoint):
    """The JSON of status has every key of the contract."""
    status = answer_of("status", endpoint=endpoint)
    assert set(status) >= {
        *("pid", "uptime_seconds", "events", "features", "cpu_seconds", "pss_bytes"),
        *("ns_per_sample", "samples", "messages", "quality"),
    }
    assert status["messages"] == {"received": 1, "answered": 1, "dropped": 0}


def test_status_for_people_and_sheets(endpoint):
    """The table names the fallback and the cost; csv has every leaf under its name."""
    text = opctl("status", endpoint=endpoint).stdout
    assert "cycles at 99 Hz (runs as cpu-clock)" in text
    assert "31.0 MiB (PSS)" in text
    assert "lost 3 (ring_full 3)" in text
    sheet = dict(csv.reader(io.StringIO(opctl("status", "--format=csv", endpoint=endpoint).stdout)))
    assert sheet["quality.lost.ring_full"] == "3"


def test_report_json_is_the_contracts(endpoint):
    """Exactly the keys of the contract, rows with the sort keys, percent by weight."""
    report = answer_of(
        "report", "--sort", "comm,symbol", "--top", "2", "-e", "x", endpoint=endpoint
    )
    assert list(report) == ["event", "total", "weight_total", "rows", "quality"]
    assert report["event"] == "x"
    assert [list(row) for row in report["rows"]] == [
        ["samples", "weight", "percent", "cores", "comm", "symbol"]
    ] * 2
    assert report["rows"][0]["percent"] == pytest.approx(90.222, abs=0.001)


def test_report_rows_are_lines(endpoint):
    """One line a row, samples and percent first, nothing cut, no control characters."""
    done = opctl("report", "--sort", "comm,image,symbol", "--top", "0", endpoint=endpoint)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert lines[0].split() == ["samples", "percent", "cores", "comm", "image", "symbol"]
    assert lines[1].split() == [
        *("812", "90.22", "1.50", "python3", "/usr/bin/python3.11", "_PyEval_EvalFrameDefault"),
    ]
    assert "x" * 150 in lines[3]
    assert "evil\\x0a\\x1b[31mname" in lines[4]
    assert len(lines) == 5
    assert "lost 3" in done.stdout


def test_report_csv(endpoint):
    """A header and the rows, readable by any csv reader."""
    text = opctl("report", "--sort=symbol", "--format=csv", endpoint=endpoint).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["samples", "weight", "percent", "cores", "symbol"]
    assert rows[0]["samples"] == "812"


def test_a_terminal_gets_lines_of_its_width(endpoint):
    """On a terminal, and only there, a row is cut to the width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    environment = {**ENVIRONMENT, "OPD_ENDPOINT": endpoint}
    done = subprocess.run([*OPCTL, "report"], stdout=slave, env=environment, check=False)
    os.close(slave)
    text = b""
    try:
        while piece := os.read(master, 65536):
            text += piece
    except OSError:  # how a terminal ends
        pass
    os.close(master)
    assert done.returncode == 0
    assert max(map(len, text.decode().splitlines())) == 60


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "json", "--since", "-10m", "report"),
        ("report", "--format", "json", "--since", "-10m"),
        ("--format=json", "report", "--since=-10m"),
        ("--since", "10m ago", "report", "--format", "json"),
        ("--since", "10m", "--format", "table", "report", "--format", "json"),
    ],
)
def test_globals_stand_on_either_side(endpoint, words):
    """A global before the subcommand is not overwritten; the later one of two counts."""
    for where in (("--endpoint", endpoint, *words), (*words, "--endpoint", endpoint)):
        assert json.loads(opctl(*where).stdout)["total"] == 900


def test_times_reach_the_daemon_as_typed():
    """--since -10m survives the parser on both sides."""
    parser, _ = build_parser([])
    for words in (["--since", "-10m", "report"], ["report", "--since", "-10m"]):
        assert parser.parse_args(join_times(words)).since == "-10m"
    assert join_times(["--since", "--until"]) == ["--since", "--until"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["repotr"], "did you mean report"),
        (["segments"], "valid: status"),
        ([], "SUBCOMMAND"),
        (["report", "--srot", "comm"], "did you mean --sort"),
        (["--formta", "json", "report"], "did you mean --format"),
        (["report", "--interval", "2"], "no option '--interval'"),
        (["report", "--format", "jsn"], "did you mean json"),
        (["report", "--top", "many"], "--top"),
        (["report", "--top", "-1"], "--top"),
        (["report", "--top", "99999999999999999999"], "--top"),
        (["--session-dir", "/tmp", "report", "--top=2147483648"], "--top"),
        (["report", "--sort", ",".join(["comm"] * 5000)], "at most 64"),
        (["--endpoint", b"ipc:///tmp/\xff", "status"], "UTF-8"),
        (["top", "--interval", "0"], "--interval"),
        (["top", "--since", "10m"], "opctl report"),
        (["report", "extra"], "'extra'"),
        (["import"], "FILE"),
        (["--session-dir", "/tmp", "status"], "needs a daemon"),
        (["--endpoint", "tcp://127.0.0.1:1", "status"], "CURVE"),
    ],
)
def test_usage_is_status_2_with_a_word(words, said):
    """What is wrong on the command line is named, with what would be right."""
    done = opctl(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_unknown_names_asked_of_the_daemon_are_status_2(endpoint):
    """A sort key that the daemon does not know: 2, with the valid ones."""
    done = opctl("report", "--sort", "smybol", endpoint=endpoint)
    assert (done.returncode, done.stdout) == (2, "")
    assert "valid: comm, image, symbol, mode" in done.stderr


def test_no_daemon_is_status_69(tmp_path):
    """69, with how to start one."""
    done = opctl("status", "--endpoint", f"ipc://{tmp_path}/none.sock")
    assert done.returncode == 69
    assert f"opd --endpoint ipc://{tmp_path}/none.sock" in done.stderr


def test_a_hung_daemon_is_status_1_with_its_pid(endpoint):
    """A stopped daemon is given 5 s, then named."""
    pid = answer_of("status", endpoint=endpoint)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = opctl("status", endpoint=endpoint)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert f"pid {pid}" in done.stderr


def main_as_nobody(*words):
    """Run main as uid 65534 in a forked child: its exit status and what it said on stderr.

    A fork, because that user may not be able to execute this Python.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.dup2(write, 2)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            status = main(words)
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


@pytest.mark.privileged
def test_no_permission_is_status_77(endpoint, tmp_path):
    """Who may not connect, and who may but not change anything, gets 77 and the reason."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    # That user may not be able to read the sources either.
    for name in ("cli.commands.stop", "query.client", "service.paths"):
        importlib.import_module(f"opd.{name}")
    build_parser([])
    for path in (*tmp_path.parents, tmp_path, tmp_path / "run"):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    status, said = main_as_nobody("stop", "--endpoint", endpoint)
    assert (status, "join the group" in said) == (77, True)
    (tmp_path / "run" / "opd.sock").chmod(0o666)
    status, said = main_as_nobody("stop", "--endpoint", endpoint)
    assert (status, "uid 65534" in said) == (77, True)


def test_start_stop_dump_events_doctor(endpoint):
    """The small subcommands answer in words and in JSON."""
    assert opctl("stop", endpoint=endpoint).stdout == "stopped sampling\n"
    assert answer_of("start", endpoint=endpoint) == {"sampling": True}
    assert answer_of("dump", endpoint=endpoint) == {"dumped": True}
    assert "cpu-clock" in opctl("events", endpoint=endpoint).stdout
    assert answer_of("events", endpoint=endpoint)["events"][0]["hz"] == 99
    assert "remedy: use cpu-clock" in opctl("doctor", endpoint=endpoint).stdout
    assert answer_of("doctor", endpoint=endpoint)["findings"][1]["ok"] is True


def test_doctor_works_without_a_daemon(tmp_path):
    """Where no daemon runs, opctl looks itself."""
    done = opctl("doctor", "--format", "json", "--endpoint", f"ipc://{tmp_path}/none.sock")
    assert done.returncode == 0
    assert "without" in json.loads(done.stdout)["seen_by"]


def test_top_shows_views_and_ends(endpoint):
    """--count ends it; JSON is one document a line."""
    words = ("top", "--interval", "0.05", "--count", "3", "--sort", "symbol")
    lines = opctl(*words, "--format", "json", endpoint=endpoint).stdout.splitlines()
    assert [json.loads(line)["total"] for line in lines] == [900] * 3
    assert opctl(*words, endpoint=endpoint).stdout.count("samples  percent") == 3


def test_ctrl_c_ends_top_well(endpoint):
    """SIGINT during top is status 0 without a traceback."""
    command = [*OPCTL, "top", "--interval", "0.2", "--endpoint", endpoint]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert (process.returncode, said) == (0, "")


def test_the_live_view_draws_on_a_terminal(endpoint):
    """On a terminal top draws a view with the rows."""
    master, slave = pty.openpty()
    environment = {**ENVIRONMENT, "OPD_ENDPOINT": endpoint, "TERM": "xterm", "COLUMNS": "100"}
    command = [*OPCTL, "top", "--interval", "0.05", "--count", "2"]
    done = subprocess.run(command, stdout=slave, env=environment, check=False)
    os.close(slave)
    text = os.read(master, 65536)
    os.close(master)
    assert done.returncode == 0
    assert b"_PyEval_EvalFrame" in text
    assert b"\x1b[31m" not in text


def test_import_streams_to_the_daemon(endpoint, tmp_path):
    """The daemon gets every byte of the file; it never sees the path."""
    path = tmp_path / "perf.data"
    path.write_bytes(os.urandom(3_000_000))
    result = answer_of("import", str(path), "--name", "night", endpoint=endpoint)
    assert result == {"session": "night", "samples": 3_000_000, "complete": True}


def test_import_of_a_file_that_is_not_there(endpoint):
    """Status 1 and the name of the file."""
    done = opctl("import", "/nonexistent/perf.data", endpoint=endpoint)
    assert done.returncode == 1
    assert "/nonexistent/perf.data: No such file" in done.stderr


def test_import_takes_only_a_regular_file(endpoint, tmp_path):
    """A FIFO, a socket and a device are named, with 2; a directory with 1, as perf makes such."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "sock"))
    for name, kind, status in (
        (tmp_path / "fifo", "a FIFO", 2),
        (tmp_path / "sock", "a socket", 2),
        ("/dev/zero", "a character device", 2),
        (tmp_path, "a directory", 1),
    ):
        for where in ({"endpoint": endpoint}, {}):
            store = [] if where else ["--session-dir", str(tmp_path / "store")]
            done = opctl(*store, "import", str(name), **where)
            assert (done.returncode, done.stdout) == (status, "")
            assert f"this is {kind}" in done.stderr


def test_import_of_a_file_that_cannot_be_read(endpoint, tmp_path):
    """A regular file whose reading fails is status 1 with its name, not a traceback."""
    for where in ({"endpoint": endpoint}, {}):
        store = [] if where else ["--session-dir", str(tmp_path / "store")]
        done = opctl(*store, "import", "/proc/self/mem", **where)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "mem: " in done.stderr


@pytest.mark.parametrize(
    "words", [("--since", "99999999999d"), ("--until", "9999-12-31T23:59:59Z")]
)
def test_a_time_centuries_away_is_status_2(tmp_path, words):
    """A time that the store's numbers cannot hold is told in a line."""
    open_writer(tmp_path).close()
    done = opctl("--session-dir", str(tmp_path), "report", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "too far away" in done.stderr


@pytest.mark.parametrize("words", [("report",), ("events",), ("import", __file__)])
def test_a_store_with_an_impossible_name_is_status_1(words):
    """A directory's name that is too long is told in a line."""
    done = opctl("--session-dir", "/tmp/" + "x" * 300, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "File name too long" in done.stderr or "perf.data" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(("report", "--format", form) for form in FORMATS),
        *(("top", "--count", "1", "--format", form) for form in FORMATS),
        ("status",),
        ("doctor", "--local"),
        ("--help",),
        ("--version",),
    ],
)
@pytest.mark.parametrize(
    ("where", "said"), [(">/dev/full", "No space left"), (">&-", "output is closed")]
)
def test_output_that_nobody_takes_is_status_1(endpoint, words, where, said):
    """A full or closed standard output is one line on stderr."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", *OPCTL, *words],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "OPD_ENDPOINT": endpoint},
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr


def test_a_closed_stderr_does_not_change_the_status():
    """A usage error that cannot be told is one all the same."""
    for where in ("2>&-", "2>/dev/full"):
        command = ["sh", "-c", f'exec "$@" {where}', "sh", *OPCTL, "--nope"]
        done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False)
        assert (done.returncode, done.stdout) == (2, b"")


def on_a_terminal(*words, endpoint):
    """What opctl draws on a terminal."""
    master, slave = pty.openpty()
    environment = {**ENVIRONMENT, "OPD_ENDPOINT": endpoint}
    subprocess.run([*OPCTL, *words], stdout=slave, env=environment, check=True)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while piece := os.read(master, 65536):
            text += piece
    os.close(master)
    return text.decode()


def test_names_cannot_draw_on_a_terminal(endpoint):
    """In no format does a control or a turning character reach a terminal; csv to a file is raw."""
    for form in FORMATS:
        shown = on_a_terminal("report", "--sort", "comm", "--format", form, endpoint=endpoint)
        assert "evil" in shown
        assert all(letter.isprintable() or letter in "\r\n" for letter in shown)
    raw = opctl("report", "--sort", "comm", "--format", "csv", endpoint=endpoint).stdout
    assert "evil\n\x1b[31mname" in raw


def test_csv_survives_a_poor_encoding(monkeypatch):
    """What the output's encoding lacks is spelled out in csv too."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    output.print_csv(["name"], [{"name": "gr\u00fcn"}])
    sys.stdout.flush()
    assert sys.stdout.buffer.getvalue() == b"name\ngr\\xfcn\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gr\u00fcn \u4e2d", "gr\u00fcn \u4e2d"),
        ("a\n\x1b\x9b", "a\\x0a\\x1b\\x9b"),
        ("\u202e\u2066\u2028\ufeff", "\\u202e\\u2066\\u2028\\ufeff"),
        ("\udcff\U000e0041", "\\udcff\\U000e0041"),
    ],
)
def test_what_is_not_printable_is_spelled_out(text, shown):
    """Every character that str.isprintable refuses, and no other."""
    assert output.clean(text) == shown


def test_shutdown_returns_when_the_daemon_is_gone(endpoint):
    """After shutdown nobody is there."""
    assert opctl("shutdown", endpoint=endpoint).returncode == 0
    assert opctl("status", endpoint=endpoint).returncode == 69


def test_a_closed_pipe_is_quiet(endpoint):
    """A reader that has seen enough is no error."""
    words = [*OPCTL, "report", "--top", "0", "--endpoint", endpoint]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        words, stdout=write, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_has_an_example(name, capsys):
    """Every --help exits 0 and shows how the subcommand is used."""
    assert main([*([name] if name else []), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "example:\n  opctl" in shown
    assert "--endpoint URL" in shown


def test_status_imports_nothing_heavy(endpoint):
    """The way to opctl status loads none of the daemon's libraries."""
    code = (
        "import sys; from opd.cli.opctl import main; main(['status']);"
        "print(sorted({'structlog','pluggy','duckdb','numpy','rich','symbolic','msgspec','asyncio',"
        "'psutil','sqlite3','zmq','pathlib'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**ENVIRONMENT, "OPD_ENDPOINT": endpoint}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stderr == "[]\n"
