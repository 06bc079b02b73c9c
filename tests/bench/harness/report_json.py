"""The run as one JSON file; its schema is in docs/benchmarks.md."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.budgets import Verdict
    from bench.harness.section import Outcome

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
