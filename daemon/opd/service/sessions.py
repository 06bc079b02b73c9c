"""Sessions and marks of a running daemon: what goes through the worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError, UsageError
from opd.query.history import MARK_PREFIX
from opd.store.messages import Keep
from opd.store.requests import check_mark, check_session_name

if TYPE_CHECKING:
    from opd.config.settings import StoreSettings
    from opd.service.daemon import Daemon
    from opd.store.handover import WorkerLink


def limits_of(settings: StoreSettings) -> Keep:
    """How much the store keeps, by the settings."""
    return Keep(settings.keep_mib << 20, settings.keep_days, settings.keep_free_mib << 20)


def turn_over(daemon: Daemon, what: str, params: dict[str, Any]) -> dict[str, Any]:
    """``save`` or ``reset``: what was sampled until now is of the session that ends."""
    if "name" in params:
        check_session_name(params["name"])
    if daemon.replay is not None:
        raise OperationFailedError("this daemon serves a recording: its session does not go on")
    daemon.answers.dump()
    result = daemon.link.request(what, params)
    daemon.featuring.turn_over(what)
    daemon.log.info("session.ended", by=what, session=result["session"])
    return result


def mark(link: WorkerLink, params: dict[str, Any]) -> dict[str, Any]:
    """Keep a mark; when and under which number."""
    from opd.store.times import parse_time

    text = check_mark(params["text"])
    if text.startswith(MARK_PREFIX):
        raise UsageError(f"a mark's text cannot begin with {MARK_PREFIX!r}")
    now = time.time_ns()
    at = parse_time(params["at"], now_ns=now) if "at" in params else now
    result = link.request("mark", {"marks": [(at, "user", text)]})
    return {"id": result["ids"][0], "at_ns": at, "text": text}
