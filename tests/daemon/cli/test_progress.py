"""The line that says how far something is, on a real terminal."""

import os
import pty
import select
import sys

from opd.cli import progress
from opd.cli.progress import ProgressLine


def shown_on_terminal(monkeypatch, act):
    """What a terminal gets that is standard error while ``act`` runs."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        act()
        terminal.flush()
        text = b""
        while select.select([ours], [], [], 0.1)[0]:
            text += os.read(ours, 65536)
    os.close(ours)
    return text.decode()


def test_a_line_is_drawn_over_and_taken_away(monkeypatch):
    """Nothing of it stays."""
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.0)

    def act():
        line = ProgressLine()
        line.show("a tenth")
        line.show("half")
        line.clear()

    assert shown_on_terminal(monkeypatch, act) == "\ra tenth\x1b[K\rhalf\x1b[K\r\x1b[K"


def test_what_is_done_at_once_shows_nothing(monkeypatch):
    """Nor is there a line to take away."""

    def act():
        line = ProgressLine(quiet_s=60)
        assert not line.is_due()
        line.show("half")
        line.clear()

    assert shown_on_terminal(monkeypatch, act) == ""


def test_a_file_gets_no_line(monkeypatch, tmp_path):
    """Only a terminal can draw over it."""
    with (tmp_path / "log").open("w+") as file:
        monkeypatch.setattr(sys, "stderr", file)
        line = ProgressLine()
        assert not line.is_due()
        line.show("half")
        line.clear()
        assert file.tell() == 0
