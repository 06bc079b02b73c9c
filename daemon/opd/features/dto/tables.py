"""Results as the fixed gate of old prints them, with opd's verdict beside; the samples as CSV.

The columns are those of the test suite that this probe follows: means of the
10th to the 90th percentile, the distance D of Kolmogorov and Smirnov,
outliers beyond a shared fence, and PASS or FAIL by a fixed threshold.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError
from opd.features.dto.suite import MODES, PAGES, benchmark_of
from opd.probes.results import STATUS, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from opd.features.declared import Samples

CSV = "distributions.csv"
CSV_COLUMNS = ("test", "config", "pagesize", "version", "latency_ns")
TABLES = "tables.txt"
_PAGE_NAMES = {"4k": "4KB", "2m": "2MB"}
_RULE = "  " + "=" * 47
_VERSIONS = (("baseline", "baseline_ns"), ("current", "current_ns"))
_WHOLE = -1
_COLUMNS = "  Test          Config    Base mean   Cur mean Change    KS D    Result    Outliers"
_DASHES = "  ------------- --------- ---------   --------- -------- -----   -------   --------"


def as_dto(results: list[dict[str, Any]]) -> str:
    """Both kinds of tables; a void result says why in place of its numbers."""
    answers = [line for one in results for line in _answers(one)]
    results = [one for one in results if one["parameters"].get("what") != "answers"]
    if not results:
        return "\n".join([*answers, ""]) if answers else ""
    lines = [*answers, *_head(results), ""]
    pages = [page for page in PAGES if any(_page(one) == page for one in results)]
    for page in pages:
        lines += _details(page, [one for one in results if _page(one) == page])
    lines += _speedups(pages, results)
    return "\n".join([*lines, *_end(results), ""])


def _answers(result: dict[str, Any]) -> list[str]:
    """Lines of a functional run: cases of each side, and the case that differs."""
    if result["parameters"].get("what") != "answers":
        return []
    lines = [
        f"functional {side}: {told['cases']} cases, {told['differences']} differences"
        for side in ("baseline", "current")
        if (told := result["details"].get(f"{side}_cases"))
    ]
    return [*lines, *([f"FAIL: {result['void']}"] if result["void"] else [])]


def gate_result(result: dict[str, Any]) -> str:
    """The word of the fixed gate: PASS, FAIL ***, IMPROVED, REF, or ERROR."""
    gate = result["details"].get("gate")
    if result["void"] is not None or gate is None:
        return "ERROR"
    if result["parameters"]["reference"]:
        return "REF"
    most = result["parameters"]["perf_min_effect"]
    if gate["change_percent"] > most:
        return "FAIL ***"
    return "IMPROVED" if gate["change_percent"] < -most else "PASS"


def _test(result: dict[str, Any]) -> str:
    return benchmark_of(result["parameters"])


def _page(result: dict[str, Any]) -> str:
    return str(result["parameters"]["page"])


def _is_cold(parameters: dict[str, Any]) -> bool:
    asked = parameters["perf_cold_cache"]
    return bool(parameters["cold"] if asked < 0 else asked)


def _head(results: Sequence[dict[str, Any]]) -> list[str]:
    first = next((one for one in results if one["details"].get("cell")), results[0])
    cell, parameters = first["details"].get("cell", {}), first["parameters"]
    kinds = {"cold" if _is_cold(one["parameters"]) else "warm" for one in results}
    title = f"DTO A/B Performance Test ({' and '.join(sorted(kinds))} cache)"
    lines = [title, "=" * 48]
    if "cpu" in cell:
        lines.append(f"Pinned CPU:    {cell['cpu']}")
    elif parameters["perf_cpu"] >= 0:
        lines.append(f"Pinned CPU:    {parameters['perf_cpu']}")
    if "ticks_per_ns" in cell:
        lines.append(f"TSC freq:      {cell['ticks_per_ns']:.3f} GHz")
    for name, words in (("Core freq", "core"), ("Uncore freq", "uncore")):
        notes = [note for note in first["notes"] if note.lower().startswith(words)]
        lines += [f"{name + ':':14} {note}" for note in notes[:1]]
    rounds = sorted({one["details"]["cell"]["rounds"] for one in results if _has_cell(one)})
    if rounds:
        text = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        lines.append(f"A/B rounds:    {text} (interleaved, randomized order)")
    lines.append(f"Min effect:    {parameters['perf_min_effect']:.1f}%")
    sides = first["details"].get("implementations", {})
    tested = next((one for one in results if one["parameters"]["mode"] != "cpu"), first)
    sides = tested["details"].get("implementations", sides)
    for side in ("baseline", "current"):
        if side in sides:
            sha = (sides[side].get("commit") or "")[:12]
            words = f"{sides[side]['name']} {sha}".rstrip()
            lines.append(f"{side.capitalize() + ':':14} {words}")
    return lines


def _has_cell(result: dict[str, Any]) -> bool:
    return "rounds" in result["details"].get("cell", {})


def _details(page: str, results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        _RULE,
        f"  A/B Results — {_PAGE_NAMES[page]} pages",
        _RULE,
        f"{_COLUMNS:95}Verdict",
        f"{_DASHES:95}-------",
    ]
    last = ""
    for one in results:
        test = benchmark_of(one["parameters"])
        lines.append(f"  {test if test != last else '':13} {_row(one)}")
        last = test
    return [*lines, ""]


def _row(one: dict[str, Any]) -> str:
    mode = f"{one['parameters']['mode']:9}"
    gate = one["details"].get("gate")
    if one["void"] is not None or gate is None:
        blank = f"{'':6} ns   {'':6} ns {'':8} {'':5}"
        return f"{mode} {blank}   ERROR     {one['void'] or 'it measured nothing'}"
    outliers = f"bl={gate['baseline_outliers']} cur={gate['current_outliers']}"
    return (
        f"{mode} {gate['baseline_mean_ns']:6.0f} ns   {gate['current_mean_ns']:6.0f} ns"
        f" {gate['change_percent']:+7.1f}% {gate['ks_d']:<5.3f}   {gate_result(one):9}"
        f" {outliers:<19} {_verdict(one)}"
    ).rstrip()


def _verdict(one: dict[str, Any]) -> str:
    verdict = one["verdict"]
    if verdict is None:
        return ""
    low, high = verdict["low"], verdict["high"]
    interval = f" ({low:+.2f} to {high:+.2f} %)" if None not in (low, high) else ""
    reference = "" if verdict.get("gating", True) else ", reference"
    return f"{verdict['result']} {verdict['change_percent']:+.2f} %{interval}{reference}"


def _speedups(pages: Sequence[str], results: Sequence[dict[str, Any]]) -> list[str]:
    """Of each mode against cpu: nothing where not both were measured."""
    means = {
        (benchmark_of(one["parameters"]), _page(one), one["parameters"]["mode"]): gate[
            "current_mean_ns"
        ]
        for one in results
        if one["void"] is None and (gate := one["details"].get("gate"))
    }
    if {mode == "cpu" for _test, _page, mode in means} != {True, False}:
        return []
    modes = MODES[1:]
    lines = [_RULE, "  Speedup vs CPU (current library)", _RULE]
    for page in pages:
        tests = dict.fromkeys(
            benchmark_of(one["parameters"]) for one in results if _page(one) == page
        )
        lines += [
            "",
            f"  {_PAGE_NAMES[page]} pages:",
            f"  {'Test':14}" + "".join(f"  {mode:>10}" for mode in modes),
            f"  {'-' * 14}" + f"  {'-' * 10}" * len(modes),
        ]
        for test in tests:
            base = means.get((test, page, "cpu"))
            if not base:
                continue
            cells = (means.get((test, page, mode)) for mode in modes)
            lines.append(
                f"  {test:14}"
                + "".join(f"  {base / cell:9.2f}x" if cell else f"  {'N/A':>10}" for cell in cells)
            )
    return [*lines, ""]


def _end(results: Sequence[dict[str, Any]]) -> list[str]:
    failures = sum(gate_result(one).startswith("FAIL") for one in results)
    errors = sum(gate_result(one) == "ERROR" for one in results)
    most = results[0]["parameters"]["perf_min_effect"]
    lines = [
        f"  {failures} regression(s) detected (> +{most:.1f}%)"
        if failures
        else f"  No regressions (threshold: +{most:.1f}%)"
    ]
    lines += [f"  {errors} error(s)"] if errors else []
    names = {status: name for name, status in STATUS.items()}
    status = status_of(results)
    gating = [
        one["verdict"] for one in results if one["verdict"] and one["verdict"].get("gating", True)
    ]
    counts = ", ".join(
        f"{number} {name}"
        for name in STATUS
        if (number := sum(verdict["result"] == name for verdict in gating))
    )
    word = "void" if status == 1 else names[status]
    lines.append(f"  Verdict: {word} ({len(gating)} gating: {counts or 'none'})")
    lines += [f"  {note}" for note in dict.fromkeys(_left_out(results))]
    return lines


def _left_out(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in results:
        yield from (note for note in one["notes"] if " left out: " in note)


# ---- files


def write_files(results: list[dict[str, Any]], samples: Samples, directory: Path, say: Any) -> None:
    """distributions.csv anew, the tables, and pictures. Raises OperationFailedError."""
    from opd.features.dto.pictures import write_pictures

    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / TABLES).write_text(as_dto(results), encoding="utf-8")
        fresh = directory / f".{CSV}.{os.getpid()}"
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(",".join(CSV_COLUMNS) + "\n")
                for one in results:
                    columns = samples(one)
                    if not columns and one["void"] is None:
                        say(f"run {one['id']}: its samples are gone: the store has no more room")
                    for line in csv_lines(one["parameters"], columns):
                        file.write(line)
            fresh.replace(directory / CSV)
        finally:
            with contextlib.suppress(FileNotFoundError):
                fresh.unlink()
        write_pictures(results, samples, directory, say)
    except OSError as error:
        raise OperationFailedError(f"{error.filename or directory}: {error.strerror}") from error


def csv_lines(parameters: dict[str, Any], columns: Any) -> Iterator[str]:
    """The raw samples of a run as lines of distributions.csv, in the order measured."""
    head = f"{benchmark_of(parameters)},{parameters['mode']},{parameters['page']}"
    for version, metric in _VERSIONS:
        for value in columns.get((metric, _WHOLE), ()):
            yield f"{head},{version},{value:.1f}\n"
