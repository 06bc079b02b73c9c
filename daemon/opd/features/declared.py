"""What a plugin declares of a feature: plain data, checked when it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from opd.errors import OpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from opd.probes.measuring import Measuring

    Columns = Mapping[tuple[str, int], Sequence[float]]
    Samples = Callable[[dict[str, Any]], Columns]
    Files = Callable[[list[dict[str, Any]], Samples, Path, Callable[[str], None]], None]

U64_MOST = (1 << 64) - 1

SIZE = "size"


def about(
    meaning: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    unit: str = "",
) -> msgspec.Meta:
    """What an option means, for ``Annotated``: a sentence, bounds, the unit of its number.

    ``unit="size"``: the text may end in k, m or g (powers of 1024).
    """
    return msgspec.Meta(description=meaning, ge=ge, le=le, extra={"unit": unit})


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a feature's options: every field has a default and is ``Annotated`` by ``about``.

    Types: int, float, bool, str, Literal of them, a tuple of one of these.
    What must hold beyond types, ``__post_init__`` says by raising ValueError
    with the wrong token and the valid ones: that is exit status 78, before
    anything of the machine is asked.

    ``exclusive``: pairs of options of which one is given. It sees what
    ``__post_init__`` cannot: a value given that is the default too. The second
    counts as given when it is not as it is by default.
    """

    exclusive: ClassVar[tuple[tuple[str, str], ...]] = ()


class ReplayOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the options of a feature whose records can be in a recording."""

    replay: Annotated[str, about("A perf.data file whose records to take.")] = ""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """An extra column of an event: a sum beside samples and weight."""

    name: str
    unit: str
    summary: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a feature gives; valid in its options on every machine.

    ``number`` is the feature's own and never changes its meaning. ``unit`` is
    of the weight: ``ns`` (time: reports show cores), ``count``, ``bytes``,
    ``cycles``, any word. ``minimum`` and ``maximum`` bound a count (period)
    that is asked for it; 0: the event takes none.
    """

    name: str
    number: int
    summary: str
    unit: str = "count"
    columns: tuple[Column, ...] = ()
    minimum: int = 0
    maximum: int = 0


class ProbeOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a probe's options: what opd itself sees to, whatever is measured.

    An option that is no list becomes a sweep when it is given as a list by
    ``+``: each value is a measurement of its own.
    """

    cpus: Annotated[
        tuple[str, ...], about("CPUs to run on, such as 0-3+8. Empty: all that are allowed.")
    ] = ()
    nice: Annotated[int, about("The nice value of the probe; 0: as it is.", ge=-20, le=19)] = 0
    fifo: Annotated[int, about("The priority of SCHED_FIFO; 0: not asked for.", ge=0, le=98)] = 0
    memory_cap: Annotated[
        int, about("Memory that it may use at most; 0: what fits.", ge=0, unit=SIZE)
    ] = 0
    time_limit: Annotated[float, about("Seconds after which it is killed.", ge=0.1, le=86_400)] = (
        600.0
    )


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a probe measures. ``better``: which way is better."""

    name: str
    unit: str
    better: Literal["lower", "higher", "neither"] = "lower"
    summary: str = ""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement takes at most; asked before it runs.

    ``memory_bytes``: all that it touches. ``locked_bytes`` of it are locked.
    ``threads``: how many run at once. ``missing``: what this machine lacks for
    it, in words; then it is refused, and a suite leaves it out and says so.
    """

    memory_bytes: int = 0
    locked_bytes: int = 0
    threads: int = 1
    missing: str = ""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """Named measurements of a probe, chosen among by ``select=PATTERN+…`` and ``label=LABEL+…``.

    ``members(given)``: name and text of options of each, in order; a text may
    sweep. ``given`` are the texts of the other options asked for, which the
    members have to hold as far as they go together.
    """

    summary: str
    members: Callable[[Mapping[str, str]], Sequence[tuple[str, str]]]
    labels: tuple[str, ...] = ()


def _needs_nothing(_options: Any) -> Need:
    return Need()


def _runs_nothing(_options: Any) -> str:
    return ""


def _prepares_nothing(_options: Sequence[Any], _tell: Callable[[str], None]) -> None:
    pass


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """An active measurement that a feature offers; opd runs it in a child process.

    ``measure(options, run)`` measures once with these options, which may be
    several repeats: it gives ``run`` (opd.plugin.Measuring) each raw sample.
    It runs in a process of its own, with the CPUs, nice value and scheduling
    policy of the options set, and may be killed at any moment. In a
    comparison it is called again and again, in turn with the other's options.

    ``needs(options)`` says what it will take. It raises UsageError for what
    this machine does not have (a node, huge pages), naming what there is.
    ``sets_fifo``: measure sees to ``fifo`` itself. ``suites``: by name texts of
    options, which ``suite=NAME`` stands for, or a Suite. ``texts``: other forms
    of output by name (``--format NAME``): a function from the results, maps as
    docs/probes.md has them, to text. ``examples``: texts of options, each quick to
    measure, that together name every option: what ``make bench ARGS=options`` runs.

    ``runs_code(options)``: what code of the asker's it runs, in words, "" when
    none: then opd runs it as the asker, or not at all, and before anything is
    measured calls ``prepare(all_options, tell)`` once, in a process of its own,
    which raises OpdError for what cannot be; ``tell(words)`` says how far it is.
    ``files(results, samples, directory, say)`` writes the files of
    ``results_dir=DIRECTORY``, as the one who asked: ``samples(result)`` gives
    the raw ones by (metric, worker), ``say(words)`` tells what was left out.
    ``pictures(result, samples)`` are drawn of a kept run beside those that opd
    draws of any (opd.probes.pictures.Picture).
    """

    name: str
    summary: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Any, Measuring], None]
    options: type[ProbeOptions] = ProbeOptions
    needs: Callable[[Any], Need] = _needs_nothing
    sets_fifo: bool = False
    suites: Mapping[str, str | Suite] = {}
    texts: dict[str, Callable[[list[dict[str, Any]]], str]] = {}
    runs_code: Callable[[Any], str] = _runs_nothing
    prepare: Callable[[Sequence[Any], Callable[[str], None]], None] = _prepares_nothing
    files: Files | None = None
    pictures: Callable[[dict[str, Any], Columns], list[Any]] | None = None
    examples: tuple[str, ...] = ()


def _always() -> str:
    return ""


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """One extended feature.

    ``name``: lower case letters, digits and ``_``. ``unavailable`` gives the
    reason why this machine cannot run it, ``""`` when it can; it is asked in
    ``opd --list-features`` and before ``opd_ext_init``, on the feature's
    thread, under the same bounds as a hook.
    """

    name: str
    summary: str
    options: type[Options] = Options
    events: tuple[Event, ...] = ()
    probes: tuple[Probe, ...] = ()
    unavailable: Callable[[], str] = _always


StatValue: TypeAlias = int | float | str


class Stats(msgspec.Struct, frozen=True):
    """What a feature says of itself: counters and words by name, at most 256.

    ``document``: the same as one JSON object, whatever it holds (4 MiB at
    most); ``opctl stats NAME --format json`` prints it alone. ``notes``: lines
    that the table for people shows beside it, at most 16.
    """

    values: dict[str, StatValue] = {}
    document: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class UnavailableError(OpdError):
    """Raised in ``opd_ext_init``: this machine cannot run the feature, for this reason."""

    code = "unavailable"
    exit_status = 78
