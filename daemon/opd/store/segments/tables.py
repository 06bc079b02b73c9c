"""The tables that SQL sees, column by column. Imported by all; knows nothing of DuckDB."""

from __future__ import annotations

from typing import NamedTuple

from opd.store.schema import QUALITY_COLUMNS


class Column(NamedTuple):
    """A column: its type in SQL and what it means."""

    type: str
    meaning: str


class Table(NamedTuple):
    """A table: what a row of it is."""

    meaning: str
    columns: dict[str, Column]


_SESSION = Column("VARCHAR", "name of the session, as it is called now")
_RUN = Column("VARCHAR", "the run: one start of the daemon, or one import")
_TIME = Column("TIMESTAMP", "start of the window, UTC")
_SECONDS = Column("DOUBLE", "length of the window")
_STACK = Column("BIGINT", "number of the stack, good within one query")

_QUALITY = {
    "samples": "samples taken",
    "ring_full": "samples lost because a ring was full",
    "window_dropped": "samples of windows that could not be kept",
    "hash_full": "samples lost because the window's table was full",
    "no_mapping": "samples at an address where nothing was mapped",
    "stack_truncated": "samples whose chain was cut",
    "unwind_failed": "samples whose chain could not be followed",
    "inexact_ip": "samples whose address may be some instructions off",
    "unnamed": "samples whose leaf has no name",
    "idle": "samples of idle CPUs, which are not in the others",
    "throttled_ns": "CPU time in which the kernel held the event back",
    "elapsed_ns": "CPU time covered: wall time by CPUs",
    "frames_named": "samples whose leaf is a symbol",
    "frames_ranges": "samples whose leaf is a range without a symbol",
    "frames_unknown": "samples whose leaf is unknown",
    "label_exact": "samples whose cgroup the kernel told with the sample",
    "label_read": "samples whose cgroup was read while the process lived",
    "label_inherited": "samples whose cgroup is that of the parent",
}

TABLES: dict[str, Table] = {
    "samples": Table(
        "where samples were: one row for all alike in a window",
        {
            "time": _TIME,
            "seconds": _SECONDS,
            "session": _SESSION,
            "run": _RUN,
            "event": Column("VARCHAR", "the event, as asked for"),
            "comm": Column("VARCHAR", "name of the thread"),
            "pid": Column("INTEGER", "process"),
            "tid": Column("INTEGER", "thread; NULL where not separated"),
            "cpu": Column("INTEGER", "CPU; NULL where not separated"),
            "mode": Column("VARCHAR", "user or kernel"),
            "image": Column("VARCHAR", "file or kernel part that the leaf is in"),
            "symbol": Column("VARCHAR", "function of the leaf"),
            "cgroup": Column("VARCHAR", "path of the cgroup; NULL where not known"),
            "unit": Column("VARCHAR", "systemd unit of the cgroup"),
            "container": Column("VARCHAR", "container id of the cgroup"),
            "samples": Column("BIGINT", "how many samples"),
            "weight": Column("BIGINT", "their weight: ns of CPU time, or occurrences"),
            "truncated": Column("BOOLEAN", "whether the chain was cut"),
            "stack": _STACK,
        },
    ),
    "stacks": Table(
        "the call chains that samples name, by function",
        {
            "stack": _STACK,
            "id": Column("VARCHAR", "128 bits of its functions, the same on every host"),
            "depth": Column("BIGINT", "number of frames"),
            "folded": Column("VARCHAR", "functions from the root to the leaf, with ; between"),
            "frames": Column("STRUCT(symbol VARCHAR, image VARCHAR)[]", "the frames, leaf first"),
        },
    ),
    "windows": Table(
        "the stretches of time that were sampled, and how well",
        {
            "session": _SESSION,
            "run": _RUN,
            "sequence": Column("BIGINT", "number of the window in its run; gaps are losses"),
            "time": _TIME,
            "seconds": _SECONDS,
            **{name: Column("BIGINT", _QUALITY[name]) for name in QUALITY_COLUMNS},
        },
    ),
    "runs": Table(
        "starts of the daemon, and imports",
        {
            "run": _RUN,
            "session": _SESSION,
            "kind": Column("VARCHAR", "live or import"),
            "started": Column("TIMESTAMP", "when it began, UTC"),
            "host": Column("VARCHAR", "host name"),
            "boot": Column("VARCHAR", "the kernel's boot id"),
            "kernel_release": Column("VARCHAR", "as uname -r"),
            "kernel_build_id": Column("VARCHAR", "hexadecimal"),
            "cpus": Column("INTEGER", "CPUs of the machine"),
            "origin": Column("VARCHAR", "file that was imported"),
        },
    ),
    "sessions": Table(
        "what `opctl reset` and `opctl save` keep apart",
        {
            "session": _SESSION,
            "started": Column("TIMESTAMP", "when it began, UTC"),
            "saved": Column("BOOLEAN", "kept however old it gets"),
        },
    ),
    "marks": Table(
        "moments with a word",
        {
            "time": Column("TIMESTAMP", "when, UTC"),
            "kind": Column("VARCHAR", "user, or what the daemon saw: kernel, packages, boot …"),
            "text": Column("VARCHAR", "the word"),
        },
    ),
    "images": Table(
        "files and kernel parts that code ran from",
        {
            "image": Column("VARCHAR", "path, or [kernel], [vdso] …"),
            "kind": Column(
                "VARCHAR", "file, kernel, module, bpf, vdso, vsyscall, anon, unknown, feature"
            ),
            "build_id": Column("VARCHAR", "hexadecimal; empty where there is none"),
            "identity": Column("VARCHAR", "128 bits, the same on every host"),
            "deleted": Column("BOOLEAN", "whether the file was gone"),
        },
    ),
    "events": Table(
        "what was sampled in each run",
        {
            "run": _RUN,
            "session": _SESSION,
            "event": Column("VARCHAR", "as asked for"),
            "source": Column("VARCHAR", "what really ran"),
            "unit": Column("VARCHAR", "of weight: ns or count"),
            "hz": Column("INTEGER", "rate asked for; NULL with a period"),
            "period": Column("BIGINT", "events a sample; NULL with a rate"),
        },
    ),
}


def describe() -> list[dict[str, str]]:
    """One row a column, for those who ask which there are."""
    return [
        {"table": name, "column": column, "type": about.type, "meaning": about.meaning}
        for name, table in TABLES.items()
        for column, about in table.columns.items()
    ]
