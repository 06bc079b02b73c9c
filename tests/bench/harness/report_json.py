"""The run as one JSON file; its schema is in docs/benchmarks.md."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

from bench.harness.figures import Figure, Findings, Plot, Series, Table
from bench.harness.section import Outcome, Section

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.budgets import Verdict

SCHEMA = 1


def document(
    head: dict[str, Any], outcomes: list[Outcome], verdicts: list[Verdict]
) -> dict[str, Any]:
    """Give all of a run as plain values."""
    return {
        "schema": SCHEMA,
        **head,
        "sections": [
            {
                "name": outcome.section.name,
                "purpose": outcome.section.purpose,
                "state": outcome.state,
                "problem": outcome.problem,
                "seconds": outcome.seconds,
                "machine": outcome.machine,
                **dataclasses.asdict(outcome.findings),
            }
            for outcome in outcomes
        ],
        "budgets": [
            {
                "name": verdict.budget.name,
                "what": verdict.budget.what,
                "at_most": verdict.budget.says,
                "verdict": verdict.verdict,
                "measured": verdict.measured,
            }
            for verdict in verdicts
        ],
    }


def write(path: Path, values: dict[str, Any]) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def read(path: Path) -> list[Outcome]:
    """Give the sections of a file that ``write`` wrote; ValueError for another one."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected the JSON of make bench, schema {SCHEMA}")
    return [_outcome(section, path) for section in values["sections"]]


def _outcome(values: dict[str, Any], path: Path) -> Outcome:
    def run(_: object) -> None:
        raise RuntimeError(f"{path}: a section that was read cannot be run")

    found = Findings(
        figures=[Figure(**figure) for figure in values["figures"]],
        tables=[Table(**table) for table in values["tables"]],
        plots=[
            Plot(**{**plot, "series": [Series(**series) for series in plot["series"]]})
            for plot in values["plots"]
        ],
        notes=values["notes"],
    )
    section = Section(values["name"], values["purpose"], run)
    more = {key: values[key] for key in ("state", "problem", "seconds", "machine")}
    return Outcome(section, found, **more)
