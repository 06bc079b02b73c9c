"""The harness itself: sections, budgets, fits, accounts, and the files it writes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time

import pytest

from bench.harness import accounting, cli, report_json
from bench.harness.budgets import BUDGETS, judge
from bench.harness.contenders import _count_frames
from bench.harness.figures import Figure, Findings, Plot, Series, Table, fit_line, summary
from bench.harness.loads import STATIC, builder
from bench.harness.section import Outcome, Section

# Real programs on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)


def verdict(name, *figures):
    """Give the verdict on one budget of BUDGETS."""
    return next(v for v in judge(figures) if v.budget.name == name)


def outcome():
    """Give a section's run with one of each."""
    found = Findings(
        figures=[Figure("a.b", 1.5, "ns", 3, 1.0, 2.0, "a note")],
        tables=[Table("a <table>", ["x"], [["1"]])],
        plots=[
            Plot("lines", "s", "MB", [Series("one", [[0, 1.0], [1, 2.0]])], limit=1.5),
            Plot("bars", "Hz", "ns", [Series("opd", [["99", 2.0, 1.0, 3.0]])], "bars", "log"),
        ],
        notes=["a remark"],
    )
    machine = {"others_share": 0.5, "steal_share": 0.0, "load": [3, 2, 1], "busy": True}
    section = Section("plain", "a purpose", lambda _: None)
    return Outcome(section, found, "done", "", 2.0, machine)


HEAD = {
    "command": "make bench",
    "started": "2026-01-01T00:00:00+0000",
    "opd": "0.1.0",
    "machine": {
        "cpu": "a CPU",
        "cpus": 2,
        "memory_bytes": 1 << 32,
        "kernel": "6.1",
        "hypervisor": True,
        "core_pmu": False,
        "python": "3.11",
        "load": [1.0, 1.0, 1.0],
    },
}


def test_every_module_declares_a_section_with_a_purpose():
    """Sections are found by their modules; names are unique and purposes one line."""
    sections = cli.find_sections()
    assert {"cost", "soak", "kills", "accuracy", "storm", "loss"} <= set(sections)
    assert all(section.purpose and "\n" not in section.purpose for section in sections.values())


def test_a_budget_is_met_only_when_every_figure_is_there_and_below():
    """Too few figures are not measured, one above is missed."""
    running, stopped = Figure("loss.running.lost", 0, ""), Figure("loss.stopped.lost", 0, "")
    assert verdict("lost", running, stopped).verdict == "met"
    assert verdict("lost", running).verdict == "not measured"
    assert verdict("lost", Figure("loss.running.lost", 3, "")).verdict == "missed"
    assert verdict("storm-image", Figure("storm.image_named", 99.95, "%")).verdict == "met"
    assert verdict("storm-image", Figure("storm.image_named", 99.8, "%")).verdict == "missed"


def test_a_relative_budget_needs_the_other_one():
    """The slope is also compared with perf's of the same run."""
    ours = Figure("cost.opd.mixed.999.slope", 900, "ns")
    assert verdict("slope", ours).verdict == "not measured"
    assert verdict("slope", ours, Figure("cost.perf.mixed.999.slope", 1500, "ns")).verdict == "met"
    assert verdict("slope", ours, Figure("cost.perf.mixed.999.slope", 800, "ns")).verdict == (
        "missed"
    )


def test_the_names_of_budgets_are_unique():
    """A budget is found by its name in the JSON."""
    assert len({budget.name for budget in BUDGETS}) == len(BUDGETS)


def test_a_line_is_fitted_with_its_interval():
    """The slope of exact points is exact, that of noisy ones lies inside the interval."""
    exact = fit_line([(x, 3.0 * x + 1) for x in range(10)])
    assert exact.slope == pytest.approx(3)
    assert exact.half_width == pytest.approx(0, abs=1e-9)
    noisy = fit_line([(x, 3.0 * x + (-1) ** x) for x in range(40)])
    assert abs(noisy.slope - 3) < noisy.half_width
    assert fit_line([(0.0, 1.0), (0.0, 2.0), (1.0, 1.0)]) is None


def test_a_summary_of_nothing_has_no_value():
    """What was not measured is not zero."""
    assert summary("k", [], "s").value is None
    assert summary("k", [3.0, 1.0, 2.0], "s") == Figure("k", 2.0, "s", 3, 1.0, 3.0)


def test_json_is_read_back_as_it_was_written(tmp_path):
    """A joined run shows what the run itself would have shown."""
    path = tmp_path / "run.json"
    report_json.write(path, report_json.document(HEAD, [outcome()], judge([])))
    assert json.loads(path.read_text())["schema"] == report_json.SCHEMA
    (read,) = report_json.read(path)
    assert read.findings == outcome().findings
    assert (read.state, read.machine) == (outcome().state, outcome().machine)
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_json_of_something_else_is_refused(tmp_path):
    """The message names the file and what was expected."""
    path = tmp_path / "other.json"
    path.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match=r"other\.json: expected the JSON of make bench"):
        report_json.read(path)


def test_the_page_is_whole_by_itself():
    """No script and nothing fetched; text is escaped; colours are the page's."""
    pytest.importorskip("matplotlib")
    from bench.harness import report_html

    text = report_html.page(HEAD, [outcome()], judge([]))
    assert text.count("<svg") == 2
    assert "<script" not in text
    assert "src=" not in text
    assert "a &lt;table&gt;" in text
    assert "var(--series-1)" in text
    assert "#0a0b01" not in text


def test_children_that_are_gone_are_in_the_account():
    """CPU of a child that ended before anybody looked is counted."""
    with accounting.Account("test") as account:
        if not account.exact:
            pytest.skip("no control group can be made here")
        burn = "import os\nfor _ in range(3):\n    os.fork() or (sum(range(3000000)), os._exit(0))"
        wait = "\nfor _ in range(3): os.wait()"
        account.start([sys.executable, "-c", burn + wait]).wait()
        whole = account.cpu_seconds()
        before = time.process_time()
        sum(range(3000000))
        assert whole > 1.5 * (time.process_time() - before)
        assert account.pids() == []


def test_memory_of_an_account_is_that_of_its_processes():
    """PSS of a process inside is found, and the group goes at the end."""
    with accounting.Account("test") as account:
        code = "x = bytearray(b'1') * (20 << 20); print('ready', flush=True); input()"
        process = account.start(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"ready\n"
        memory = accounting.memory_of(account)
        assert memory["processes"] == 1
        assert 20 << 20 < memory["pss"] < 60 << 20
        groups = list(account._groups)
        process.communicate(b"\n")
    assert not any(group.exists() for group in groups)


def test_copies_of_a_program_have_build_ids_of_their_own():
    """Each copy runs, and readelf tells another build-id of each."""
    with builder() as loads:
        copies = loads.distinct("tiny.c", 3, *STATIC)
        notes = set()
        for copy in copies:
            subprocess.run([copy], check=True)
            done = subprocess.run(
                ["readelf", "-n", copy], capture_output=True, text=True, check=True
            )
            notes |= {line for line in done.stdout.splitlines() if "Build ID" in line}
        assert len(notes) == 3
        folder = loads.folder
    assert not folder.exists()


def test_a_capture_is_counted_by_its_frames():
    """Frames of another kind do not count; one without a length is an error."""
    frame = b"\x18\x00" + b"\0" * 14 + b"\x02" + b"\0" * 7
    other = frame[:16] + b"\x05" + frame[17:]
    assert _count_frames(b"\0" * 256 + frame + other + frame, kind=2) == 2
    with pytest.raises(RuntimeError, match="a frame of 0 bytes"):
        _count_frames(b"\0" * 300, kind=2)


def test_an_unknown_section_is_told_with_those_there_are(capsys):
    """Exit status 2, and nothing runs."""
    assert cli.main(["nosuch"]) == 2
    assert "no section 'nosuch'; there are: accuracy" in capsys.readouterr().err


def test_a_wrong_number_is_refused(capsys):
    """Rates are numbers above zero."""
    with contextlib.suppress(SystemExit):
        cli.main(["--rates", "99,0"])
    assert "expected a number above 0, got '0'" in capsys.readouterr().err
