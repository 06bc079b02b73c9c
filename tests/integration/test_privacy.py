"""[privacy] redact: what reaches the store of whose files they are."""

import subprocess

import pytest

from places import BIN


@pytest.mark.parametrize(
    ("how", "shown"),
    [("home", "{base}/home/[redacted]/busy"), ("paths", "/[redacted]/busy")],
)
def test_paths_are_redacted_before_they_are_stored(start_daemon, busy, tmp_path, how, shown):
    """The program's samples are named, by a path that does not tell whose it is."""
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    program = home / "busy"
    program.write_bytes(busy.read_bytes())
    program.chmod(0o755)
    settings = tmp_path / "opd.toml"
    settings.write_text(f'[privacy]\nredact = "{how}"\n')
    daemon = start_daemon("--config", str(settings), "-e", "cpu-clock:999hz")
    with subprocess.Popen([program, "plain", "0.5"], stdout=subprocess.DEVNULL) as load:
        assert load.wait(60) == 0
    rows = daemon.rows("pid", "image", "symbol")
    mine = [row for row in rows if row["pid"] == load.pid and row["symbol"] == "plain_work"]
    assert [row["image"] for row in mine] == [shown.format(base=tmp_path)]
    assert daemon.stop() == 0
    for file in daemon.store.iterdir():
        assert b"alice" not in file.read_bytes(), file
    text = subprocess.run(
        [BIN / "opctl", "--session-dir", daemon.store, "report", "--top", "0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "plain_work" in text
    assert "alice" not in text
