"""A real daemon beside DESIGN sections 6 and 7: shapes, ranges, globals, wire, who may what."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import socket as sockets
import stat
import subprocess
import time
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq

from places import BIN

NOBODY = 65534
QUALITY = {
    "hz_asked": (int, type(None)),
    "hz_effective": (int, float, type(None)),
    "source": str,
    "lost": {"ring_full": int, "window_dropped": int, "hash_full": int},
    "degraded": dict.fromkeys(
        ("no_mapping", "stack_truncated", "unwind_failed", "inexact_ip", "unnamed"), int
    ),
    "throttled_seconds": (int, float),
    "governed_seconds": (int, float),
    "idle": int,
    "windows": {"have": int, "missing": int},
    "frames": {"named": int, "ranges": int, "unknown": int},
    "labels": {"exact": int, "read": int, "inherited": int, "unknown": int},
}
STATUS = {
    "pid": int,
    "uptime_seconds": (int, float),
    "events": list,
    "features": dict,
    "cpu_seconds": (int, float),
    "pss_bytes": int,
    "ns_per_sample": (int, float),
    "samples": int,
    "messages": {"received": int, "answered": int, "dropped": int},
    "quality": QUALITY,
}


def assert_shaped(value, shape, where="answer"):
    """The value has every key of the shape, of the right type; counts are no booleans."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        for key, inner in shape.items():
            assert key in value, f"{where}.{key}"
            assert_shaped(value[key], inner, f"{where}.{key}")
    else:
        assert isinstance(value, shape), (where, value)
        assert not isinstance(value, bool), where
        assert not isinstance(value, int | float) or value >= 0, where


@pytest.fixture(scope="module")
def daemon(start_daemon, busy):
    """A daemon with three events, the last never seen, that stores what it is asked to."""
    events = [*("-e", "cpu-clock:499hz", "-e", "page-faults"), *("-e", "task-clock:999999999999")]
    daemon = start_daemon(*events, "--interval", "3600")
    for mode in ("plain", "anonymous"):
        subprocess.run([busy, mode, "0.2"], check=True, capture_output=True)
    daemon.ask("dump")
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def connect(daemon):
    """Give a function that opens a socket to the daemon; all are closed afterwards."""
    context, opened_ones = zmq.Context(), []

    def opened(kind, address=daemon.endpoint):
        made = context.socket(kind)
        opened_ones.append(made)
        made.linger, made.rcvtimeo = 0, 20_000
        if kind == zmq.SUB:
            made.subscribe(b"")
        made.connect(address)
        return made

    yield opened
    for made in opened_ones:
        made.close()
    context.term()


def body_of(method, **params):
    """The bytes of a request."""
    return msgpack.packb({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})


def test_status_is_complete(daemon):
    """Every key of the contract, of the right type; its process is the daemon; counts add up."""
    status = daemon.ask("status")
    assert_shaped(status, STATUS)
    assert status["pid"] == daemon.process.pid
    assert [event["name"] for event in status["events"]] == [
        *("cpu-clock", "page-faults", "task-clock")
    ]
    assert 0 < status["uptime_seconds"] < 600
    everything = [psutil.Process(status["pid"])]
    everything += everything[0].children(recursive=True)
    whole = sum(process.memory_full_info().pss for process in everything)
    assert whole / 2 < status["pss_bytes"] < whole * 2
    counts = daemon.ask("status")["messages"]
    assert counts["received"] == counts["answered"] + counts["dropped"]


@pytest.mark.parametrize("words", [["report"], ["top", "--count", "1"], ["status"]])
def test_every_answer_about_samples_has_its_quality(daemon, words):
    """Quality is whole and of the right types; a fixed period has no frequency."""
    quality = daemon.ask(*words)["quality"]
    assert_shaped(quality, QUALITY)
    assert set(quality) == set(QUALITY)
    assert (quality["hz_asked"], quality["source"]) == (499, "cpu-clock")
    assert 0 < quality["hz_effective"] <= 499
    if words[0] != "status":
        faults = daemon.ask(*words, "-e", "page-faults")["quality"]
        assert (faults["hz_asked"], faults["hz_effective"]) == (None, None)


@pytest.mark.parametrize("event", ["cpu-clock", "page-faults"])
def test_a_report_adds_up(daemon, event):
    """`--top 0` has all rows: samples, weights and percents sum to the whole, heaviest first."""
    words = ("report", "--sort", "comm,pid,image,symbol,mode", "--until", "now", "-e", event)
    answer = daemon.ask(*words, "--top", "0")
    rows = answer["rows"]
    assert answer["event"] == event
    assert answer["total"] == sum(row["samples"] for row in rows) > 0
    assert answer["weight_total"] == sum(row["weight"] for row in rows)
    assert sum(row["percent"] for row in rows) == pytest.approx(100, abs=1e-6)
    for row in rows:
        assert row["percent"] == pytest.approx(100 * row["weight"] / answer["weight_total"])
        assert isinstance(row["image"], str)
        assert isinstance(row["symbol"], str)
        assert row["symbol"]
        assert row["mode"] in ("user", "kernel")
        assert (row["comm"] == "swapper") == (row["pid"] == 0)
    assert [row["weight"] for row in rows] == sorted((row["weight"] for row in rows), reverse=True)
    few = daemon.ask(*words, "--top", "3")
    assert len(few["rows"]) == 3
    assert few["total"] >= answer["total"]


def test_the_default_event_is_the_first_one_asked_for(daemon):
    """Without -e it is what the command line named first."""
    assert daemon.ask("report")["event"] == "cpu-clock"


def test_the_same_question_twice_gives_the_same_bytes(daemon):
    """A range of the past that is over answers byte for byte."""
    until = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 1))
    daemon.ask("dump")
    words = ("--format", "json", "report", "--until", until, "--since", "2020-01-01", "--top", "0")
    first = daemon.opctl(*words).stdout
    assert first == daemon.opctl(*words).stdout
    assert first.count("\n") == 1


def test_csv_is_the_report(daemon):
    """The csv of a question has the rows of its JSON."""
    until = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 1))
    words = ("report", "--until", until, "--sort", "image,symbol", "--top", "0")
    rows = list(csv.DictReader(io.StringIO(daemon.opctl(*words, "--format", "csv").stdout)))
    mine = daemon.ask(*words)["rows"]
    assert list(rows[0]) == ["samples", "weight", "percent", "cores", "image", "symbol"]
    assert [(int(row["samples"]), row["symbol"]) for row in rows] == [
        (row["samples"], row["symbol"]) for row in mine
    ]


SUBCOMMANDS = {
    "status": (["status"], "pid"),
    "events": (["events"], "events"),
    "report": (["report"], "rows"),
    "top": (["top", "--count", "1", "--interval", "0.1"], "rows"),
    "dump": (["dump"], "dumped"),
    "doctor": (["doctor"], "findings"),
    "start": (["start"], "sampling"),
}


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_globals_stand_on_either_side_of_every_subcommand(daemon, name):
    """`--endpoint` and `--format` before it, and after it, where they win over those before."""
    words, key = SUBCOMMANDS[name]
    where, form = ["--endpoint", daemon.endpoint], ["--format", "json"]
    elsewhere = ["--endpoint", "ipc:///nonexistent/opd.sock"]
    for line in (
        [*where, *form, *words],
        [*elsewhere, "--format", "csv", *words, *where, *form],
    ):
        done = subprocess.run(
            [BIN / "opctl", *line], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert key in json.loads(done.stdout)


@pytest.mark.parametrize("since", ["10m", "10m ago", "-10m", "=-10m", "2020-01-01T00:00"])
def test_every_spelling_of_a_time(daemon, since):
    """All of them, on both sides, find what was sampled just now."""
    given = [f"--since{since}"] if since.startswith("=") else ["--since", since]
    for line in ([*given, "report"], ["report", *given]):
        assert daemon.ask(*line)["total"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--sort", "com"], "comm"),
        (["report", "-e", "page-fault"], "page-faults"),
        (["report", "--session", "yesterday"], "live"),
        (["report", "--since", "soon"], "03:12"),
        (["report", "--since", "1m", "--until", "10m"], "--until"),
        (["report", "--sort", "thread"], "not separated"),
        (["flame"], "valid:"),
        (["annotate"], "valid:"),
    ],
)
def test_unknown_names_are_2_with_the_valid_ones(daemon, words, said):
    """What is asked of opctl and does not exist: status 2, nothing on stdout, what there is."""
    done = daemon.opctl(*words, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_environment_says_where_the_daemon_is(daemon, tmp_path):
    """OPD_ENDPOINT is taken by opctl, and an option wins over it."""
    environment = {**os.environ, "OPD_ENDPOINT": daemon.endpoint}
    command = [BIN / "opctl", "status", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout)["pid"] == daemon.process.pid
    command += ["--endpoint", f"ipc://{tmp_path}/none.sock"]
    assert (
        subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 69
    )


def test_no_daemon_is_said_at_once(tmp_path):
    """A file that nobody listens at, or none, is status 69 without any wait for an answer."""
    stale = tmp_path / "stale.sock"
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(str(stale))
    for path in (stale, tmp_path / "none.sock"):
        command = [BIN / "opctl", "--endpoint", f"ipc://{path}", "status"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (69, "")
        assert time.monotonic() - began < 3


def test_req_and_dealer_are_answered_in_kind(connect):
    """A REQ gets its delimiter back, a bare DEALER a bare body, one with delimiter both frames."""
    req, dealer, framed = connect(zmq.REQ), connect(zmq.DEALER), connect(zmq.DEALER)
    req.send(body_of("hello"))
    dealer.send(body_of("hello"))
    framed.send_multipart([b"", body_of("hello")])
    answers = [req.recv_multipart(), dealer.recv_multipart(), framed.recv_multipart()]
    assert [len(frames) for frames in answers] == [1, 1, 2]
    assert answers[2][0] == b""
    for frames in answers:
        answer = msgpack.unpackb(frames[-1])
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
        assert "result" in answer


def test_hello_gives_versions_pub_and_capabilities(daemon, connect):
    """Versions, the PUB address beside the endpoint, and what this peer can do."""
    socket = connect(zmq.REQ)
    socket.send(body_of("hello"))
    hello = msgpack.unpackb(socket.recv())["result"]
    assert set(hello["versions"]) >= {"opd", "protocol"}
    assert hello["pub"] == f"{daemon.endpoint}.pub"
    assert hello["capabilities"]["may_change"] is True
    assert {"report", "status", "dump"} <= set(hello["capabilities"]["methods"])


def test_tables_travel_as_little_endian_columns(connect):
    """Each column has its name, a type of the four, n cells, and a dict for texts only."""
    socket = connect(zmq.REQ)
    socket.send(body_of("report", sort=["comm", "pid"], top=5))
    table = msgpack.unpackb(socket.recv())["result"]["rows"]
    assert table["n"] == 5
    types = {column["name"]: column["type"] for column in table["columns"]}
    assert types == {
        "samples": "u64",
        "weight": "u64",
        "percent": "f64",
        "cores": "f64",
        "comm": "str",
        "pid": "i64",
    }
    for column in table["columns"]:
        assert len(column["data"]) == 5 * (4 if column["type"] == "str" else 8)
        assert ("dict" in column) == (column["type"] == "str")


def test_windows_are_published(connect, daemon):
    """A subscriber hears `window` with a msgpack map for each one that is stored."""
    subscriber = connect(zmq.SUB, f"{daemon.endpoint}.pub")
    for _ in range(20):  # the first may pass before the subscription is known
        daemon.opctl("dump")
        if subscriber.poll(100):
            break
    topic, payload = subscriber.recv_multipart()
    assert topic == b"window"
    assert isinstance(msgpack.unpackb(payload), dict)


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"\x80", b"junk", msgpack.packb([1]), b"\xdc\xff"])
def test_garbage_is_answered_and_stops_nothing(connect, junk):
    """An error with a code comes back, and the next question is answered."""
    socket = connect(zmq.DEALER)
    socket.send_multipart([b"", junk])
    answer = msgpack.unpackb(socket.recv_multipart()[-1])
    assert answer["id"] is None
    assert set(answer["error"]) >= {"code", "message"}
    socket.send(body_of("hello"))
    assert "result" in msgpack.unpackb(socket.recv())


def test_the_files_have_the_contracts_modes(daemon, start_daemon):
    """A directory that opd makes is 0750, its sockets 0660; one that was there stays as it is."""
    folder = daemon.directory
    for name in ("opd.sock", "opd.sock.pub"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o660
    assert stat.S_IMODE(daemon.store.stat().st_mode) == 0o750
    before = folder.stat()
    second = start_daemon(
        *("--endpoint", f"ipc://{folder}/made/deeper/opd.sock"),
        *("--session-dir", str(folder / "second" / "store")),
        *("-e", "task-clock"),
    )
    assert stat.S_IMODE((folder / "made" / "deeper").stat().st_mode) == 0o750
    assert stat.S_IMODE((folder / "made" / "deeper" / "opd.sock").stat().st_mode) == 0o660
    assert (folder / "second" / "store").is_dir()
    assert (folder.stat().st_mode, folder.stat().st_uid) == (before.st_mode, before.st_uid)
    assert second.stop() == 0
    assert not (folder / "made" / "deeper" / "opd.sock").exists()


def answers_to_nobody(endpoint, methods):
    """Ask as another uid, in a forked child; each answer's error data code, or "" for a result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            context = zmq.Context()
            socket = context.socket(zmq.REQ)
            socket.linger, socket.rcvtimeo = 0, 10_000
            socket.connect(endpoint)
            said = []
            for method in methods:
                socket.send(body_of(method))
                answer = msgpack.unpackb(socket.recv())
                said.append(answer["error"]["data"]["code"] if "error" in answer else "")
            os.write(write, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return json.loads(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_uid_may_read_and_not_change(daemon):
    """Who can connect may ask; start, stop and shutdown are refused to all but root and owner."""
    socket = Path(daemon.endpoint.removeprefix("ipc://"))
    modes = {path: path.stat().st_mode for path in (socket, daemon.directory)}
    socket.chmod(0o666)
    daemon.directory.chmod(0o755)
    try:
        reading = ["hello", "status", "report", "events"]
        changing = ["start", "stop", "shutdown"]
        said = answers_to_nobody(daemon.endpoint, [*reading, *changing])
    finally:
        for path, mode in modes.items():
            path.chmod(stat.S_IMODE(mode))
    assert said == [""] * len(reading) + ["permission"] * len(changing)
    assert daemon.ask("status")["sampling"] is True


def test_dump_makes_what_was_sampled_visible(daemon, busy, tmp_path):
    """With windows of an hour, a dump is enough for the next query to see it, by name."""
    program = shutil.copy(busy, tmp_path / "dumped")  # others may run the same program now
    assert str(program) not in {row["image"] for row in daemon.rows("image")}
    subprocess.run([program, "fork", "0.2"], check=True, capture_output=True)
    rows = daemon.rows("image", "symbol")
    named = {row["symbol"]: row["samples"] for row in rows if row["image"] == str(program)}
    assert named["child_work"] > 50


def test_an_event_without_hits_is_total_0(daemon):
    """A live event that never came: exit 0, total 0, no rows."""
    answer = daemon.ask("report", "-e", "task-clock")
    assert (answer["event"], answer["total"], answer["rows"]) == ("task-clock", 0, [])


@pytest.mark.parametrize(
    "words",
    [
        ["--endpoint", "tcp://127.0.0.1:5555"],
        ["-e", "cpu-clok"],
        ["--replay", "/nonexistent/perf.data"],
        ["--intervall", "3"],
    ],
)
def test_what_is_wrong_with_opd_is_78(tmp_path, words):
    """Command line, events, files: 78 with the token on stderr and nothing on stdout."""
    command = [BIN / "opd", "--session-dir", str(tmp_path / "s")]
    if "--endpoint" not in words:
        command += ["--endpoint", f"ipc://{tmp_path}/opd.sock"]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (78, "")
    assert words[-1].split(":")[0] in done.stderr or words[0] in done.stderr
    assert "Traceback" not in done.stderr
