"""The named benchmarks, and the suites that they make.

A benchmark is an operation, a size, maybe page faults; some are for reference
only, since small operations vary much. Each is measured in every mode with
both kinds of pages. Mode ``cpu`` is libc against itself, what speed-ups are
relative to: it never gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opd.errors import UsageError
from opd.features.arguments import split, unescape
from opd.features.declared import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

K, M = 1 << 10, 1 << 20
MODES = ("cpu", "stdc", "dsa", "dsa_auto")
PAGES = ("4k", "2m")
# What a suite's member says itself; given, it chooses among the members.
_CHOOSES = ("op", "size", "pf", "mode", "page")
_OF_SIDES = (
    *("baseline", "current", "tree", "build", "current_build", "artifact", "link", "inject"),
    *("build_limit", "layouts", "reference"),
)
_TRUE = ("1", "true", "yes", "on")


class Benchmark(NamedTuple):
    """One of the named ones. ``reference``: its verdict decides nothing."""

    op: str
    size: int
    pf: int = 0
    reference: bool = False

    @property
    def name(self) -> str:
        """As tables and patterns have it."""
        return name_of(self.op, self.size, self.pf)


BENCHMARKS = (
    Benchmark("memcpy", 4 * K, reference=True),
    Benchmark("memcpy", 8 * K, reference=True),
    *(Benchmark("memcpy", size * K) for size in (16, 32, 64, 128, 256, 512)),
    Benchmark("memcpy", 1 * M),
    Benchmark("memcpy", 1 * M, pf=50),
    *(Benchmark("memset", size) for size in (64 * K, 128 * K, 256 * K, 1 * M)),
    *(Benchmark("memcmp", size) for size in (64 * K, 128 * K, 1 * M)),
)
SANITY = ("memcpy_4k", "memcpy_64k", "memcpy_1m", "memset_64k")
# Quick, and decided all the same where the machine is quiet: more processes of few iterations.
_SANITY_AMOUNT = {"iterations": "100", "rounds": "4"}


def name_of(op: str, size: int, pf: int = 0) -> str:
    """The name of what is measured.

    >>> name_of("memcpy", 1 << 20, 50), name_of("memcmp", 100)
    ('memcpy_1m_pf50', 'memcmp_100')
    """
    text = str(size)
    for letter, factor in (("m", M), ("k", K)):
        if size % factor == 0:
            text = f"{size // factor}{letter}"
            break
    return f"{op}_{text}" + (f"_pf{pf}" if pf else "")


def benchmark_of(parameters: Mapping[str, Any]) -> str:
    """The name of what a run measured."""
    return name_of(parameters["op"], parameters["size"], parameters["pf"])


def _perf(given: Mapping[str, str]) -> list[tuple[str, str]]:
    is_short = given.get("perf_short", "").lower() in _TRUE
    return list(_members(given, SANITY if is_short else None, {}))


def _sanity(given: Mapping[str, str]) -> list[tuple[str, str]]:
    return list(_members(given, SANITY, _SANITY_AMOUNT))


def _members(
    given: Mapping[str, str], names: tuple[str, ...] | None, amount: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Names and options: a benchmark, then its modes, then its pages."""
    rest = {key: text for key, text in given.items() if key not in _CHOOSES}
    modes, pages = _asked(given, "mode", MODES), _asked(given, "page", PAGES)
    for one in BENCHMARKS:
        if (names is not None and one.name not in names) or not _is_asked(given, one):
            continue
        own = {"op": one.op, "size": str(one.size), "pf": str(one.pf), "cold": "1", **amount}
        for mode in modes:
            sides = rest
            reference = one.reference
            if mode == "cpu":
                sides = {key: text for key, text in rest.items() if key not in _OF_SIDES}
                reference = True
            words = {**own, "mode": mode, "page": "+".join(pages), **sides}
            if reference:
                words["reference"] = "1"
            yield one.name, ",".join(f"{key}={text}" for key, text in words.items())


def _asked(given: Mapping[str, str], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if key not in given:
        return known
    asked = [unescape(item) for item in split(given[key], "+")]
    if wrong := [item for item in asked if item not in known]:
        raise UsageError(f"{key}={wrong[0]}: expected {' or '.join(known)}")
    return tuple(item for item in known if item in asked)


def _is_asked(given: Mapping[str, str], one: Benchmark) -> bool:
    """Whether op, size and pf, where given, are this benchmark's."""
    names = {"op": {one.op}, "pf": {str(one.pf)}, "size": _spellings(one.size)}
    return all(
        key not in given or names[key] & {unescape(item).lower() for item in split(given[key], "+")}
        for key in names
    )


def _spellings(size: int) -> set[str]:
    found = {str(size)}
    for letter, factor in (("m", M), ("k", K)):
        if size % factor == 0:
            found |= {f"{size // factor}{letter}{rest}" for rest in ("", "b", "ib")}
    return found


def _functional(given: Mapping[str, str]) -> list[tuple[str, str]]:
    words = {"what": "answers", **given}
    return [("functional", ",".join(f"{key}={text}" for key, text in words.items()))]


SUITES: dict[str, str | Suite] = {
    "functional": Suite(
        summary="every answer of both sides beside libc's",
        members=_functional,
        labels=("functional",),
    ),
    "perf": Suite(
        summary="the 17 benchmarks in each mode with both kinds of pages",
        members=_perf,
        labels=("perf",),
    ),
    "sanity": Suite(
        summary="four of them, few iterations: to see whether it works",
        members=_sanity,
        labels=("perf", "sanity"),
    ),
}
