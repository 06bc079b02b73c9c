"""The daemon's front: its options, its refusals, and what it hands to the daemon."""

import json
import os
import subprocess
import sys
import types

import pytest

from opd import __version__
from opd.cli.opd import main
from opd.errors import PermissionDeniedError


def opd(*arguments, **environ):
    """Run the program; returns the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "opd.cli.opd", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def refused(capsys, *arguments):
    """Standard error of a command line that must end with 78 and print nothing."""
    assert main(arguments) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("opd: error: ")
    return captured.err


@pytest.fixture
def empty(tmp_path):
    """A setting file that sets nothing."""
    file = tmp_path / "opd.toml"
    file.write_text("")
    return str(file)


def test_version():
    """One line on stdout."""
    done = opd("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"opd {__version__}\n", "")


def test_help_names_every_option_with_an_example():
    """All options of this version, and an example that can be copied."""
    done = opd("--help")
    assert done.returncode == 0
    for option in (
        "--config",
        "--session-dir",
        "--endpoint",
        "--event",
        "-e",
        "--separate",
        "--callgraph",
        "--interval",
        "--cpus",
        "--replay",
        "--strict",
        "--check-config",
        "--check-events",
        "--list-events",
        "--cpu-type",
        "--format",
        "--log-format",
        "--verbose",
        "--version",
    ):
        assert option in done.stdout
    assert "examples:" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--chek-config"], ["unknown option '--chek-config'", "--check-config"]),
        (["--evnt=cycles"], ["unknown option '--evnt'", "--event"]),
        (["--check"], ["unknown option '--check'"]),
        (["-z"], ["unknown option '-z'"]),
        (["--ext-featur", "x"], ["unknown option '--ext-featur'", "unexpected argument 'x'"]),
        (["--ext-feature", "nul"], ["no feature 'nul'", "did you mean null", "skeleton"]),
        (["-x", "null:recrods=3"], ["'null:recrods=3'", "no option 'recrods'", "records"]),
        (["-x", "null:records=many"], ["records: expected a whole number", "got 'many'"]),
        (["-x", "null:records"], ["expected KEY=VALUE, got 'records'"]),
        (["-x", "null:records=1,records=2"], ["records is given twice"]),
        (["-x", "skeleton:stat=x"], ["expected an absolute path, got 'x'"]),
        (["cycles"], ["unexpected argument 'cycles'"]),
        (["--interval"], ["--interval", "expected one argument"]),
        (["--strict=yes"], ["--strict"]),
        (["--list-events", "--format", "jsn"], ["--format", "'jsn'", "json"]),
        (["--interval", "abc"], ["--interval", "between 0.1 and 3600", '"abc"']),
        (["--interval", "-5"], ["--interval", '"-5"']),
        (["--interval", "nan"], ["--interval", '"nan"']),
        (["--callgraph", "dwarf"], ["--callgraph: expected fp or off", '"dwarf"']),
        (["--separate", "thred"], ["--separate", "did you mean thread"]),
        (["--separate", ""], ["--separate", "got nothing"]),
        (["--log-format", "xml"], ["--log-format", "auto, console or json"]),
        (["--endpoint", "tcp://127.0.0.1:9"], ["--endpoint", "CURVE"]),
        (["--endpoint", "opd.sock"], ["--endpoint", "ipc:///PATH"]),
        (["--endpoint", "ipc:///tmp/\udcff"], ["--endpoint", "not UTF-8"]),
        (["--check-config", "--endpoint", "ipc:///tmp/\udcff"], ["--endpoint", "not UTF-8"]),
        (["--session-dir", ""], ["--session-dir", "got nothing"]),
        (["--cpus", "x"], ["--cpus", "0-3,8", "'x'"]),
        (["--cpus", "60000"], ["--cpus", "60000", "online"]),
        (["--event", "cylces"], ["--event: unknown event 'cylces'", "cycles"]),
        (["-e", "cycles:1hz:1"], ["unit mask '1'"]),
        (["-e", ""], ["--event"]),
        (["-e", "cs", "-e", "cs"], ["asked for twice"]),
        (["--config", "/no/such/file"], ["/no/such/file", "No such file"]),
        (["--replay", "/no/such/file"], ["--replay", "/no/such/file", "No such file"]),
        (["--replay", "/"], ["--replay", "expected a perf.data file"]),
        (["--replay", ""], ["--replay", "got nothing"]),
        (["--replay", "a\0b"], ["--replay"]),
    ],
)
def test_every_mistake_is_78_with_the_token(capsys, arguments, parts):
    """The message names what was typed and what would be right."""
    error = refused(capsys, *arguments)
    for part in parts:
        assert part in error


def test_all_mistakes_are_told_together(capsys, tmp_path):
    """Flags, events, CPUs, file and settings in one go."""
    file = tmp_path / "opd.toml"
    file.write_text("[daemon]\nintervall = 3\n")
    error = refused(
        capsys,
        "--config",
        str(file),
        "--callgraph",
        "lbr",
        "-e",
        "nope",
        "--cpus",
        "9-1",
        "--replay",
        "/no/such/file",
    )
    for part in ("daemon.intervall", "--callgraph", "'nope'", "9-1", "/no/such"):
        assert part in error
    assert error.count("opd: error: ") == 5


def test_an_event_of_a_file_is_told_with_file_and_key(capsys, tmp_path):
    """Not only what is wrong, also where it stands."""
    file = tmp_path / "opd.toml"
    file.write_text('[sampling]\nevents = ["cylces"]\ncpus = "60000"\n')
    error = refused(capsys, "--config", str(file), "--check-config")
    assert f"{file}: sampling.events: unknown event 'cylces'" in error
    assert f"{file}: sampling.cpus: " in error


def test_a_file_name_cannot_command_the_terminal(capsys):
    """Control characters are shown, not sent."""
    error = refused(capsys, "--config", "/no\x1b[31mred")
    assert "\x1b" not in error


def test_check_config_prints_nothing(empty):
    """Right settings: silence and 0, as a real process."""
    done = opd(
        "--config",
        empty,
        "--check-config",
        "-e",
        "cpu-clock:999hz",
        "--cpus",
        "0",
        "--separate",
        "thread,cpu",
        "--strict",
        "--verbose",
        "--interval",
        "1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_config_reads_the_environment(empty):
    """A wrong OPD_ENDPOINT is a mistake like any other."""
    done = opd("--config", empty, "--check-config", OPD_ENDPOINT="tcp://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (78, "")
    assert "OPD_ENDPOINT" in done.stderr


def test_a_wrong_flag_is_78_as_a_process():
    """The interpreter's own exit status agrees with main's."""
    done = opd("--nope")
    assert (done.returncode, done.stdout) == (78, "")
    assert "Traceback" not in done.stderr


def test_list_events_as_json():
    """Every event with its default and whether it is here."""
    done = opd("--list-events", "--format", "json")
    events = {event["name"]: event for event in json.loads(done.stdout)["events"]}
    assert done.returncode == 0
    assert events["cpu-clock"]["available"] is True
    assert events["page-faults"]["default"] == "1"
    assert events["cycles"]["kind"] == "hardware"


def test_list_events_as_a_table():
    """One line an event below the titles."""
    done = opd("--list-events")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["EVENT", "KIND", "UNIT", "DEFAULT", "HERE"]
    assert any(line.startswith("cpu-clock ") for line in lines)


def test_a_reader_that_has_seen_enough():
    """A closed pipe is no error."""
    done = subprocess.run(
        ["sh", "-c", '"$0" -m opd.cli.opd --list-events | head -n 1 >/dev/null', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words", ["--list-events", "--list-events --format json", "--help", "--version"]
)
@pytest.mark.parametrize(
    ("where", "said"), [(">/dev/full", "No space left"), (">&-", "output is closed")]
)
def test_output_that_nobody_takes_is_status_1(words, where, said):
    """A full or closed standard output is one line on stderr."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m opd.cli.opd {words} {where}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr


def test_closed_streams_do_not_change_the_status(empty):
    """Without standard output and error settings are checked all the same."""
    for words, status in ((f"--check-config --config {empty}", 0), ("--nope", 78)):
        for where in (">&- 2>&-", ">/dev/full 2>/dev/full"):
            command = ["sh", "-c", f'"$0" -m opd.cli.opd {words} {where}', sys.executable]
            assert subprocess.run(command, check=False).returncode == status


@pytest.fixture
def daemon(monkeypatch):
    """A daemon that notes what it was given instead of sampling."""
    calls = []

    def run(config, *, replay, strict, registry):
        del registry
        calls.append((config, replay, strict))
        return 5

    module = types.ModuleType("opd.service.daemon")
    module.run = run
    monkeypatch.setitem(sys.modules, "opd.service.daemon", module)
    return calls


def test_the_daemon_gets_settings_and_gives_the_status(daemon, empty, tmp_path):
    """Flags of any order end up in the settings; run's return is the exit status."""
    perf_data = tmp_path / "perf.data"
    perf_data.write_bytes(b"PERFILE2")
    arguments = [
        "-e",
        "cpu-clock:999hz",
        "--config",
        empty,
        "--strict",
        "--event=page-faults",
        "--replay",
        str(perf_data),
        "--session-dir",
        str(tmp_path / "s"),
        "--endpoint",
        f"ipc://{tmp_path}/o",
        "--separate",
        "thread, cpu",
        "--callgraph",
        "off",
        "--cpus",
        "0",
        "--interval",
        "2",
        "--log-format",
        "json",
        "--verbose",
    ]
    assert main(arguments) == 5
    [(config, replay, strict)] = daemon
    assert config.sampling.events == ("cpu-clock:999hz", "page-faults")
    assert config.sampling.separate == ("thread", "cpu")
    assert (config.sampling.callgraph, config.sampling.cpus) == ("off", "0")
    assert config.daemon.session_dir == str(tmp_path / "s")
    assert config.daemon.endpoint == f"ipc://{tmp_path}/o"
    assert (config.daemon.interval, config.daemon.log_format) == (2, "json")
    assert config.daemon.verbose
    assert (replay, strict) == (str(perf_data), True)


def test_without_flags_the_defaults_run(daemon, empty):
    """Nothing asked: cycles:p with its ladder."""
    assert main(["--config", empty]) == 5
    [(config, replay, strict)] = daemon
    assert config.sampling.events == ("cycles:p",)
    assert (replay, strict) == (None, False)


@pytest.mark.usefixtures("daemon")
def test_an_error_of_the_daemon_is_told_with_its_status(empty, monkeypatch, capsys):
    """Each error knows its exit status; the hint stands on its own line."""

    def run(_config, **_more):
        raise PermissionDeniedError("no", hint="sysctl x")

    monkeypatch.setattr(sys.modules["opd.service.daemon"], "run", run)
    assert main(["--config", empty]) == 77
    assert capsys.readouterr().err == "opd: error: no\nopd: hint: sysctl x\n"
