"""The run as one page: no script, nothing fetched, dark or light as the reader has it."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING, Any

from bench.harness.plots import svg
from bench.harness.report_text import disturbance_line, figure_text, machine_line

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.budgets import Verdict
    from bench.harness.figures import Table
    from bench.harness.section import Outcome

_STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfa; --ink: #1f2328; --soft: #5c636b;
  --grid: #d9dce0; --good: #1a7f37; --bad: #b3261e;
  --series-1: #2f6fb0; --series-2: #d9822b; --series-3: #2c8c5a; --series-4: #8a58b5;
  --series-5: #c0455a; --series-6: #6b7c1f; --series-7: #1a8a92; --series-8: #7a5c43; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e4e7ea; --soft: #9aa3ac;
  --grid: #363c43; --good: #57c178; --bad: #f2766b;
  --series-1: #6cabea; --series-2: #f0a85c; --series-3: #63c491; --series-4: #bd93e0;
  --series-5: #ef8294; --series-6: #b4c45c; --series-7: #5cc4cb; --series-8: #c4a184; } }
body { background: var(--paper); color: var(--ink); margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.soft, td.soft { color: var(--soft); }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; white-space: nowrap; }
td.text { white-space: normal; }
.met { color: var(--good); font-weight: 600; } .missed { color: var(--bad); font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
details { margin: .6rem 0; } nav a { margin-right: .9rem; } a { color: var(--series-1); }
"""


def page(head: dict[str, Any], outcomes: list[Outcome], verdicts: list[Verdict]) -> str:
    """Give the page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>opd bench {escape(head['opd'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>opd {escape(head['opd'])}, measured {escape(head['started'])}</h1>",
        f"<p>{escape(machine_line(head['machine']))}</p>",
        f'<p class="soft"><code>{escape(head["command"])}</code></p>',
        "<nav>" + "".join(_link(outcome) for outcome in outcomes) + "</nav>",
        "<h2>Budgets</h2>",
        _budgets(verdicts),
        *map(_section, outcomes),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def write(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _link(outcome: Outcome) -> str:
    name = escape(outcome.section.name)
    return f'<a href="#{name}">{name}</a>'


def _budgets(verdicts: list[Verdict]) -> str:
    rows = "".join(
        f'<tr><td class="{v.verdict.split()[0]}">{v.verdict}</td><td class="text">'
        f"{escape(v.budget.what)}</td><td>{escape(v.budget.says)}</td>"
        f'<td class="text">{escape(v.measured)}</td></tr>'
        for v in verdicts
    )
    header = "<tr><th></th><th>what</th><th>at most</th><th>measured</th></tr>"
    return f'<div class="wide"><table>{header}{rows}</table></div>'


def _section(outcome: Outcome) -> str:
    found, name = outcome.findings, escape(outcome.section.name)
    parts = [f'<section id="{name}"><h2>{name}</h2><p>{escape(outcome.section.purpose)}</p>']
    if outcome.state != "done":
        parts.append(f'<p class="missed">{outcome.state} {escape(outcome.problem)}</p>')
    if outcome.machine:
        quiet = f"{outcome.seconds:.0f} s; {disturbance_line(outcome.machine)}"
        parts.append(f'<p class="soft">{escape(quiet)}</p>')
    if found.plots:
        drawn = (
            f"<figure><figcaption>{escape(plot.title)}</figcaption>{svg(plot)}</figure>"
            for plot in found.plots
        )
        parts.append(f'<div class="plots">{"".join(drawn)}</div>')
    parts += map(_table, found.tables)
    parts += (f'<p class="soft">{escape(note)}</p>' for note in found.notes)
    rows = "".join(
        f"<tr><td>{escape(figure.key)}</td><td>{escape(figure_text(figure))}</td>"
        f'<td class="soft text">{escape(figure.note)}</td></tr>'
        for figure in found.figures
    )
    parts.append(
        f"<details><summary>{len(found.figures)} figures</summary>"
        f'<div class="wide"><table>{rows}</table></div></details></section>'
    )
    return "\n".join(parts)


def _table(table: Table) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>"
    return f'<div class="wide"><table>{caption}<tr>{header}</tr>{rows}</table></div>'
