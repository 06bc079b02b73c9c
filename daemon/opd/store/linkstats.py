"""What a worker link tells of itself: events as they happen, and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from opd.store.messages import Report
    from opd.store.outbox import Outbox

_COUNTERS = (
    *("windows", "windows_stored", "windows_again", "windows_dropped"),
    *("samples_stored", "samples_dropped", "bytes_stored", "starts", "deaths"),
    *("image_files_shed", "callback_errors"),
)


class LinkEvent(msgspec.Struct, frozen=True):
    """Something about the worker, told on the link's thread.

    ``kind``: ready, failed (the store cannot be opened), stored, refused,
    dropped (the queue was full), died, given_up (a window that crashed it),
    line (for the log: level, text). ``fields`` say more.
    """

    kind: str
    fields: dict[str, object]


def link_stats(outbox: Outbox, report: Report, cpu_before: float, held: str) -> dict[str, object]:
    """Counters of the link and the worker's last report.

    ``windows`` (handed over), ``windows_stored``, ``windows_again`` (were
    there already), ``windows_dropped``, ``windows_refused`` (by reason),
    ``samples_stored``, ``samples_dropped`` (of windows dropped or refused),
    ``bytes_stored``, ``waiting`` (windows), ``waiting_bytes``, ``starts``,
    ``deaths``, ``image_files_shed``, ``callback_errors``, ``pid``,
    ``cpu_seconds`` (of all workers, as far as reported), ``pss_bytes``,
    ``errors`` (by reason), ``held`` (why the store takes no windows now),
    ``store`` (its bytes, and what was deleted of it); of the present worker's
    CPU ``stages`` and ``children_cpu_seconds``, and of those before it
    ``ended_cpu_seconds``.
    """
    return {
        **{name: outbox.counters[name] for name in _COUNTERS},
        "windows_refused": dict(outbox.refused),
        "waiting": outbox.waiting_windows,
        "waiting_bytes": outbox.waiting_bytes,
        "pid": report.pid,
        "cpu_seconds": cpu_before + report.cpu_seconds,
        "pss_bytes": report.pss_bytes,
        "errors": dict(report.errors),
        "held": held,
        "store": dict(report.store),
        "stages": dict(report.stages),
        "children_cpu_seconds": report.children_cpu_seconds,
        "ended_cpu_seconds": cpu_before,
    }
