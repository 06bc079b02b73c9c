"""The shape of messages."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd import errors
from opd.errors import OpdError
from opd.query import protocol
from opd.query.protocol import Refusal, Request

GOOD = {"jsonrpc": "2.0", "id": 1, "method": "status", "params": {}}


def parse(message):
    """Parse what msgpack makes of ``message``."""
    return protocol.parse_request(msgpack.packb(message))


@pytest.mark.parametrize("request_id", [0, -1, 2**63, 1.5, "a", "", None])
def test_every_kind_of_id_comes_back(request_id):
    """Numbers, short strings and nil are ids."""
    assert parse({**GOOD, "id": request_id}) == Request(request_id, "status", {})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"jsonrpc": "1.0"}, -32600),
        ({"jsonrpc": None}, -32600),
        ({"method": 7}, -32600),
        ({"method": None}, -32600),
        ({"params": [1]}, -32602),
        ({"params": "x"}, -32602),
        ({"params": {b"bytes": 1}}, -32602),
        ({"id": True}, -32600),
        ({"id": [1]}, -32600),
        ({"id": "x" * 257}, -32600),
    ],
)
def test_wrong_shapes_say_so(change, code):
    """Each field of the wrong type is refused with its code."""
    refused = parse({**GOOD, **change})
    assert isinstance(refused, Refusal)
    assert refused.rpc_code == code
    assert refused.id == (None if "id" in change else 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xff\xff",
        msgpack.packb(GOOD) + b"\0",
        msgpack.packb(GOOD)[:-1],
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdd\x00\x0f\xff\xff" * 500,
        b"\x81\xa1\xff\x01",
        b"\x81\x01\x01",
        b"\xd6\xff\0\0\0\0",
    ],
)
def test_what_is_not_one_value_is_a_parse_error(body):
    """Truncated, trailing, nested and lying bytes are refused without being believed."""
    refused = protocol.parse_request(body)
    assert isinstance(refused, Refusal)
    assert refused.rpc_code in (-32700, -32600)


def test_a_batch_is_refused_with_a_word():
    """Arrays are not served."""
    refused = parse([GOOD, GOOD])
    assert "batch" in refused.error.message


def test_a_request_without_id_is_a_notification():
    """A missing id is not the same as nil."""
    assert parse({key: GOOD[key] for key in ("jsonrpc", "method")}).notification
    assert not parse({**GOOD, "id": None}).notification


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(body):
    """No input raises."""
    assert isinstance(protocol.parse_request(body), Request | Refusal)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, OpdError)
    ],
)
def test_every_error_survives_the_wire(kind):
    """The client raises what the daemon raised, with its hint, data and exit status."""
    body = protocol.encode_error(5, kind("no luck", hint="try again", data={"pid": 7}))
    request_id, result, error = protocol.decode_reply(body)
    assert (request_id, result) == (5, None)
    assert type(error) is kind
    assert (error.message, error.hint, error.data) == ("no luck", "try again", {"pid": 7})
    assert msgpack.unpackb(body)["error"]["code"] == kind.rpc_code


def test_file_names_that_are_no_text_travel():
    """A surrogate-escaped name is packed as its bytes and comes back."""
    assert protocol.unpack(protocol.pack({"path": "/tmp/\udcff"})) == {"path": "/tmp/\udcff"}
    assert b"/tmp/\xff" in protocol.pack("/tmp/\udcff")
