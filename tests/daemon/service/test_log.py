"""Log lines, each way of writing them in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

WRITE = """
import sys
from opd.service import log
log.configure({form!r}, verbose={verbose!r})
logger = log.get_logger(part="test")
logger.debug("window.taken", rows=1)
logger.info("daemon.started", pid=7, path="/x\\udcff", odd={{1}})
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("feature.failed")
"""


def lines(form, *, verbose=False, **more):
    """What a process wrote to its standard error, as lines."""
    code = WRITE.format(form=form, verbose=verbose)
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=True, **more)
    return done.stderr.decode().splitlines()


@pytest.mark.parametrize("form", ["auto", "json"])
def test_not_on_a_terminal_lines_are_json(form):
    """One object a line, with time, level, event and values; debug is left out."""
    first, second = map(json.loads, lines(form))
    assert first["event"] == "daemon.started"
    assert (first["level"], first["pid"], first["part"]) == ("info", 7, "test")
    assert first["time"].endswith("Z")
    assert second["level"] == "error"
    assert "ZeroDivisionError" in second["exception"]


def test_verbose_shows_debug_lines():
    """One more line."""
    assert json.loads(lines("json", verbose=True)[0])["event"] == "window.taken"


def test_console_lines_are_for_people():
    """No JSON, no colours into a pipe, the traceback below."""
    text = "\n".join(lines("console"))
    assert "daemon.started" in text
    assert "pid=7" in text
    assert "\x1b" not in text
    assert "ZeroDivisionError" in text


def test_under_the_journal_lines_carry_a_priority_and_no_time():
    """The journal has the time; each line says how urgent it is."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd) as reader, os.fdopen(write_fd, "w") as writer:
        status = os.fstat(writer.fileno())
        environ = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        code = WRITE.format(form="auto", verbose=True)
        subprocess.run([sys.executable, "-c", code], stderr=writer, env=environ, check=True)
        writer.close()
        found = reader.read().splitlines()
    assert [line[:3] for line in found] == ["<7>", "<6>", "<3>"]
    assert "time" not in json.loads(found[1][3:])


def test_a_closed_stderr_stops_nothing():
    """Lines that nobody takes are lost, the process goes on."""
    code = WRITE.format(form="json", verbose=True) + "\nprint('alive')"
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=write_fd, check=False
    )
    os.close(write_fd)
    assert done.stdout == b"alive\n"


def test_importing_it_leaves_rich_alone():
    """No rich is imported, and none is hidden afterwards."""
    code = "import sys, opd.service.log\nassert 'rich' not in sys.modules\nimport rich.text\n"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "modules", ["opd.cli.opd, opd.service.daemon", "opd.store.worker, opd.symbols.resolver"]
)
def test_a_start_loads_nothing_that_a_service_does_not_use(modules):
    """Neither the daemon nor the worker pays at every start for what is seldom needed."""
    code = (
        f"import sys, {modules}\n"
        "heavy = {'structlog', 'asyncio', 'ssl', 'logging', 'tempfile', 'rich', 'psutil',"
        " 'hashlib', 'dataclasses', 'duckdb', 'numpy', 'http', 'email'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_log_imports_structlog():
    """The rest of the front door stays light."""
    code = (
        "import sys, opd.config, opd.events, opd.service.paths, opd.service.signals,"
        " opd.service.sdnotify, opd.service.capabilities, opd.cli.opd\n"
        "heavy = {'structlog', 'pluggy', 'duckdb', 'numpy', 'rich', 'ctypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
