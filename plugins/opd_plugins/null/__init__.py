"""``null``: does nothing but count its hooks and feed in constants, to test and measure opd."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from opd.plugin import Column, Context, Event, Feature, Options, Stats, about, hookimpl

if TYPE_CHECKING:
    from opd.plugin import SampleFile, SampleWindow

EVENT = "NULL_RECORD"


class NullOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the feature ``null``."""

    records: Annotated[int, about("Records fed in with each window.", ge=0, le=100_000)] = 1
    weight: Annotated[int, about("Weight of each of them.", ge=0, le=1 << 32)] = 1
    bytes: Annotated[int, about("What each adds to the column bytes.", unit="size", ge=0)] = 4096
    symbols: Annotated[
        tuple[str, ...], about("What they are about, in turn: symbols in reports.")
    ] = ("null",)


FEATURE = Feature(
    name="null",
    summary="feeds in constants and counts its hooks, to test and measure opd itself",
    options=NullOptions,
    events=(
        Event(
            name=EVENT,
            number=0,
            summary="a record that means nothing",
            columns=(Column(name="bytes", unit="bytes", summary="a constant of each record"),),
        ),
    ),
)

_calls: Counter[str] = Counter()


@hookimpl
def opd_ext_features() -> list[Feature]:
    """There is one."""
    return [FEATURE]


@hookimpl
def opd_ext_init(options: NullOptions, context: Context) -> None:
    """Feed in what the options say, with each window."""
    _calls["init"] += 1

    def feed(_start_ns: int, _end_ns: int) -> None:
        share, rest = divmod(options.records, len(options.symbols))
        for at, symbol in enumerate(options.symbols):
            if hits := share + (at < rest):
                context.record(
                    EVENT,
                    options.weight * hits,
                    hits=hits,
                    symbol=symbol,
                    comm="null",
                    columns={"bytes": options.bytes * hits},
                )

    context.each_window(feed)


@hookimpl
def opd_ext_deinit() -> None:
    """Begin to count anew."""
    _calls.clear()


@hookimpl
def opd_ext_print_stats() -> Stats:
    """How often each hook was called."""
    return Stats(dict(_calls))


@hookimpl
def opd_sfile_create(sfile: SampleFile) -> None:
    """Count it."""
    _calls["create"] += 1 if sfile.event else 0


@hookimpl
def opd_sfile_dup(to: SampleFile, source: SampleFile) -> None:
    """Count it."""
    _calls["dup"] += 1 if to.session != source.session else 0


@hookimpl
def opd_sfile_sync(sfile: SampleFile, window: SampleWindow) -> None:
    """Count it, and the rows."""
    _calls["sync"] += 1 if sfile.event else 0
    _calls["rows"] += len(window)


@hookimpl
def opd_sfile_close(sfile: SampleFile) -> None:
    """Count it."""
    _calls["close"] += 1 if sfile.event else 0
