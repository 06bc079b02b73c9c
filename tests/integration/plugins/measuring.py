"""A plugin with probes: one that measures, one that breaks, one that says too much."""

from __future__ import annotations

import os
import time
from typing import Annotated

from opd.plugin import Feature, Metric, Need, Probe, ProbeOptions, about, hookimpl


class Touch(ProbeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all of them."""

    memory: Annotated[int, about("Memory to touch.", ge=4096, unit="size")] = 1 << 20
    repeats: Annotated[int, about("How often.", ge=1)] = 3
    how: Annotated[str, about("What goes wrong.")] = ""


def touch(options, run):
    """Measure, or do what goes wrong."""
    if options.how == "void":
        run.void("the disk is on fire")
    if options.how == "raise":
        raise RuntimeError("on purpose")
    if options.how == "exit":
        os._exit(3)
    if options.how == "unknown":
        run.sample("wat", 1.0)
    if options.how == "infinite":
        run.sample("ns_per_page", float("inf"))
    if options.how == "print":
        print("x" * (1 << 20), flush=True)  # noqa: T201 - what a plugin may do
    if options.how == "stats":
        run.stats({"a": [1]})
    for repeat in range(options.repeats):
        began = time.perf_counter_ns()
        memory = bytearray(options.memory)
        memory[::4096] = b"t" * len(memory[::4096])
        took = time.perf_counter_ns() - began
        run.sample("ns_per_page", took * 4096 / options.memory, repeat=repeat)
        run.progress(repeat + 1, options.repeats)
    run.stats({"cpus": len(run.cpus), "colour": "blue"})
    run.note("touched")
    run.detail("table", {"a": [1, 2]})


def needs(options):
    """What it takes."""
    return Need(memory_bytes=options.memory)


def as_words(results):
    """Another form of output."""
    return "".join(f"touch {one['parameters']['memory']}\n" for one in results)


@hookimpl
def opd_ext_features():
    """A feature whose probe is not called as it is."""
    probe = Probe(
        name="touch",
        summary="what the first touch of a page costs",
        options=Touch,
        metrics=(Metric(name="ns_per_page", unit="ns"),),
        measure=touch,
        needs=needs,
        suites={"two": "memory=64k+128k"},
        texts={"words": as_words},
        examples=("memory=64k",),
    )
    return [Feature(name="measuring", summary="of a test", probes=(probe,))]
