"""What is drawn of runs: lines over the option in which they differ, curves, histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BINS = 60
_MANY = 400
_LINES_MOST = 12  # in one picture; more are told apart by nobody
# Where workers are one or the other, how many there are is one axis.
_WORKERS = ("threads", "processes")

Point = tuple[float, float, float, float]


class Picture(NamedTuple):
    """Points with where the truth lies (x, y, low, high), or bars (from, count, to, 0).

    ``more``: further lines of the same axes, by name; ``name`` is the first one's.
    """

    title: str
    x: str
    y: str
    kind: str  # line or bars; curve: a line without marks; violin: (place, value, width, 0)
    points: list[Point]
    name: str = ""
    more: tuple[tuple[str, list[Point]], ...] = ()

    @property
    def lines(self) -> list[tuple[str, list[Point]]]:
        """All lines by name."""
        return [(self.name, self.points), *self.more]


def pictures_of(
    results: Sequence[dict[str, Any]], samples: Sequence[dict[str, Sequence[float]]]
) -> list[Picture]:
    """Lines for each metric over an option in which runs differ; curves and histograms of each.

    ``samples``: of each result the raw ones by metric.
    """
    good = [one for one in results if not one["void"]]
    found: list[Picture] = []
    for probe in dict.fromkeys(one["probe"] for one in good):
        found += _lines([one for one in good if one["probe"] == probe])
    for one, columns in zip(results, samples, strict=True):
        found += _of_details(one)
        for metric in one["metrics"]:
            values = columns.get(metric["name"], ())
            if len(values) > 2:
                title = f"{one['probe']} {one['id']}: {metric['name']}, {len(values)} samples"
                found.append(Picture(title, metric["unit"], "samples", "bars", _histogram(values)))
    return found


# ---- several runs


def _lines(results: Sequence[dict[str, Any]]) -> list[Picture]:
    """A picture a metric: over the one number in which runs differ, a line for all else."""
    results = [{**one, "parameters": _with_workers(one["parameters"], results)} for one in results]
    differing = [
        name
        for name in (results[0]["parameters"] if results else ())
        if len({str(one["parameters"].get(name)) for one in results}) > 1
    ]
    numbers = [
        name for name in differing if all(_is_number(one["parameters"][name]) for one in results)
    ]
    if not numbers:
        return []
    # Of several the one with most values: the others are lines.
    option = max(numbers, key=lambda name: len({one["parameters"][name] for one in results}))
    others = [name for name in differing if name != option]
    found = []
    for name, unit in dict.fromkeys(
        (metric["name"], metric["unit"]) for one in results for metric in one["metrics"]
    ):
        lines = _of_metric(results, name, option, others)
        if not lines:
            continue
        title = f"{results[0]['probe']}: {name}, median with its interval"
        (first, points), *more = list(lines.items())[:_LINES_MOST]
        if len(lines) > _LINES_MOST:
            title += f" ({_LINES_MOST} of {len(lines)} lines)"
        found.append(Picture(title, option, unit, "line", points, first, tuple(more)))
    return found


def _of_metric(
    results: Sequence[dict[str, Any]], name: str, option: str, others: Sequence[str]
) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for one in results:
        parameters = one["parameters"]
        label = ", ".join(f"{other}={_text(parameters.get(other))}" for other in others)
        for metric in one["metrics"]:
            if metric["name"] == name and _is_number(metric["median"]):
                median = metric["median"]
                low, high = (
                    median if metric[end] is None else metric[end] for end in ("low", "high")
                )
                point = (float(parameters[option]), median, low, high)
                lines.setdefault(label, []).append(point)
    return {label: sorted(points) for label, points in lines.items()}


def _with_workers(parameters: dict[str, Any], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Parameters where threads and processes are one number, if runs differ in both."""
    if any(len({one["parameters"].get(name) for one in results}) < 2 for name in _WORKERS):
        return parameters
    rest = {name: value for name, value in parameters.items() if name not in _WORKERS}
    processes = parameters["processes"]
    how = "processes" if processes else "threads"
    return {**rest, "workers": processes or parameters["threads"], "as": how}


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- one run


def _of_details(one: dict[str, Any]) -> Iterator[Picture]:
    """Histograms that a probe counted itself, and curves of latency by size."""
    about = f"{one['probe']} {one['id']}"
    for name, value in one.get("details", {}).items():
        if not isinstance(value, dict):
            continue
        counts = [key for key in value if key not in ("from", "to", "unit")]
        if {"from", "to"} <= set(value) and len(counts) == 1:
            bars = zip(value["from"], value[counts[0]], value["to"], strict=True)
            points = [(begin, float(count), end, 0.0) for begin, count, end in bars]
            if points:
                unit = str(value.get("unit", ""))
                yield Picture(f"{about}: {name}", unit, counts[0], "bars", points)
        elif {"bytes", "ns"} <= set(value) and isinstance(value["bytes"], list):
            pairs = zip(value["bytes"], value["ns"], strict=True)
            points = [(float(size), ns, ns, ns) for size, ns in pairs]
            if points:
                yield Picture(f"{about}: {name}, latency by size", "bytes", "ns", "line", points)


def _histogram(values: Sequence[float]) -> list[Point]:
    """Counts of equal steps; of many samples without the half percent at either end."""
    from opd.stats.distribution import quantile

    ordered = sorted(values)
    cut = 0.005 if len(ordered) >= _MANY else 0.0
    first, last = quantile(ordered, cut), quantile(ordered, 1.0 - cut)
    bins = min(max(len(ordered), 4), _BINS)
    step = (last - first) / bins or 1.0
    counts = [0] * bins
    for value in ordered:
        if first <= value <= last:
            counts[min(int((value - first) / step), bins - 1)] += 1
    return [
        (first + at * step, float(count), first + (at + 1) * step, 0.0)
        for at, count in enumerate(counts)
    ]
