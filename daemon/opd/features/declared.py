"""What a plugin declares of a feature: plain data, checked when it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from opd.errors import OpdError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """


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


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """An active measurement that a feature offers."""

    name: str
    summary: str


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
    """What a feature says of itself: counters and words by name, at most 256."""

    values: dict[str, StatValue] = {}


class UnavailableError(OpdError):
    """Raised in ``opd_ext_init``: this machine cannot run the feature, for this reason."""

    code = "unavailable"
    exit_status = 78
