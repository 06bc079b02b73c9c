"""Who answers a subcommand: a running daemon or a session directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from opd.query.client import Client


class Source(Protocol):
    """Something that answers methods; close it by leaving its context."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The method's result. Raises OpdError."""
        ...


def connect(arguments: argparse.Namespace) -> Client:
    """The daemon of ``--endpoint``. UsageError when a store was asked for instead."""
    if arguments.session_dir is not None:
        raise UsageError(
            f"{arguments.command} needs a daemon",
            hint="leave --session-dir out to ask a running one",
        )
    from opd.query.client import Client
    from opd.service.paths import client_endpoint

    return Client(arguments.endpoint or client_endpoint())


def open_source(arguments: argparse.Namespace) -> Source:
    """The store of ``--session-dir``, else the daemon of ``--endpoint``."""
    if arguments.session_dir is None:
        return connect(arguments)
    from opd.query.backend import OfflineBackend

    return OfflineBackend(arguments.session_dir)
