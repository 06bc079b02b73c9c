"""Every error opd raises, with its word on the wire and its exit status.

Only ``opd.cli`` turns them into text and an exit; only ``opd.query.server``
turns them into an error reply. Exit statuses follow sysexits(3) where it has
one: 69 unavailable, 77 no permission, 78 configuration.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OpdError(Exception):
    """Base of all. ``hint`` says what to do; ``data`` travels on the wire."""

    code: ClassVar[str] = "error"
    rpc_code: ClassVar[int] = -32000
    exit_status: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data or {}

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(OpdError):
    """The client's command line or parameters are wrong."""

    code = "usage"
    rpc_code = -32602
    exit_status = 2


class UnknownNameError(UsageError):
    """A name asked of the client does not exist; the message lists those that do."""

    code = "unknown_name"


class ConfigError(OpdError):
    """Something in opd's command line, files or settings is wrong: says where."""

    code = "config"
    rpc_code = -32010
    exit_status = 78


class EventError(ConfigError):
    """An event specification is wrong, or this machine has no such event."""

    code = "event"
    rpc_code = -32011


class PermissionDeniedError(OpdError):
    """The kernel or opd refuses; the hint names the sysctl, capability or user."""

    code = "permission"
    rpc_code = -32012
    exit_status = 77


class NoDaemonError(OpdError):
    """Nobody listens at the endpoint."""

    code = "no_daemon"
    rpc_code = -32013
    exit_status = 69


class EndpointInUseError(OpdError):
    """Another process holds the endpoint; the message names its pid."""

    code = "endpoint_in_use"
    rpc_code = -32014


class StoreError(OpdError):
    """The session directory cannot be read or written; the message has the path."""

    code = "store"
    rpc_code = -32015


class ProtocolError(OpdError):
    """What arrived on the socket is not a request or a reply."""

    code = "protocol"
    rpc_code = -32600


class RecordFileError(OpdError):
    """A perf.data file is truncated, corrupt or foreign: says how far it got."""

    code = "record_file"
    rpc_code = -32016


class OperationFailedError(OpdError):
    """The request was right and could not be carried out."""

    code = "failed"
    rpc_code = -32017
