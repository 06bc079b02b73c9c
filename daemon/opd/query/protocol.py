"""JSON-RPC 2.0 in msgpack, over ZeroMQ: what a message may look like.

docs/protocol.md is the same for other languages. Nothing here touches a
socket; the server and the client both use it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from opd import errors
from opd.errors import OpdError, OperationFailedError, ProtocolError, UsageError

VERSION = 1
MESSAGE_LIMIT_BYTES = 16 << 20
CHUNK_LIMIT_BYTES = 1 << 20
ENVELOPE_LIMIT_FRAMES = 16
KEYS_LIMIT = 64

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

RequestId = str | int | float | None

# A request is shallow and small but for an import's chunk. The array limits
# keep a nest of length claims from costing more than the message itself.
_REQUEST_LIMITS = {
    "max_array_len": 4096,
    "max_map_len": 1024,
    "max_str_len": 1 << 20,
    "max_bin_len": CHUNK_LIMIT_BYTES,
    "max_ext_len": 0,
}
_ID_LIMIT_CHARACTERS = 256
_ERROR_CLASSES: dict[str, type[OpdError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OpdError)
}


class Request(NamedTuple):
    """One call. ``notification``: no id, so no answer is wanted."""

    id: RequestId
    method: str
    params: dict[str, Any]
    notification: bool = False


class Refusal(NamedTuple):
    """Why a message is not carried out: to be sent back as the error of ``id``.

    ``rpc_code`` None: the error's own.
    """

    id: RequestId
    rpc_code: int | None
    error: OpdError


def pack(value: object) -> bytes:
    """Encode one value. Raises TypeError, ValueError or OverflowError for what msgpack lacks.

    File names that are no UTF-8 travel as their bytes.
    """
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


def unpack(body: bytes | memoryview, **limits: int) -> Any:
    """Decode one value. Raises ProtocolError for anything but exactly one value."""
    try:
        return msgpack.unpackb(body, unicode_errors="surrogateescape", **limits)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(
            f"not one msgpack value: {str(error) or type(error).__name__}"
        ) from error


def parse_request(body: bytes | memoryview) -> Request | Refusal:
    """A request, or what to answer to what is none. Never raises."""
    if len(body) > MESSAGE_LIMIT_BYTES:
        return refusal_of_size(len(body))
    try:
        message = unpack(body, **_REQUEST_LIMITS)
    except ProtocolError as error:
        return Refusal(None, PARSE_ERROR, error)
    if isinstance(message, list):
        return refusal(None, "batches are not served: send one request a message")
    if not isinstance(message, dict):
        return refusal(None, "a request is a map")
    return _request_of(message)


def _request_of(message: dict[Any, Any]) -> Request | Refusal:
    request_id, method = message.get("id"), message.get("method")
    if not _is_id(request_id):
        return refusal(None, "id is a number, a short string or nil")
    if message.get("jsonrpc") != "2.0":
        return refusal(request_id, 'expected "jsonrpc": "2.0"')
    if not isinstance(method, str):
        return refusal(request_id, "method is a string")
    params = message.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict) or not all(isinstance(name, str) for name in params):
        return Refusal(request_id, UsageError.rpc_code, UsageError("params is a map by name"))
    return Request(request_id, method, params, notification="id" not in message)


def refusal_of_size(size_bytes: int) -> Refusal:
    """What a message over the limit gets."""
    return refusal(None, f"a message of {size_bytes} bytes; at most {MESSAGE_LIMIT_BYTES} are read")


def encode_request(
    request_id: RequestId, method: str, params: dict[str, Any] | None = None
) -> bytes:
    """The body of a call."""
    return pack({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})


def encode_result(request_id: RequestId, result: object) -> bytes:
    """The body of a good answer. Raises TypeError, ValueError or OverflowError as pack does."""
    return pack({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId, error: OpdError, rpc_code: int | None = None) -> bytes:
    """The body of an error; ``data`` has opd's own code, the hint and the error's data."""
    data: dict[str, Any] = {**error.data, "code": error.code}
    if error.hint:
        data["hint"] = error.hint
    code = error.rpc_code if rpc_code is None else rpc_code
    message = {"code": code, "message": error.message, "data": data}
    return pack({"jsonrpc": "2.0", "id": request_id, "error": message})


def decode_reply(body: bytes | memoryview) -> tuple[RequestId, Any, OpdError | None]:
    """(id, result, error) of an answer; exactly one of result and error counts.

    Raises ProtocolError when the body is no answer at all.
    """
    message = unpack(body)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError("the answer is no JSON-RPC 2.0 message")
    request_id = message.get("id")
    if "result" in message:
        return request_id, message["result"], None
    error = message.get("error")
    if not isinstance(error, dict):
        raise ProtocolError("the answer has neither result nor error")
    return request_id, None, _error_of(error)


def _error_of(error: dict[str, Any]) -> OpdError:
    data = error.get("data")
    data = dict(data) if isinstance(data, dict) else {}
    code, hint = data.pop("code", None), data.pop("hint", None)
    kind = _ERROR_CLASSES.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = OperationFailedError
    text = str(error.get("message", "the daemon gave no reason"))
    return kind(text, hint=hint if isinstance(hint, str) else None, data=data)


def refusal(request_id: RequestId, why: str) -> Refusal:
    """What an invalid request gets."""
    return Refusal(request_id, INVALID_REQUEST, ProtocolError(why))


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _ID_LIMIT_CHARACTERS
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
