"""suite=functional: are the answers right? Those of both sides beside libc's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.errors import OpdError
from opd.features.declared import Need
from opd.features.dto.dsa import OFFLOADING, check_device, offloaded
from opd.features.dto.implementations import check, open_pair, sources_of

if TYPE_CHECKING:
    from opd.features.dto.options import DtoOptions
    from opd.probes.measuring import Measuring
    from opd_native.dto import Functions
    from opd_native.dto_functional import Functional

_SIDES = ("baseline", "current")
# Where a library begins to offload: what modes.py tells it, and what it does untold.
_THRESHOLD_TOLD, _THRESHOLD_UNTOLD = 4 << 10, 64 << 10
_LARGEST_BY_THRESHOLD = 4
_LARGEST_LEAST = 256 << 10
_GUARDS = 10 << 12


def threshold_of(options: DtoOptions) -> int:
    """The size around which the code goes another way: as asked, else where offload begins."""
    told = options.mode in OFFLOADING
    return options.threshold or (_THRESHOLD_TOLD if told else _THRESHOLD_UNTOLD)


def largest_of(options: DtoOptions) -> int:
    """The largest size tried: as asked, else four times the threshold."""
    return options.largest or max(_LARGEST_BY_THRESHOLD * threshold_of(options), _LARGEST_LEAST)


def needs(options: DtoOptions) -> Need:
    """What the suite takes: three arenas of two operands for each thread and a handler."""
    check_device(options)
    check(sources_of(options), [])
    arenas = options.threads + 2
    return Need(
        memory_bytes=arenas * 3 * (2 * largest_of(options) + _GUARDS), threads=options.threads
    )


def measure(options: DtoOptions, run: Measuring) -> None:
    """Try both sides; one difference makes the run void, and is told as the case it was."""
    import os

    from opd.features.dto.modes import ENVIRONMENT
    from opd_native.errors import NativeError

    os.environ.update(ENVIRONMENT[options.mode])
    try:
        pair = offloaded(open_pair(sources_of(options), [], tell=run.note), options, run)
        try:
            names = sources_of(options).sides()
            results = [
                _side(side, name, functions, options, run)
                for side, name, functions in zip(_SIDES, names, pair.functions(0), strict=True)
            ]
            run.sample("cases", sum(one.cases for one in results))
            run.sample("differences", sum(one.differences for one in results))
            run.detail("implementations", pair.details())
        finally:
            pair.close()
    except NativeError as error:
        run.void(str(error))
    except OpdError as error:
        run.void(error.message)
    wrong = [
        f"{side} {name} differs from libc: {one.first}"
        for side, name, one in zip(_SIDES, names, results, strict=True)
        if one.differences
    ]
    if wrong:
        run.void("; ".join(wrong))


def _side(
    side: str, name: str, functions: Functions, options: DtoOptions, run: Measuring
) -> Functional:
    """One side's cases, told."""
    from opd_native.dto import Op
    from opd_native.dto_functional import functional

    missing = [op.name.lower() for op in Op if not functions.has(op)]
    if missing:
        run.note(f"{side}: {name} has no {' and no '.join(missing)}")
    result = functional(
        functions,
        threshold=threshold_of(options),
        largest=largest_of(options),
        threads=options.threads,
        random=options.random_cases,
        seed=options.seed,
        limit=options.round_limit,
    )
    at = _SIDES.index(side)
    run.sample("cases", result.cases, worker=at)
    run.sample("differences", result.differences, worker=at)
    run.detail(f"{side}_cases", result._asdict())
    run.note(f"{side}: {name}: {result.cases} cases, {result.differences} differences from libc")
    run.progress(at + 1, len(_SIDES))
    return result
