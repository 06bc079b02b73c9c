"""``skeleton``: a small plugin to copy. docs/plugins.md walks through this file.

It counts context switches and interrupts of the machine from /proc/stat: an
event of its own, with an extra column.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from opd.plugin import (
    Column,
    Context,
    Event,
    Feature,
    Options,
    Stats,
    UnavailableError,
    about,
    hookimpl,
)

if TYPE_CHECKING:
    from opd.plugin import SampleFile, SampleWindow

# The event's name is what `opctl report -e` takes. Its number is yours and never
# changes its meaning. An extra column is a sum beside samples and weight.
SWITCHES = "SKELETON_SWITCHES"


class SkeletonOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands behind `--ext-feature skeleton:`; each option has a default and a meaning."""

    stat: Annotated[str, about("The file that is read.")] = "/proc/stat"
    scale: Annotated[int, about("Count only every so many switches.", ge=1, le=1000)] = 1

    def __post_init__(self) -> None:
        """Say what types cannot: this is a wrong command line, exit status 78."""
        if not self.stat.startswith("/"):
            raise ValueError(f"stat: expected an absolute path, got {self.stat!r}")


def unavailable() -> str:
    """Why this machine cannot run it; "" when it can."""
    return "" if Path("/proc/stat").exists() else "no /proc/stat here"


FEATURE = Feature(
    name="skeleton",
    summary="context switches and interrupts of the machine; a plugin to copy",
    options=SkeletonOptions,
    events=(
        Event(
            name=SWITCHES,
            number=1,
            unit="count",
            summary="context switches, from /proc/stat",
            columns=(
                Column(name="interrupts", unit="count", summary="interrupts meanwhile"),
                Column(name="looks", unit="count", summary="how often /proc/stat was read"),
            ),
        ),
    ),
    unavailable=unavailable,
)


class Reader:
    """What the plugin keeps between two hooks. They never run two at a time."""

    def __init__(self, options: SkeletonOptions) -> None:
        self.path = Path(options.stat)
        self.scale = options.scale
        self.before = self.read()
        self.windows = 0
        self.files = 0

    def read(self) -> dict[str, int]:
        """The two counters of the file, since boot."""
        found = {"ctxt": 0, "intr": 0}
        for line in self.path.read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word in found:
                found[word] = int(rest.split()[0])
        return found


_readers: dict[str, Reader] = {}


@hookimpl
def opd_ext_features() -> list[Feature]:
    """Which features this plugin offers: asked once, before anything else."""
    return [FEATURE]


@hookimpl
def opd_ext_init(feature: Feature, options: SkeletonOptions, context: Context) -> None:
    """Begin. What this raises as UnavailableError is no failure: the daemon goes on without."""
    try:
        reader = _readers[feature.name] = Reader(options)
    except OSError as error:
        raise UnavailableError(f"cannot read {options.stat}: {error.strerror}") from error

    def look(_start_ns: int, _end_ns: int) -> None:
        now = reader.read()
        switches = (now["ctxt"] - reader.before["ctxt"]) // reader.scale
        interrupts = now["intr"] - reader.before["intr"]
        reader.before = now
        reader.windows += 1
        if switches > 0:
            # hits are "samples" of the report, the second argument its weight.
            context.record(
                SWITCHES,
                switches,
                symbol="all CPUs",
                comm="kernel",
                columns={"interrupts": max(interrupts, 0)},
            )

    # Called for each window, on this feature's thread, before the window is stored.
    context.each_window(look)


@hookimpl
def opd_ext_deinit(feature: Feature) -> None:
    """End: also called when opd_ext_init failed, so nothing may be missed."""
    _readers.pop(feature.name, None)


@hookimpl
def opd_ext_print_stats(feature: Feature) -> Stats:
    """What `opctl stats skeleton` shows: numbers and short texts by name."""
    reader = _readers[feature.name]
    return Stats(
        {"windows": reader.windows, "files": reader.files, "switches": reader.before["ctxt"]}
    )


@hookimpl
def opd_sfile_create(sfile: SampleFile) -> None:
    """A window has samples of our event under a key for the first time."""
    for reader in _readers.values():
        reader.files += 1 if sfile.event == SWITCHES else 0


@hookimpl
def opd_sfile_dup(to: SampleFile, source: SampleFile) -> None:
    """`opctl save`: what goes on is a copy. Nothing to do: we keep nothing a file."""
    del to, source


@hookimpl
def opd_sfile_sync(sfile: SampleFile, window: SampleWindow) -> None:
    """Once a window, with whole columns: what is set here is stored with the window.

    `window.hits` and `window.weight` have a number for each row, and so must a column.
    """
    if sfile.event == SWITCHES:
        window.set_column("looks", window.hits)


@hookimpl
def opd_sfile_close(sfile: SampleFile) -> None:
    """Its session ended, or there are too many, or sampling ends."""
    for reader in _readers.values():
        reader.files -= 1 if sfile.event == SWITCHES else 0
