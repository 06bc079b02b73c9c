"""Each option of each probe once, with its figure, and what this machine refuses in its words.

What is run is the probe's own list (Probe.examples), which names every option
at least once: a test says so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bench.harness.section import Section
from opd.errors import OpdError
from opd.features.registry import Registry
from opd.probes import results, running
from opd.probes.jobs import limits_of

if TYPE_CHECKING:
    from bench.harness.section import Context
    from opd.features.declared import Probe
    from opd.probes.running import Outcome

# By probe, the metrics shown; of others the first ones.
_SHOWN = {
    "pft": ("pages", "faults_measured", "ns_per_fault", "ns_per_page", "faults_per_cpu_second"),
    "pchase": ("latency_ns", "ns_per_load", "bandwidth_bytes_per_second", "l1_ns", "pass_ns"),
}
_METRICS = 5
_TURNS = 25  # of them one after the other are a good deal for the quick


def run(context: Context) -> None:
    """Run the examples of every probe that has some, one after the other."""
    for plugin in Registry().plugins():
        for feature in plugin.features:
            for probe in feature.probes:
                if probe.examples:
                    _run_all(context, probe)


def _run_all(context: Context, probe: Probe) -> None:
    names = _SHOWN.get(probe.name) or tuple(one.name for one in probe.metrics[:_METRICS])
    rows = []
    counts: Counter[str] = Counter()
    examples = probe.examples[: context.choose(None, _TURNS)]
    for at, text in enumerate(examples):
        context.progress(f"{probe.name} {text}: {at} of {len(examples)}")
        for what, cells, said in _one(probe, text, names):
            counts[what] += 1
            rows.append([text, *cells, said])
    title = f"{probe.name}: each option once ({', '.join(f'{n} {w}' for w, n in counts.items())})"
    context.table(title, ["options", *names, "event", "said"], rows)
    for what in ("run", "refused", "void"):
        context.figure(f"options.{probe.name}.{what}", counts[what], "examples")


def _one(probe: Probe, text: str, names: tuple[str, ...]) -> list[tuple[str, list[str], str]]:
    """What became of each measurement of a text, its cells, and what was said."""
    nothing = ["-"] * (len(names) + 1)
    try:
        planned = running.plan(probe.name, text)
    except OpdError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return [("refused", nothing, f"refused: {error.message}{hint}")]
    found = []
    for parameters in planned.parameters:
        outcome = running.measure(probe.name, [parameters], limits=limits_of(parameters))
        notes = [*planned.notes, *outcome.notes.get(0, ())]
        if outcome.void:
            found.append(("void", nothing, f"void: {outcome.void}"))
            continue
        metrics = {one["name"]: one for one in results.metrics_of(outcome, 0, planned.metrics)}
        cells = [f"{metrics[name]['median']:.6g}" if name in metrics else "-" for name in names]
        found.append(("run", [*cells, _event(outcome)], "; ".join(notes)))
    return found


def _event(outcome: Outcome) -> str:
    """What the kernel's own event counted, where the probe asked it."""
    told: Any = outcome.details.get(0, {}).get("fault_count")
    return str(told["kernel_event"]) if told else "-"


SECTION = Section(
    "options",
    "each option of each probe once, and what this machine refuses",
    run,
    by_default=False,
)
