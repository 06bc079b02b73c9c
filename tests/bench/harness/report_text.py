"""Plain tables on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.harness.budgets import Verdict
    from bench.harness.figures import Figure, Table


def print_table(table: Table) -> None:
    """Print rows in columns under a title."""
    widths = [
        max(len(row[i]) for row in [table.header, *table.rows]) for i in range(len(table.header))
    ]
    print(f"\n{table.title}")
    for row in [table.header, *table.rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def number(value: float | None) -> str:
    """Give a number with three or four telling digits."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value)}"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def figure_text(figure: Figure) -> str:
    """Give a figure with its spread."""
    text = f"{number(figure.value)} {figure.unit}".rstrip()
    if figure.n > 1 and figure.low is not None:
        text += f" ({number(figure.low)}..{number(figure.high)}, n={figure.n})"
    return text


def machine_line(facts: dict[str, Any]) -> str:
    """Give the machine in one line."""
    memory = facts["memory_bytes"] / (1 << 30)
    kind = "guest" if facts["hypervisor"] else "bare metal"
    pmu = "PMU" if facts["core_pmu"] else "no PMU"
    load = ", ".join(f"{value:.2f}" for value in facts["load"])
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs, {memory:.0f} GiB, {kind}, {pmu}, "
        f"Linux {facts['kernel']}, Python {facts['python']}; load {load}"
    )


def disturbance_line(machine: dict[str, Any]) -> str:
    """Say how quiet the machine was during a section."""
    text = (
        f"others took {100 * machine['others_share']:.0f} % of the CPUs, "
        f"steal {100 * machine['steal_share']:.1f} %, load {machine['load'][0]:.2f}"
    )
    return f"BUSY MACHINE: {text}; distrust wall times" if machine["busy"] else text


def print_budgets(verdicts: list[Verdict]) -> None:
    """Print each budget with its figure."""
    from bench.harness.figures import Table

    rows = [[v.verdict, v.budget.what, v.budget.says, v.measured] for v in verdicts]
    print_table(Table("Budgets", ["", "what", "at most", "measured"], rows))
