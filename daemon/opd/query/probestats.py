"""``stats`` of probes: what their kept runs came to, beside what features say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.errors import OpdError, StoreError, UnknownNameError
from opd.probes.results import result_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.store.probes import ProbeTotals
    from opd.store.queries import Reader

# In a run's details: what the probe itself says of it (opd.plugin.Measuring.stats).
OWN = "stats"
# State of a feature that was not asked for, but offers a probe.
PROBE = "probe"


def stats_answer(
    reader: Reader, name: str | None, features: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Statistics of features, as ``features`` gives them, and under the same names of probes.

    Raises UnknownNameError or StoreError when ``features`` does, and no probe is called so.
    """
    name = None if name is None else name.strip().replace("-", "_")
    measured = reader.probe_totals(name)
    try:
        found = features()
    except (UnknownNameError, StoreError):
        # A store of probes alone has no session.
        if not measured and (name is None or not _offers(name)):
            raise
        found = {}
        if name is not None and not measured:
            found[name] = {"state": PROBE, "own": {}, "probe": {"runs": 0}}
    for probe, totals in measured.items():
        one = found.setdefault(probe, {"state": PROBE, "own": {}})
        told = totals.last.details.get(OWN) if totals.last is not None else None
        if isinstance(told, dict):
            one["own"] = {**one["own"], **told}
        one["probe"] = _totals_map(totals)
    return found


def _totals_map(totals: ProbeTotals) -> dict[str, Any]:
    told: dict[str, Any] = {
        "runs": totals.runs,
        "void": totals.void,
        "comparisons": totals.comparisons,
        "scheduled": totals.scheduled,
        "wall_seconds": round(totals.wall_s, 3),
        "cpu_seconds": round(totals.cpu_s, 3),
        "sample_bytes": totals.bytes,
    }
    if totals.last_void is not None:
        told["last_void"] = {"id": totals.last_void[0], "reason": totals.last_void[1]}
    if totals.last is not None:
        result = result_map(totals.last)
        told["last"] = {
            key: result[key]
            for key in ("id", "started_ns", "origin", "parameters", "metrics", "void", "notes")
        }
    return told


def _offers(name: str) -> bool:
    """Whether an installed feature has a probe of that name; asked in a child."""
    from opd.features.installed import installed_features

    try:
        listed = installed_features()
    except OpdError:
        return False  # what was asked for is then as unknown as before
    return any(probe["name"] == name for one in listed for probe in one.get("probes", ()))
