"""Tables as the fixed gate of old prints them, the samples as CSV, and the pictures."""

from __future__ import annotations

import csv
import itertools
import random
import re
import xml.etree.ElementTree as ET

import pytest

from opd.errors import OperationFailedError
from opd.features.dto import pictures
from opd.features.dto.options import DtoOptions
from opd.features.dto.pictures import KINDS, pictures_of_cell, pictures_of_run
from opd.features.dto.tables import CSV_COLUMNS, as_dto, gate_result, write_files
from opd.probes.plan import as_parameters


def result(number=1, *, change=0.1, verdict="OK", void=None, mean=4000.0, **options):
    """Make a result as one is answered."""
    parameters = as_parameters(DtoOptions(cold=True, **options))
    gate = {
        "baseline_mean_ns": mean,
        "current_mean_ns": mean * (1 + change / 100),
        "change_percent": change,
        "ks_d": 0.026,
        "ks_p": 0.5,
        "baseline_outliers": 5,
        "current_outliers": 3,
    }
    cell = {"rounds": 10, "ticks_per_ns": 2.0, "cpu": 1}
    judged = {
        "result": verdict,
        "change_percent": change,
        "low": change - 0.2,
        "high": change + 0.2,
        "gating": not parameters["reference"],
    }
    return {
        "id": number,
        "probe": "dto",
        "parameters": parameters,
        "metrics": [] if void else [{"name": "ratio"}],
        "verdict": None if void else judged,
        "void": void,
        "notes": [],
        "details": {} if void else {"gate": gate, "cell": cell},
    }


def sixteen():
    """Give the rows of one benchmark."""
    return [
        result(1, mode="cpu", size=16 << 10, reference=True, mean=4036),
        result(2, mode="stdc", size=16 << 10, mean=4034),
        result(3, mode="dsa", size=16 << 10, mean=1518),
        result(4, mode="dsa_auto", size=16 << 10, void="it died"),
    ]


def test_a_table_has_the_old_columns_and_the_verdict():
    """Names once, means in ns, change, D, result, outliers; a void row says why."""
    text = as_dto(sixteen())
    assert "DTO A/B Performance Test (cold cache)" in text
    assert "Pinned CPU:    1" in text
    assert "TSC freq:      2.000 GHz" in text
    assert "A/B rounds:    10 (interleaved, randomized order)" in text
    assert "Min effect:    2.0%" in text
    assert "A/B Results — 4KB pages" in text
    assert "2MB" not in text
    rows = [line for line in text.splitlines() if re.search(r" ns .*%", line)]
    assert re.fullmatch(
        r"  memcpy_16k    cpu         4036 ns     4040 ns    \+0\.1% 0\.026   REF       bl=5 cur=3"
        r" +OK \+0\.10 % \(-0\.10 to \+0\.30 %\), reference",
        rows[0],
    )
    assert rows[1].startswith(
        "                stdc        4034 ns     4038 ns    +0.1% 0.026   PASS"
    )
    assert re.search(r"dsa_auto +ns +ns +ERROR +it died", text)


def test_speed_ups_are_of_the_current_against_the_cpu():
    """As many times as fast; nothing where a mode has no result."""
    lines = as_dto(sixteen()).splitlines()
    row = next(line for line in lines if re.match(r"  memcpy_16k .*x ", line))
    assert re.fullmatch(r"  memcpy_16k +1\.00x +2\.66x +N/A", row)


@pytest.mark.parametrize(
    ("change", "reference", "word"),
    [(0.5, False, "PASS"), (2.1, False, "FAIL ***"), (-2.1, False, "IMPROVED"), (9, True, "REF")],
)
def test_words_of_the_old_gate(change, reference, word):
    """By its fixed threshold."""
    assert gate_result(result(change=change, reference=reference)) == word


def test_the_end_counts():
    """Regressions of the old gate, errors, and the verdict of all that gates."""
    text = as_dto([*sixteen(), result(5, change=3.0, verdict="REGRESSED", mode="stdc")])
    assert "1 regression(s) detected (> +2.0%)" in text
    assert "1 error(s)" in text
    assert "Verdict: void (3 gating: 2 OK, 1 REGRESSED)" in text
    text = as_dto([result(1), result(2, verdict="UNDECIDED", mode="stdc")])
    assert "No regressions (threshold: +2.0%)" in text
    assert "Verdict: UNDECIDED (2 gating: 1 OK, 1 UNDECIDED)" in text
    assert as_dto([]) == ""


def columns(number=400):
    """Give raw samples with a tail."""
    draw = random.Random(number)
    return {
        (metric, -1): [draw.gauss(1000 + shift, 20) for _ in range(number)] + [1e6]
        for shift, metric in ((0, "baseline_ns"), (30, "current_ns"))
    }


def test_files_of_a_suite(tmp_path):
    """distributions.csv has the old columns and every sample; it is written anew."""
    said: list[str] = []
    runs = [result(1), result(2, page="2m", mode="stdc"), result(3, void="it died", mode="dsa")]
    given = columns()
    for _ in range(2):
        write_files(runs, lambda one: {} if one["void"] else given, tmp_path / "out", said.append)
    with (tmp_path / "out/distributions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == 2 * 2 * 401
    assert {(row["test"], row["config"], row["pagesize"]) for row in rows} == {
        ("memcpy_64k", "cpu", "4k"),
        ("memcpy_64k", "stdc", "2m"),
    }
    values = [
        row["latency_ns"]
        for row in rows
        if row["pagesize"] == "4k" and row["version"] == "baseline"
    ]
    assert values == [f"{value:.1f}" for value in given["baseline_ns", -1]]
    assert "Results" in (tmp_path / "out/tables.txt").read_text()
    names = {path.name for path in (tmp_path / "out").glob("*.svg")}
    assert names == {
        f"distributions_{page}_memcpy_{kind}.svg" for page in ("4k", "2m") for kind in KINDS
    }
    for path in (tmp_path / "out").glob("*.svg"):
        ET.parse(path)  # noqa: S314 - our own
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_samples_that_are_gone_are_told(tmp_path):
    """The store keeps so many; the file does not hide that."""
    said: list[str] = []
    write_files([result(7)], lambda _one: {}, tmp_path, said.append)
    assert any("run 7: its samples are gone" in words for words in said)


def test_a_directory_that_cannot_be_written(tmp_path):
    """A file where the directory should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationFailedError, match="file"):
        write_files([result()], lambda _one: columns(), tmp_path / "file", print)


def test_png_is_drawn_where_it_can_be(tmp_path, monkeypatch):
    """Without matplotlib it is said once, and SVG is there all the same."""
    drawn: list[str] = []

    def png(_pictures, target):
        drawn.append(target.name)
        if len(drawn) == 2:
            raise OperationFailedError("no matplotlib")

    monkeypatch.setattr(pictures, "png", png)
    said: list[str] = []
    write_files([result()], lambda _one: columns(), tmp_path, said.append)
    assert drawn == ["distributions_4k_memcpy_density.png", "distributions_4k_memcpy_violin.png"]
    assert said == ["pictures are SVG only: no matplotlib"]
    assert len(list(tmp_path.glob("*.svg"))) == 3


def test_curves_are_what_they_say():
    """A density has the area 1, an ECDF rises from 0 to 1, a violin is as wide as 1."""
    (density,) = pictures_of_cell(result(), columns(), "density")
    for _name, points in density.lines:
        step = points[1][0] - points[0][0]
        assert sum(y for _x, y, *_ in points) * step == pytest.approx(1.0, abs=0.02)
    (ecdf,) = pictures_of_cell(result(), columns(), "ecdf")
    for _name, points in ecdf.lines:
        assert (points[0][1], points[-1][1]) == (0.0, 1.0)
        assert all(a[0] <= b[0] for a, b in itertools.pairwise(points))
        middle = next(x for x, y, *_ in points if y >= 0.5)
        assert middle == pytest.approx(1000 if _name == "baseline" else 1030, abs=5)
    (violin,) = pictures_of_cell(result(), columns(), "violin")
    assert [max(wide for _x, _y, wide, _ in points) for _name, points in violin.lines] == [1, 1]
    assert pictures_of_cell(result(), {}, "ecdf") == []
    assert len(pictures_of_run(result(), columns())) == 3


def test_samples_that_are_all_alike_are_drawn():
    """A coarse clock gives one value."""
    flat = {("baseline_ns", -1): [5.0] * 100, ("current_ns", -1): [5.0] * 100}
    for kind in KINDS:
        assert pictures_of_cell(result(), flat, kind)
