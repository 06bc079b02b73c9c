"""opctl bundle, of a running daemon, of a store, of nothing."""

import json
import os
import signal
import subprocess
import tarfile

import pytest

from places import BIN


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """A daemon whose session directory lies in somebody's home."""
    return start_daemon("-e", "cpu-clock")


def bundle(daemon, path, *arguments):
    """Make one; the manifest as printed and the contents by name."""
    done = daemon.opctl("--format", "json", "bundle", str(path), *arguments)
    return json.loads(done.stdout), contents(path)


def contents(path):
    """The files of a bundle by their names."""
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.xz"])
def test_it_holds_what_it_says(daemon, tmp_path, suffix):
    """Each file of the manifest is there, of that size, and JSON where its name says so."""
    manifest, files = bundle(daemon, tmp_path / f"one{suffix}")
    inside = json.loads(files.pop("manifest.json"))
    assert inside["files"] == manifest["files"]
    assert {file["name"]: file["bytes"] for file in manifest["files"]} == {
        name: len(text.encode()) for name, text in files.items()
    }
    wanted = {"status", "doctor", "config", "sessions", "marks", "quality", "machine", "versions"}
    assert {f"{name}.json" for name in wanted | {"store", "processes"}} <= set(files)
    for name, text in files.items():
        assert not name.endswith(".json") or json.loads(text) is not None
    assert "cost" in json.loads(files["status.json"])
    assert "daemon.ready" in files["log.jsonl"]
    assert json.loads(files["store.json"])["schema_version"] >= 1
    assert set(json.loads(files["quality.json"])) == {"cpu-clock"}
    assert manifest["bytes"] == (tmp_path / f"one{suffix}").stat().st_size


def test_it_is_for_its_owner_and_never_replaces(daemon, tmp_path):
    """Mode 0600; a file that is there stays as it is, exit 1."""
    path = tmp_path / "mine.tar.gz"
    bundle(daemon, path)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    done = daemon.opctl("bundle", str(path), check=False)
    assert done.returncode == 1
    assert "exists" in done.stderr
    assert path.read_bytes() == before


def test_a_name_that_says_no_format_is_a_wrong_command_line(daemon, tmp_path):
    """Exit 2, and the endings there are."""
    done = daemon.opctl("bundle", str(tmp_path / "x.zip"), check=False)
    assert done.returncode == 2
    assert ".tar.xz" in done.stderr


def test_redacted_it_tells_no_home_no_command_line_no_host(daemon, tmp_path):
    """And with --no-redact it does."""
    manifest, files = bundle(daemon, tmp_path / "hidden.tar.gz")
    assert manifest["redacted"] is True
    (main, *_) = json.loads(files["processes.json"])
    assert main["command_line"][1:] == ["[redacted]"]
    machine = json.loads(files["machine.json"])
    assert (machine["host"], machine["kernel_command_line"]) == ("[host]", "[redacted]")

    manifest, files = bundle(daemon, tmp_path / "open.tar.gz", "--no-redact")
    assert manifest["redacted"] is False
    (main, *_) = json.loads(files["processes.json"])
    assert "--session-dir" in main["command_line"]
    assert json.loads(files["machine.json"])["host"] == os.uname().nodename
    assert "NOT redacted" in daemon.opctl("bundle", str(tmp_path / "t.tgz"), "--no-redact").stdout


def test_without_a_daemon_it_says_what_is_missing(tmp_path):
    """Exit 0 with the machine, the doctor and a reason for each thing that is not there."""
    path = tmp_path / "alone.tar.gz"
    command = [BIN / "opctl", "--endpoint", f"ipc://{tmp_path}/none.sock", "bundle", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "missing: all that a daemon tells: no opd" in done.stdout
    files = contents(path)
    assert {"machine.json", "versions.json", "doctor.json"} <= set(files)
    missing = {lack["name"] for lack in json.loads(files["manifest.json"])["missing"]}
    assert "all that a daemon tells" in missing


def test_a_crash_comes_along(start_daemon, tmp_path):
    """SIGABRT leaves the stacks of all threads; the next start says so, a bundle has them."""
    daemon = start_daemon("-e", "cpu-clock")
    daemon.process.send_signal(signal.SIGABRT)
    daemon.process.wait(30)
    path = tmp_path / "crash.tar.gz"
    command = [BIN / "opctl", "--session-dir", daemon.store, "bundle", path]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (trace,) = (text for name, text in contents(path).items() if name.startswith("crash/"))
    assert "Fatal Python error: Aborted" in trace
    assert "opd/service/daemon.py" in trace
    daemon.log_path.unlink()
    again = start_daemon("-e", "cpu-clock", directory=daemon.directory)
    assert "daemon.crashed" in again.log()
    assert again.stop() == 0
