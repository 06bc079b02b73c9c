"""What ``opd --list-events`` and ``opd --check-events`` print."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from opd.cli import output
from opd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.config import SamplingSettings
    from opd.events.cpucatalogue import Catalogue
    from opd.events.listing import EventListing

_WIDTH = 96


def print_checked(specs: Sequence[str], sampling: SamplingSettings, form: str) -> None:
    """One token an event on one line, or a JSON object with the counter map.

    Raises ConfigError, with nothing printed, where one of them is wrong.
    """
    from opd.events import catalogue_of
    from opd.events.check import check_events

    output.require_stdout()
    if not specs:
        raise ConfigError(
            "--check-events: expected events, got none",
            hint="opd --check-events CPU_CLK_UNHALTED:100000 IBS_OP_ALL:100000",
        )
    catalogue = catalogue_of(sampling)
    checked = check_events(specs, catalogue=catalogue)
    if form == "json":
        _print_json(
            {
                "cpu_type": catalogue.cpu_type,
                "tokens": [event.token for event in checked],
                "counter_map": [event.counter for event in checked],
                "events": msgspec.to_builtins(checked),
            }
        )
        return
    output.write(" ".join(event.token for event in checked))


def print_events(sampling: SamplingSettings, form: str) -> None:
    """Every event that can be asked for: of the events files, of perf, and tracepoints."""
    from opd.events import catalogue_of
    from opd.events.listing import list_events

    output.require_stdout()
    catalogue = catalogue_of(sampling)
    listings = list_events(catalogue=catalogue, tracepoints=not sampling.cpu_type)
    if form == "json":
        facts = {"cpu_type": catalogue.cpu_type, "counters": catalogue.events.counters}
        _print_json(facts | {"events": msgspec.to_builtins(listings)})
        return
    rows = [("EVENT", "KIND", "UNIT", "DEFAULT", "HERE")]
    for event in listings:
        here = "yes" if event.available else f"no: {event.reason}"
        name = " or ".join((event.name, *event.aliases))
        rows.append((name, event.kind, event.unit, event.default, here))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        output.write("  ".join(cells).rstrip())
    _print_details(catalogue, [event for event in listings if event.number is not None])


def _print_details(catalogue: Catalogue, listings: Sequence[EventListing]) -> None:
    """What the files say of each event: where it is counted, its least count, its masks."""
    counters = catalogue.events.counters
    output.write(f"\nEvents of {catalogue.cpu_type}, which has {counters or 'no'} counters:")
    for event in listings:
        output.write(f"\n{event.name}: ({_where(event, counters)})")
        text = f"{event.summary} (min count: {event.minimum})"
        for line in textwrap.wrap(text, _WIDTH, break_long_words=False):
            output.write(f"    {line}")
        if event.unit_masks and event.unit_mask_type != "mandatory":
            output.write(
                f"    unit masks ({event.unit_mask_type}, default {event.unit_mask:#04x}):"
            )
            for entry in event.unit_masks:
                name = f" {entry.name}" if entry.name else ""
                output.write(f"        {entry.value:#04x}{name}: {entry.text}")


def _where(event: EventListing, counters: int) -> str:
    if event.ext:
        return f"ext: {event.ext}"
    if not event.counters:
        return "counter: none"
    every = len(event.counters) == counters
    return f"counter: {'all' if every else ', '.join(map(str, event.counters))}"


def _print_json(value: Any) -> None:
    output.write(json.dumps(value, separators=(",", ":")))
