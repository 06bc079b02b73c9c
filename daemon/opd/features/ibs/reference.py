"""The tables of docs/ibs.md, from where they are kept: ``python -m opd.features.ibs.reference``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from opd.features.ibs.options import FetchOptions, OpOptions
from opd.features.options import describe
from opd.store.precise.definitions import METRICS
from opd_native.ibs import Flavour, derived_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def event_rows(flavour: Flavour) -> Iterator[str]:
    """All derived events of a PMU: number, name, unit, meaning, exact bits, where, errata."""
    yield from _head("number", "event", "weight", "what it counts", "bits", "where", "errata")
    for event in derived_events():
        if event.flavour is flavour:
            unit = event.unit if event.sums else "period"
            about = (event.description, f"`{event.condition}`", event.valid, event.errata)
            yield _row(f"{event.number:#06x}", f"`{event.name}`", unit, *about)


def metric_rows() -> Iterator[str]:
    """All metrics."""
    yield from _head("metric", "what it is", "of")
    for metric in METRICS.values():
        of = " + ".join(f"`{event}`" for event in metric.events)
        if metric.over:
            of += " / " + (" + ".join(f"`{event}`" for event in metric.over))
        yield _row(f"`{metric.name}`", metric.meaning, of)


def option_rows() -> Iterator[str]:
    """All options of both features."""
    yield from _head("option", "of", "type", "default", "meaning")
    fetch = {option.name: option for option in describe(FetchOptions)}
    op = {option.name: option for option in describe(OpOptions)}
    for name in dict.fromkeys([*fetch, *op]):
        both = name in fetch and name in op
        if both and fetch[name] != op[name]:
            yield _row(f"`{name}`", "fetch", *fetch[name][1:])
            yield _row(f"`{name}`", "op", *op[name][1:])
            continue
        option = fetch.get(name) or op[name]
        yield _row(f"`{name}`", "both" if both else "fetch" if name in fetch else "op", *option[1:])


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "options": option_rows,
    "metrics": metric_rows,
    "events of fetches": lambda: event_rows(Flavour.FETCH),
    "events of ops": lambda: event_rows(Flavour.OP),
}


def filled(text: str) -> str:
    """The page with the tables between ``<!-- NAME -->`` and ``<!-- end -->`` as they are now."""
    for name, rows in TABLES.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(rows()) + "\n" + end + rest.partition(end)[2]
    return text


def _head(*names: str) -> Sequence[str]:
    return _row(*names), _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in cells) + " |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
