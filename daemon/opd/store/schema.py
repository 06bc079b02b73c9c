"""The tables of a session store, one SQLite file ``opd.db`` a session directory.

Windows are the log: one row each in ``windows`` (times and quality) and one in
``blocks`` (two compressed blobs, see :mod:`opd.store.blocks`). What they refer
to by number lives beside them:

``names``   every text a report can print: symbols, comms, image paths.
            ``text`` is unique; ``hash`` is its index, 48 bits, so that a long
            C++ name is stored once and not twice.
``images``  identity (16 bytes), path (a name), kind, build-id, flags.
``frames``  a block per window of the frames first seen in it, numbered from
            ``first``: image, ELF address, name, raw name, kind.
``stacks``  a block per window of the stacks first seen in it, numbered from
            ``first``: flags and numbers of frames.

Numbers are only a short way to write a frame or stack in this file, and one
that is long not seen may get another. Their identities, the same on every
host, follow from the images' identities and the addresses
(:mod:`opd.store.stacks`). An index of identities was tried: it cost 36 bytes a
stack, more than twice the stack, and wrote a page of the file for each.

``minutes`` and ``hours`` are the flat roll-ups by the start of a window, a
block each (:mod:`opd.store.rollup`): by event, comm, image, symbol and mode
samples, weight and ``squares``, the sum over windows of (weight of the key in
the window)**2, which with ``weight`` and the number of windows gives the
spread between windows. As rows of a table they took 38 bytes a row, more than
everything else together. They hold whole minutes and hours below the run's
``minutes_until`` and ``hours_until`` (numbers of minutes and hours since
1970); younger windows are read from their blocks. Retention takes minutes with
their windows; of hours below ``hours_from`` only minutes are left, and
``deleted`` counts the run's windows that went. An `event` is an index into
the run's list of events.

``epochs`` say which numbers of stacks and frames the windows of a run, from one
on, can name (:mod:`opd.store.epochs`).

``cgroups`` are what the column ``cgroup`` of sample files and roll-ups names;
0 is not known. ``marks`` are moments with a word, by people and by the daemon;
``seen`` is what the daemon last saw of the machine, so that a change over a
restart is a mark too. ``sessions.saved`` keeps one from retention.

``payloads`` hold what windows keep of precise samples beside their rows, a block
a kind (:mod:`opd.store.payloads`).

``probe_runs`` are measurements by probes, ``probe_samples`` their raw samples
(:mod:`opd.store.probes`).

A row of ``runs`` is a run within a session: ``reset`` gives a run a second row.
"""

from __future__ import annotations

import re

from opd.sampling.window import LABELS

FILE_NAME = "opd.db"
LOCK_NAME = "worker.lock"

# "opd1": tells our file from any other SQLite file.
APPLICATION_ID = 0x6F706431
VERSION = 4
# The oldest that is read as it is, and upgraded by the first writer.
OLDEST_VERSION = 1

MINUTE_NS = 60_000_000_000

# In ``seen``: how often names were deleted, for writers that remember numbers.
SWEPT = "swept"

# Counters of a window that have a column of their own; each is 0 when the
# window does not carry it. Others travel in ``extra``.
QUALITY_COLUMNS = (
    "samples",
    "ring_full",
    "window_dropped",
    "hash_full",
    "no_mapping",
    "stack_truncated",
    "unwind_failed",
    "inexact_ip",
    "unnamed",
    "idle",
    "throttled_ns",
    "elapsed_ns",
    "frames_named",
    "frames_ranges",
    "frames_unknown",
    *LABELS,
)

# In a run of several events ``extra`` has, under EVENTS, these of each event.
EVENTS = "events"
EVENT_COLUMNS = (
    "samples",
    "ring_full",
    "hash_full",
    "no_mapping",
    "stack_truncated",
    "unwind_failed",
    "inexact_ip",
    "unnamed",
    "frames_named",
    "frames_ranges",
    "frames_unknown",
    *LABELS,
)

_QUALITY_SQL = ",\n  ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in QUALITY_COLUMNS)

_ROLLUP_SQL = """
CREATE TABLE {name} (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id), bucket INTEGER NOT NULL,
  block BLOB NOT NULL, UNIQUE (run, bucket)
);
"""

# What schema 2 has and 1 had not.
_SINCE_2 = """
CREATE TABLE marks (
  id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX marks_at ON marks (at_ns);
CREATE TABLE cgroups (
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, unit TEXT, container TEXT, runtime TEXT,
  slice TEXT
);
CREATE TABLE seen (what TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE epochs (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id),
  from_sequence INTEGER NOT NULL, started_ns INTEGER NOT NULL,
  first_stack INTEGER NOT NULL, end_stack INTEGER NOT NULL,
  first_frame INTEGER NOT NULL, end_frame INTEGER NOT NULL
);
CREATE INDEX epochs_run ON epochs (run, from_sequence);
"""

# What schema 3 has and 2 had not.
_SINCE_3 = """
CREATE TABLE payloads (
  id INTEGER PRIMARY KEY, window INTEGER NOT NULL REFERENCES windows(id), kind TEXT NOT NULL,
  rows INTEGER NOT NULL, offered INTEGER NOT NULL, lost INTEGER NOT NULL, block BLOB NOT NULL,
  UNIQUE (window, kind)
);
"""

# What schema 4 has and 3 had not.
_SINCE_4 = """
CREATE TABLE probe_runs (
  id INTEGER PRIMARY KEY, probe TEXT NOT NULL, parameters TEXT NOT NULL, origin TEXT NOT NULL,
  started_ns INTEGER NOT NULL, ended_ns INTEGER, machine TEXT NOT NULL DEFAULT '{}',
  metrics TEXT NOT NULL DEFAULT '[]', verdict TEXT, void TEXT, notes TEXT NOT NULL DEFAULT '[]',
  details BLOB, bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX probe_runs_probe ON probe_runs (probe, started_ns);
CREATE TABLE probe_samples (
  run INTEGER NOT NULL REFERENCES probe_runs(id), metric TEXT NOT NULL, worker INTEGER NOT NULL,
  repeats BLOB NOT NULL, cells BLOB NOT NULL, PRIMARY KEY (run, metric, worker)
) WITHOUT ROWID;
"""

SCHEMA = (
    f"""
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, started_ns INTEGER NOT NULL,
  saved INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions(id), run TEXT NOT NULL,
  boot TEXT NOT NULL, kind TEXT NOT NULL, origin TEXT NOT NULL, kernel_release TEXT NOT NULL,
  kernel_build_id TEXT NOT NULL, host TEXT NOT NULL, cpus INTEGER NOT NULL,
  started_ns INTEGER NOT NULL, events BLOB NOT NULL,
  threads INTEGER NOT NULL DEFAULT 0, processors INTEGER NOT NULL DEFAULT 0,
  longest_ns INTEGER NOT NULL DEFAULT 0,
  minutes_until INTEGER NOT NULL DEFAULT 0, hours_until INTEGER NOT NULL DEFAULT 0,
  hours_from INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0,
  cpuid TEXT NOT NULL DEFAULT '',
  UNIQUE (run, session)
);
CREATE TABLE names (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX names_hash ON names (hash);
CREATE TABLE images (
  id INTEGER PRIMARY KEY, identity BLOB NOT NULL, path INTEGER NOT NULL REFERENCES names(id),
  kind TEXT NOT NULL, build_id BLOB NOT NULL, flags INTEGER NOT NULL,
  UNIQUE (identity, path)
);
CREATE TABLE frames (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, block BLOB NOT NULL);
CREATE TABLE stacks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, block BLOB NOT NULL);
CREATE TABLE windows (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id), sequence INTEGER NOT NULL,
  start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  {_QUALITY_SQL},
  extra BLOB, bytes INTEGER NOT NULL DEFAULT 0,
  UNIQUE (run, sequence)
);
CREATE INDEX windows_start ON windows (run, start_ns);
CREATE TABLE blocks (
  window INTEGER PRIMARY KEY REFERENCES windows(id), groups BLOB NOT NULL, rows BLOB NOT NULL
);
"""
    + _ROLLUP_SQL.format(name="minutes")
    + _ROLLUP_SQL.format(name="hours")
    + _SINCE_2
    + _SINCE_3
    + _SINCE_4
)

TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", SCHEMA))

# What is there may be named by every window of every run there is.
_FIRST_EPOCHS = """
INSERT INTO epochs (run, from_sequence, started_ns, first_stack, end_stack, first_frame, end_frame)
SELECT id, 0, 0, 0, (SELECT ifnull(max(first + count), 1) FROM stacks),
  0, (SELECT ifnull(max(first + count), 1) FROM frames) FROM runs
"""

# What makes a store of the version into one of the next, without rewriting rows.
UPGRADES = {
    1: """
ALTER TABLE sessions ADD COLUMN saved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN hours_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windows ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
"""
    + "".join(
        f"ALTER TABLE windows ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0;" for name in LABELS
    )
    + _SINCE_2
    + _FIRST_EPOCHS,
    2: "ALTER TABLE runs ADD COLUMN cpuid TEXT NOT NULL DEFAULT '';" + _SINCE_3,
    3: _SINCE_4,
}

# Bit of images.flags.
IMAGE_DELETED = 1
