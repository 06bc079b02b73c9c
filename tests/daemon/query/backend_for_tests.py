"""A back end with real data, and a daemon process that serves it.

``python backend_for_tests.py ENDPOINT DIRECTORY`` serves until it is asked to
shut down; it prints "ready" when it listens.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from opd.errors import UnknownNameError
from opd.query import tables
from opd.query.server import Server

SYMBOLS = [
    ("python3", "/usr/bin/python3.11", "_PyEval_EvalFrameDefault", "user", 812),
    ("swapper", "[kernel]", "pv_native_safe_halt", "kernel", 77),
    (
        "cc1plus",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
        "ggc_internal_alloc" + "x" * 150,
        "user",
        9,
    ),
    ("evil\n\x1b[31mname", "[unknown]", "[unknown]", "user", 2),
]
QUALITY = {
    "hz_asked": 99,
    "hz_effective": 98.5,
    "source": "cpu-clock",
    "lost": {"ring_full": 3, "window_dropped": 0, "hash_full": 0},
    "degraded": {
        "no_mapping": 2,
        "stack_truncated": 0,
        "unwind_failed": 0,
        "inexact_ip": 0,
        "unnamed": 1,
    },
    "throttled_seconds": 0.0,
    "idle": 5,
    "windows": {"have": 6, "missing": 1},
    "frames": {"named": 890, "ranges": 7, "unknown": 3},
}


class TestBackend:
    """Answers every method from constants; ``dump`` waits for ``release``."""

    __test__ = False

    def __init__(self) -> None:
        self.release = threading.Event()
        self.ended = threading.Event()
        self.dumping = threading.Event()
        self.sampling = True
        self.imported = []
        self.asked = []

    def hello(self):
        """Say what there is."""
        return {"capabilities": {"sampling": self.sampling}}

    def status(self, _params):
        """All but messages."""
        return {
            "pid": os.getpid(),
            "uptime_seconds": 12.5,
            "events": self.events()["events"],
            "features": {},
            "cpu_seconds": 0.25,
            "pss_bytes": 31 << 20,
            "ns_per_sample": 812.0,
            "samples": 900,
            "quality": QUALITY,
        }

    def report(self, params):
        """The rows of SYMBOLS."""
        self.asked.append(params)
        if params.get("session") == "broken":
            raise ZeroDivisionError("a defect")
        sort = params.get("sort", ("comm", "image", "symbol"))
        rows = [
            dict(zip(("comm", "image", "symbol", "mode", "samples"), row, strict=True))
            for row in SYMBOLS
        ]
        for key in sort:
            if key not in rows[0]:
                raise UnknownNameError(
                    f"unknown sort key {key!r}", hint="valid: comm, image, symbol, mode"
                )
        total = sum(row["samples"] for row in rows)
        for row in rows:
            row["weight"] = row["samples"] * 10_101_010
            row["percent"] = 100 * row["samples"] / total
            row["cores"] = 1.5
        top = params.get("top", 20)
        types = {"samples": "u64", "weight": "u64", "percent": "f64", "cores": "f64"}
        types |= dict.fromkeys(sort, "str")
        return {
            "event": params.get("event", "cpu-clock"),
            "total": total,
            "weight_total": total * 10_101_010,
            "rows": tables.from_rows(types, rows[: top or None]),
            "quality": QUALITY,
        }

    def top(self, params):
        """The same."""
        return self.report(params)

    def events(self):
        """One event."""
        return {
            "events": [
                {"name": "cycles", "source": "cpu-clock", "unit": "ns", "hz": 99, "period": None}
            ]
        }

    def features(self, params):
        """One that runs, whatever the name."""
        return {"features": [{"name": params.get("name", "null"), "state": "running"}]}

    def stats(self, params):
        """Of one."""
        return {"features": {params.get("name", "null"): {"state": "running", "own": {}}}}

    def doctor(self):
        """One good, one bad."""
        return {
            "findings": [
                {"name": "pmu", "ok": False, "detail": "a VM", "remedy": "use cpu-clock"},
                {"name": "paranoid", "ok": True, "detail": "-1", "remedy": ""},
            ]
        }

    def log(self, params):
        """The lines asked for."""
        return {"lines": ['{"event": "test"}'][: params.get("lines", 1)]}

    def config(self):
        """One setting."""
        return {"settings": {"daemon": {"interval": 10.0}}, "sources": {}}

    def dump(self):
        """Wait for release."""
        self.dumping.set()
        self.release.wait(60)
        return {"dumped": True}

    def start(self):
        """Sample."""
        self.sampling = True
        return {"sampling": True}

    def stop(self):
        """Pause."""
        self.sampling = False
        return {"sampling": False}

    def sessions(self):
        """One session."""
        session = {"name": "live", "kinds": ["live"], "saved": False, "started_ns": 10**18}
        session |= {"runs": 1, "windows": 2, "samples": 3, "bytes": 4}
        return {"sessions": [session | {"first_ns": 10**18, "last_ns": None}]}

    def marks(self, params):
        """One mark."""
        self.asked.append(params)
        return {"marks": [{"id": 1, "at_ns": 10**18, "kind": "user", "text": "deploy\n1"}]}

    def mark(self, params):
        """Keep nothing."""
        self.asked.append(params)
        return {"id": 2, "at_ns": 10**18, "text": params["text"]}

    def save(self, params):
        """Keep nothing."""
        return {"session": params["name"]}

    def reset(self):
        """Nothing to begin anew."""
        return {"session": None}

    def record(self, method, params):
        """Nothing is taken."""
        self.asked.append((method, params))
        return {"session": params.get("session", "burst"), "running": False}

    def shutdown(self):
        """End."""
        self.ended.set()
        return {"stopping": True}

    def import_file(self, fd, *, name, size, origin):
        """Keep what arrived."""
        status = os.fstat(fd)
        content = os.pread(fd, size + 1, 0)
        self.imported.append((name, origin, content, status.st_mtime_ns, status.st_nlink))
        return {"session": name or origin, "samples": len(content), "complete": True}


def main() -> None:
    """Serve until asked to end."""
    endpoint, directory = sys.argv[1:3]
    backend = TestBackend()
    backend.release.set()
    server = Server(endpoint, backend, state_dir=directory)
    server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    backend.ended.wait()
    time.sleep(0.05)
    server.stop()


if __name__ == "__main__":
    main()
