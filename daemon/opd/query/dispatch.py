"""From a checked request to the body of its answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import zmq

from opd import __version__
from opd.errors import OpdError, OperationFailedError, PermissionDeniedError, UsageError
from opd.query import protocol
from opd.query.methods import METHODS
from opd.query.peers import may_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.query.backend import Backend
    from opd.query.endpoint import Peer
    from opd.query.methods import Method
    from opd.query.protocol import Request
    from opd.query.transfers import Transfers

    Owner = tuple[bytes, Peer | None]
    Handler = Callable[[dict[str, Any], Owner], dict[str, Any]]


class Dispatcher:
    """Knows which back-end call answers which method, and who may ask it."""

    def __init__(
        self,
        backend: Backend,
        *,
        transfers: Transfers,
        messages: Callable[[], dict[str, int]],
        pub_endpoint: str,
        failed: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._backend = backend
        self._transfers = transfers
        self._messages = messages
        self._pub_endpoint = pub_endpoint
        self._failed = failed
        self._owner_uid = os.geteuid()
        self.trusts_peers = False
        self._handlers: dict[str, Handler] = {
            "hello": self._hello,
            "status": self._status,
            "report": lambda params, _: backend.report(params),
            "mem": lambda params, _: backend.precise("mem", params),
            "derive": lambda params, _: backend.precise("derive", params),
            "branches": lambda params, _: backend.precise("branches", params),
            "top": lambda params, _: backend.top(params),
            "sql": lambda params, owner: backend.sql(params, owner[1]),
            "events": lambda _, __: backend.events(),
            "features": lambda params, _: backend.features(params),
            "stats": lambda params, _: backend.stats(params),
            "readprofile": lambda params, _: backend.readprofile(params),
            "readprofile_reset": lambda _, __: backend.readprofile_reset(),
            "doctor": lambda _, __: backend.doctor(),
            "log": lambda params, _: backend.log(params),
            "config": lambda _, __: backend.config(),
            "dump": lambda _, __: backend.dump(),
            "start": lambda _, __: backend.start(),
            "stop": lambda _, __: backend.stop(),
            "sessions": lambda _, __: backend.sessions(),
            "marks": lambda params, _: backend.marks(params),
            "mark": lambda params, _: backend.mark(params),
            "save": lambda params, _: backend.save(params),
            "reset": lambda _, __: backend.reset(),
            "record": lambda params, _: backend.record("record", params),
            "record_poll": lambda params, _: backend.record("record_poll", params),
            "record_stop": lambda params, _: backend.record("record_stop", params),
            "record_list": lambda params, _: backend.record("record_list", params),
            **{
                name: lambda params, owner, name=name: backend.probe(  # type: ignore[misc]
                    name, params, owner[1]
                )
                for name in METHODS
                if name.startswith("probe_")
            },
            "shutdown": lambda _, __: backend.shutdown(),
            "import_begin": lambda params, owner: transfers.begin(owner, params),
            "import_chunk": lambda params, owner: transfers.chunk(owner, params),
            "import_end": self._import_end,
            "import_abort": lambda params, owner: transfers.abort(owner, params),
        }

    def authorize(self, name: str, method: Method, peer: Peer | None) -> None:
        """Raises PermissionDeniedError when ``peer`` may not call ``method``."""
        if not method.owner_only or self._may_change(peer):
            return
        who = f"uid {peer.uid}" if peer and self.trusts_peers else "a peer of unknown uid"
        raise PermissionDeniedError(
            f"{name} is not for {who}", hint=f"ask as root or as uid {self._owner_uid}"
        )

    def answer(self, request: Request, params: dict[str, Any], owner: Owner) -> bytes:
        """The body of the answer; an error's too. Never raises."""
        try:
            result = self._handlers[request.method](params, owner)
            return protocol.encode_result(request.id, result)
        except OpdError as error:
            return protocol.encode_error(request.id, error)
        except Exception as error:  # noqa: BLE001 - a broken handler must not stop the daemon
            if self._failed is not None:
                self._failed(request.method, error)
            wrong = OperationFailedError(
                f"{request.method} broke: {type(error).__name__}: {str(error)[:200]}"
            )
            return protocol.encode_error(request.id, wrong, protocol.INTERNAL_ERROR)

    def _may_change(self, peer: Peer | None) -> bool:
        return self.trusts_peers and may_change(peer, self._owner_uid)

    def _hello(self, _: dict[str, Any], owner: Owner) -> dict[str, Any]:
        hello = dict(self._backend.hello())
        versions = {
            "opd": __version__,
            "protocol": protocol.VERSION,
            "zmq": zmq.zmq_version(),
            **hello.pop("versions", {}),
        }
        capabilities = {
            "methods": list(METHODS),
            "may_change": self._may_change(owner[1]),
            "message_bytes": protocol.MESSAGE_LIMIT_BYTES,
            "chunk_bytes": protocol.CHUNK_LIMIT_BYTES,
            **hello.pop("capabilities", {}),
        }
        return {
            "pid": os.getpid(),
            "versions": versions,
            "pub": self._pub_endpoint,
            "capabilities": capabilities,
            **hello,
        }

    def _status(self, params: dict[str, Any], _: Owner) -> dict[str, Any]:
        status = self._backend.status(params)
        messages = self._messages()
        # This answer counts itself, so that the sum holds for whoever reads it.
        messages["answered"] += 1
        return {**status, "messages": messages}

    def _import_end(self, params: dict[str, Any], owner: Owner) -> dict[str, Any]:
        with self._transfers.end(owner, params) as transfer:
            if transfer.received == 0:
                raise UsageError("import: the file is empty")
            return self._backend.import_file(
                transfer.file.fileno(),
                name=transfer.name,
                size=transfer.received,
                origin=transfer.origin,
            )
