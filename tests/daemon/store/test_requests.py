"""What is asked of the worker between windows: done in order, once, or refused with a word."""

import contextlib
import os
import signal
import sqlite3
import threading
import time

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, make_run, make_window, random_hits

from opd.errors import OperationFailedError, UsageError
from opd.store.handover import WorkerLink
from opd.store.queries import ReportQuery, open_reader
from opd.store.requests import MARKS_MOST, check_mark, check_session_name
from opd.store.writer import StoreWriter

PATIENCE = 60.0


@contextlib.contextmanager
def linked(directory):
    """A started link with a run of the live session and its images."""
    link = WorkerLink(directory, resolver="plain_names:PlainNames")
    try:
        link.start(PATIENCE)
        link.open_run(make_run(session="live"))
        link.send_images([(info, None) for info in IMAGES])
        yield link
    finally:
        link.close(PATIENCE)


def sessions_of(directory):
    """Sequence numbers of the windows by session."""
    connection = sqlite3.connect(directory / "opd.db")
    rows = connection.execute(
        "SELECT name, sequence FROM sessions LEFT JOIN runs ON runs.session = sessions.id"
        " LEFT JOIN windows ON windows.run = runs.id ORDER BY sessions.id, sequence"
    ).fetchall()
    connection.close()
    found = {}
    for name, sequence in rows:
        found.setdefault(name, []).extend([] if sequence is None else [sequence])
    return found


def test_a_session_ends_between_two_windows(tmp_path):
    """Windows handed over before the request are of the old session, those after of the new."""
    with linked(tmp_path) as link:
        for sequence in range(3):
            link.send_window(make_window(sequence, random_hits(sequence)))
        assert link.request("save", {"name": "before"}, PATIENCE) == {"session": "before"}
        link.send_window(make_window(3, random_hits(3)))
        reset = link.request("reset", {}, PATIENCE)["session"]
        link.send_window(make_window(4, random_hits(4)))
        link.send_window(make_window(5, random_hits(5)))
        assert link.wait_acknowledged(5, PATIENCE)
    assert reset.startswith("live-2")
    assert sessions_of(tmp_path) == {"before": [0, 1, 2], reset: [3], "live": [4, 5]}
    with open_reader(tmp_path) as reader:
        assert [info.saved for info in reader.sessions()] == [True, False, False]
        for name, windows in sessions_of(tmp_path).items():
            result = reader.report(ReportQuery(session=name, top=0))
            assert result.total == sum(
                hit.hits for sequence in windows for hit in random_hits(sequence)
            )
            # What other sessions have of the run is not missing here.
            assert result.quality["windows"] == {"have": len(windows), "missing": 0}


def kill(link):
    """Kill the worker; one that is reaped reports no pid, so no other process is hit."""
    if pid := link.stats()["pid"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_requests_survive_kills_and_are_done_once(tmp_path):
    """Resets among windows while the worker is killed: each session once, each window once."""
    with linked(tmp_path) as link:
        names = []
        for sequence in range(30):
            link.send_window(make_window(sequence, random_hits(sequence, rows=100)))
            if sequence % 3 != 2:
                continue
            # While the windows and the request are under way; it may have none to kill.
            killer = threading.Timer(0.01 * (sequence % 7), kill, (link,))
            killer.start()
            names.append(f"part {sequence // 3}")
            result = link.request("save", {"name": names[-1]}, PATIENCE)
            assert result == {"session": names[-1]}
            killer.join()
        link.send_window(make_window(30, random_hits(30)))
        assert link.wait_acknowledged(30, PATIENCE)
        assert link.close(PATIENCE)
    assert link.stats()["deaths"] >= 1
    expected = {name: [3 * at, 3 * at + 1, 3 * at + 2] for at, name in enumerate(names)}
    assert sessions_of(tmp_path) == {**expected, "live": [30]}


def test_a_request_sent_again_gives_the_same_reply(tmp_path):
    """As after a worker that died between doing it and saying so."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run(session="live"))
    writer.append(make_window(0, random_hits(0)))
    first = writer.carry_out("id1", "save", {"name": "kept"})
    window = make_window(1, random_hits(1))
    writer.append(window)
    mark = {"marks": [(START_NS, "user", "here")]}
    marked = writer.carry_out("id2", "mark", mark)
    assert writer.carry_out("id1", "save", {"name": "kept"}) == first
    assert writer.carry_out("id2", "mark", mark) == marked
    # And what was in the session that ended does not come into the next one.
    assert not writer.append(make_window(0, random_hits(0))).new
    assert not writer.append(window).new
    writer.close()
    assert sessions_of(tmp_path) == {"kept": [0], "live": [1]}
    with open_reader(tmp_path) as reader:
        assert [mark.text for mark in reader.marks()] == ["here"]


def test_what_cannot_be_done_is_refused_with_a_word(tmp_path):
    """A name that is taken, and a session with nothing in it; both leave all as it was."""
    with linked(tmp_path) as link:
        with pytest.raises(OperationFailedError, match="empty: there is nothing to save"):
            link.request("save", {"name": "nothing"}, PATIENCE)
        assert link.request("reset", {}, PATIENCE) == {"session": None}
        link.send_window(make_window(0, random_hits(0)))
        link.request("save", {"name": "taken"}, PATIENCE)
        link.send_window(make_window(1, random_hits(1)))
        with pytest.raises(UsageError, match="there is a session 'taken' already"):
            link.request("save", {"name": "taken"}, PATIENCE)
        link.send_window(make_window(2, random_hits(2)))
        assert link.wait_acknowledged(2, PATIENCE)
    assert sessions_of(tmp_path) == {"taken": [0], "live": [1, 2]}


def test_a_worker_that_does_not_answer_is_not_waited_for(tmp_path):
    """The request says so after its time, and what was never sent is not done later."""
    with linked(tmp_path) as link:
        link.send_window(make_window(0, random_hits(0)))
        assert link.wait_acknowledged(0, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(OperationFailedError, match=r"save: .*did not answer within 0\.3 s"):
                link.request("save", {"name": "late"}, 0.3)
        finally:
            os.kill(pid, signal.SIGCONT)
        link.send_window(make_window(1, random_hits(1)))
        assert link.wait_acknowledged(1, PATIENCE)


def test_a_closing_link_answers_those_who_wait(tmp_path):
    """A request under way when the daemon ends gets an error, not silence."""
    failures = []
    with linked(tmp_path) as link:
        link.send_window(make_window(0, random_hits(0)))
        assert link.wait_acknowledged(0, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)

        def ask():
            try:
                link.request("reset", {}, PATIENCE)
            except OperationFailedError as error:
                failures.append(str(error))

        asker = threading.Thread(target=ask)
        asker.start()
        time.sleep(0.3)
        link.close(0.5)
        asker.join(PATIENCE)
        assert failures == ["opd is ending"]
        with pytest.raises(OperationFailedError, match="ending"):
            link.request("reset", {}, PATIENCE)


def test_two_resets_in_a_second_have_two_names(tmp_path):
    """Sessions that began in the same second are told apart."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run(session="live"))
    names = []
    for sequence in range(4):
        writer.append(make_window(sequence, random_hits(sequence)))
        names.append(writer.carry_out(str(sequence), "reset", {})["session"])
    writer.close()
    assert len(set(names)) == 4
    assert all(name.startswith("live-") for name in names)


def test_old_marks_go_when_there_are_too_many(tmp_path):
    """A script that marks without end does not fill the store."""
    writer = StoreWriter(tmp_path, PlainNames)
    for part in range(3):
        marks = [(START_NS + at, "user", f"{part} {at}") for at in range(MARKS_MOST // 2)]
        writer.carry_out(str(part), "mark", {"marks": marks})
    writer.close()
    with open_reader(tmp_path) as reader:
        kept = reader.marks()
        assert len(kept) == MARKS_MOST
        assert {mark.text.split()[0] for mark in kept} == {"1", "2"}
        some = reader.marks(since_ns=START_NS + 5, until_ns=START_NS + 7)
        assert [mark.text for mark in some] == ["1 5", "2 5", "1 6", "2 6"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "cannot be empty"),
        ("  ", "cannot be empty"),
        ("live", "the running session"),
        ("x" * 101, "at most 100 characters, this one 101"),
        ("a\nb", r"control character '\\n' \(at 1\)"),
        ("a\x00", r"control character '\\x00'"),
        (" spaced", "spaces around"),
    ],
)
def test_session_names_that_do_not_do(name, said):
    """Each is refused with what is wrong with it."""
    with pytest.raises(UsageError, match=said):
        check_session_name(name)


@pytest.mark.parametrize("name", ["deploy-1.42", "vor dem Umzug", "前", "x" * 100, "live-1"])
def test_session_names_that_do(name):
    """Anything that people can read."""
    assert check_session_name(name) == name


def test_marks_are_checked():
    """As names, with room for a sentence."""
    assert check_mark(" deploy 1.42 ") == "deploy 1.42"
    for text, said in (("", "needs a text"), ("x" * 1001, "1000"), ("a\x1b[0m", "control")):
        with pytest.raises(UsageError, match=said):
            check_mark(text)
