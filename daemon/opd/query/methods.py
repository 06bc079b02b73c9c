"""The methods on the wire: their parameters, who may call them, how long they take."""

from __future__ import annotations

from typing import Any, NamedTuple

from opd.errors import UnknownNameError, UsageError
from opd.query import protocol

TOP_LIMIT = 1 << 31
SECONDS_LIMIT = 86400.0
TEXT_LIMIT = 4096
QUERY_LIMIT = 1 << 16
_TEXT_LIMITS = {"text": TEXT_LIMIT, "file name": TEXT_LIMIT, "query": QUERY_LIMIT}


class Param(NamedTuple):
    """One named parameter; ``kind`` is one of those in ``_value``."""

    kind: str
    required: bool = False


class Method(NamedTuple):
    """One method. ``owner_only``: for uid 0 and the daemon's own. ``slow``: may take seconds.

    ``at_once``: answered by the server's loop itself, so it must not wait.
    ``alone``: one at a time, and none of the others waits for it.
    """

    params: dict[str, Param] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    owner_only: bool = False
    slow: bool = False
    at_once: bool = False
    alone: bool = False


_RANGE = {"since": Param("text"), "until": Param("text")}
_QUESTION = {
    "sort": Param("texts"),
    "top": Param("count"),
    "event": Param("text"),
    "where": Param("text"),
}

_PRECISE = {"top": Param("count"), "where": Param("text"), "session": Param("text")}

METHODS: dict[str, Method] = {
    "hello": Method(at_once=True),
    "status": Method(params={"cost": Param("flag")}),
    "report": Method(
        params={**_QUESTION, **_RANGE, "per": Param("text"), "session": Param("text")}
        | {"metric": Param("text"), "without_probes": Param("flag")},
        slow=True,
    ),
    "mem": Method(params={**_PRECISE, **_RANGE, "by": Param("texts")}, slow=True),
    "derive": Method(
        params={**_PRECISE, **_RANGE, "by": Param("texts")}
        | {"event": Param("text", required=True)},
        slow=True,
    ),
    "branches": Method(params={**_PRECISE, **_RANGE, "by": Param("text")}, slow=True),
    "top": Method(
        params={**_QUESTION, "seconds": Param("seconds"), "without_probes": Param("flag")},
        slow=True,
    ),
    "sql": Method(
        params={
            "query": Param("query"),
            "rows": Param("count"),
            "seconds": Param("seconds"),
            **_RANGE,
        },
        alone=True,
    ),
    "events": Method(),
    "features": Method(params={"name": Param("text")}, slow=True),
    "stats": Method(params={"name": Param("text"), "session": Param("text")}, slow=True),
    "readprofile": Method(params={"names": Param("flag"), "all": Param("flag")}, slow=True),
    "readprofile_reset": Method(owner_only=True, slow=True),
    "doctor": Method(slow=True),
    "log": Method(params={"lines": Param("count")}),
    "config": Method(),
    "dump": Method(slow=True),
    "start": Method(owner_only=True),
    "stop": Method(owner_only=True),
    "sessions": Method(slow=True),
    "marks": Method(params={**_RANGE}),
    "mark": Method(
        params={"text": Param("text", required=True), "at": Param("text")},
        owner_only=True,
        slow=True,
    ),
    "save": Method(params={"name": Param("text", required=True)}, owner_only=True, slow=True),
    "reset": Method(owner_only=True, slow=True),
    "record": Method(
        params={
            "name": Param("text"),
            "event": Param("texts"),
            "rate": Param("count"),
            "seconds": Param("seconds"),
            "pid": Param("counts"),
            "comm": Param("texts"),
            "cpus": Param("text"),
        },
        owner_only=True,
        slow=True,
    ),
    "record_poll": Method(params={"session": Param("text", required=True)}, owner_only=True),
    "record_stop": Method(params={"session": Param("text")}, owner_only=True),
    "record_list": Method(),
    "probe_run": Method(
        params={"probe": Param("text", required=True), "options": Param("query")},
        owner_only=True,
        slow=True,
    ),
    "probe_compare": Method(
        params={
            "a": Param("query", required=True),
            "b": Param("query", required=True),
            "metric": Param("text"),
            "rounds": Param("count"),
            "processes": Param("count"),
        },
        owner_only=True,
        slow=True,
    ),
    "probe_poll": Method(params={"job": Param("count", required=True)}, slow=True),
    "probe_cancel": Method(params={"job": Param("count")}, owner_only=True),
    "probe_list": Method(
        params={**_RANGE, "probe": Param("text"), "top": Param("count"), "changes": Param("flag")},
        slow=True,
    ),
    "probe_show": Method(
        params={"id": Param("count", required=True), "samples": Param("flag")}, slow=True
    ),
    "shutdown": Method(owner_only=True),
    "import_begin": Method(
        params={
            "name": Param("file name"),
            "origin": Param("file name"),
            "size": Param("offset"),
            "mtime_ns": Param("nanoseconds"),
        }
    ),
    "import_chunk": Method(
        params={
            "transfer": Param("text", required=True),
            "offset": Param("offset", required=True),
            "data": Param("bytes", required=True),
        }
    ),
    "import_end": Method(
        params={
            "transfer": Param("text", required=True),
            "size": Param("offset", required=True),
        },
        slow=True,
    ),
    "import_abort": Method(params={"transfer": Param("text", required=True)}),
}


def find(name: str) -> Method:
    """The method ``name``. Raises UnknownNameError with the closest and all valid ones."""
    method = METHODS.get(name)
    if method is None:
        from opd.config.nearest import did_you_mean  # for mistakes alone

        raise UnknownNameError(
            f"no method {name[:100]!r}{did_you_mean(name[:100], METHODS)}",
            hint=f"there are: {' '.join(METHODS)}",
        )
    return method


def check(name: str, method: Method, params: dict[str, Any]) -> dict[str, Any]:
    """Checked ``params`` in one spelling each: ``sort`` a tuple, numbers in range; nil left out.

    Raises UnknownNameError for a parameter the method lacks, UsageError for a
    missing one or a wrong value.
    """
    checked: dict[str, Any] = {}
    for key, value in params.items():
        param = method.params.get(key)
        if param is None:
            from opd.config.nearest import did_you_mean

            raise UnknownNameError(
                f"{name} has no parameter {key[:100]!r}{did_you_mean(key[:100], method.params)}",
                hint=f"it takes: {' '.join(method.params) or 'none'}",
            )
        if value is not None:
            checked[key] = _value(f"{name}: {key}", param.kind, value)
    for key, param in method.params.items():
        if param.required and key not in checked:
            raise UsageError(f"{name} needs the parameter {key!r}")
    return checked


def _value(what: str, kind: str, value: Any) -> Any:
    good: bool
    if kind in _TEXT_LIMITS:
        limit = _TEXT_LIMITS[kind]
        good = isinstance(value, str) and len(value) <= limit
        # Names of files need not be UTF-8, but nothing in the store is called so.
        good = good and (kind == "file name" or _is_utf8(value))
        expected = f"a string of at most {limit} characters in UTF-8"
    elif kind == "texts":
        if isinstance(value, str):
            value = value.split(",")
        good = isinstance(value, list) and len(value) <= protocol.KEYS_LIMIT
        good = good and all(isinstance(item, str) for item in value)
        expected = f"a list of at most {protocol.KEYS_LIMIT} strings, or one with commas"
        value = tuple(item.strip() for item in value) if good else value
        good = good and all(value)
    elif kind == "counts":
        good = isinstance(value, list) and 0 < len(value) <= protocol.KEYS_LIMIT
        good = good and all(_is_int(item) and 0 <= item < TOP_LIMIT for item in value)
        expected = f"a list of 1 to {protocol.KEYS_LIMIT} integers of 0 or more"
        value = tuple(value) if good else value
    elif kind == "count":
        good = _is_int(value) and 0 <= value < TOP_LIMIT
        expected = "an integer of 0 or more"
    elif kind in ("offset", "nanoseconds"):
        good = _is_int(value) and 0 <= value < 1 << 62
        expected = "a number of bytes" if kind == "offset" else "nanoseconds since 1970"
    elif kind == "flag":
        good = isinstance(value, bool)
        expected = "true or false"
    elif kind == "seconds":
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and 0 < value <= SECONDS_LIMIT
        expected = f"seconds, more than 0 and at most {SECONDS_LIMIT:g}"
    else:
        good = isinstance(value, bytes)
        expected = "bytes"
    if not good:
        raise UsageError(f"{what}: expected {expected}, got {_shown(value)}")
    return value


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)[:100]
    return f"a {type(value).__name__}"
