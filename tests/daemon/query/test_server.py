"""The server on a real socket."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import sys
import threading
import time
from pathlib import Path

import msgpack
import pytest
import zmq

from opd.query import tables, zmtp
from opd.query.protocol import MESSAGE_LIMIT_BYTES
from opd.query.server import UNDER_WAY_LIMIT

_OPEN = []
DOCS = Path(__file__).parents[3] / "docs" / "protocol.md"


def body_of(method, params=None, request_id=1):
    """The bytes of a request."""
    return msgpack.packb(
        {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
    )


def opened(context, kind, address, **options):
    """A connected socket that the context fixture closes."""
    made = context.socket(kind)
    made.linger = 0
    made.rcvtimeo = 20_000
    for name, value in options.items():
        setattr(made, name, value)
    made.connect(address)
    _OPEN.append(made)
    return made


@pytest.fixture
def context():
    """A context whose sockets are closed after the test."""
    with zmq.Context() as made:
        yield made
        while _OPEN:
            _OPEN.pop().close()


@pytest.fixture
def dealer(server, context):
    """A bare DEALER at the server."""
    return opened(context, zmq.DEALER, server.endpoint)


def ask(one, method, params=None, request_id=1):
    """Send a request, return the decoded answer."""
    one.send(body_of(method, params, request_id))
    return msgpack.unpackb(one.recv())


def settled(server, received, under_way=0):
    """The counters, once the server has received that many messages and ended all but some."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        counts = server.messages()
        ended = counts["answered"] + counts["dropped"]
        if counts["received"] == received == ended + under_way:
            return counts
        time.sleep(0.01)
    raise AssertionError(f"{server.messages()}, expected {received} received")


def test_req_and_dealer_are_answered_in_kind(server, context, dealer):
    """REQ gets its empty delimiter back, a bare DEALER does not."""
    req = opened(context, zmq.REQ, server.endpoint)
    assert ask(req, "status")["result"]["samples"] == 900
    dealer.send_multipart([b"", body_of("status")])
    assert dealer.recv_multipart()[0] == b""
    dealer.send(body_of("status"))
    assert len(dealer.recv_multipart()) == 1
    dealer.send_multipart([b"hop", b"hop", b"", body_of("status")])
    assert dealer.recv_multipart()[:3] == [b"hop", b"hop", b""]


def test_the_example_of_the_manual_works(server, capfd):
    """The ten lines of docs/protocol.md print symbols from this server."""
    code = DOCS.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.strip().splitlines()) <= 12
    code = code.replace("ipc:///run/opd/opd.sock", server.endpoint)
    names: dict = {}
    exec(code, names)  # noqa: S102 - our own document
    names["socket"].close()
    names["socket"].context.term()
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "812 _PyEval_EvalFrameDefault"


def test_hello_says_who_and_where(server, dealer):
    """Versions, PUB address, capabilities; the back end's own are kept."""
    hello = ask(dealer, "hello")["result"]
    assert hello["pub"] == f"{server.endpoint}.pub"
    assert hello["versions"]["protocol"] == 1
    assert hello["capabilities"]["may_change"] is True
    assert hello["capabilities"]["sampling"] is True
    assert "report" in hello["capabilities"]["methods"]


def test_the_manual_has_every_method(dealer):
    """A method that is served is a heading of docs/protocol.md."""
    headings = [line for line in DOCS.read_text().splitlines() if line.startswith("### ")]
    for method in ask(dealer, "hello")["result"]["capabilities"]["methods"]:
        assert any(method in heading.replace(",", " ").split() for heading in headings), method


def test_a_report_travels_as_columns(dealer):
    """The rows are a table whose columns are samples, weight, percent, cores and the keys."""
    result = ask(dealer, "report", {"sort": ["symbol", "mode"], "top": 2})["result"]
    assert [column["name"] for column in result["rows"]["columns"]] == [
        *("samples", "weight", "percent", "cores", "symbol", "mode"),
    ]
    assert result["total"] == 900
    assert tables.to_rows(result["rows"])[1]["symbol"] == "pv_native_safe_halt"


@pytest.mark.parametrize(
    ("method", "params", "code", "word"),
    [
        ("repotr", {}, -32601, "report"),
        ("", {}, -32601, "status"),
        ("report", {"srot": "comm"}, -32602, "sort"),
        ("report", {"top": -1}, -32602, "top"),
        ("report", {"top": True}, -32602, "top"),
        ("report", {"top": "5"}, -32602, "top"),
        ("report", {"sort": [1]}, -32602, "sort"),
        ("report", {"sort": "comm,"}, -32602, "sort"),
        ("report", {"sort": "smybol"}, -32602, "symbol"),
        ("top", {"seconds": 0}, -32602, "seconds"),
        ("top", {"seconds": float("nan")}, -32602, "seconds"),
        ("status", {"x": 1}, -32602, "cost"),
        ("import_chunk", {"transfer": "a"}, -32602, "offset"),
        ("import_chunk", {"transfer": "a", "offset": 0, "data": b"x"}, -32602, "transfer"),
        ("report", {"session": "broken"}, -32603, "ZeroDivisionError"),
    ],
)
def test_wrong_requests_are_told_what_is_right(dealer, method, params, code, word):
    """Unknown methods and parameters, wrong types and values, and defects are errors."""
    error = ask(dealer, method, params)["error"]
    assert error["code"] == code
    assert word in error["message"] + error["data"].get("hint", "")


def test_a_defect_is_reported_to_the_daemon(server, dealer):
    """The daemon learns which method broke and how."""
    ask(dealer, "report", {"session": "broken"})
    assert [(method, type(error)) for method, error in server.broken] == [
        ("report", ZeroDivisionError)
    ]


def test_notifications_are_dropped_and_not_carried_out(backend, dealer):
    """A request without id is counted as dropped and changes nothing."""
    dealer.send(msgpack.packb({"jsonrpc": "2.0", "method": "stop"}))
    counts = ask(dealer, "status")["result"]["messages"]
    assert counts == {"received": 2, "answered": 1, "dropped": 1}
    assert backend.sampling


def test_odd_frames_are_answered_or_dropped(server, dealer):
    """Empty, several and deeply enveloped frames are all accounted for."""
    for frames in ([b""], [b"", b""], [b"a", b"b"], [b"", b"a", b"b"]):
        dealer.send_multipart(frames)
        assert msgpack.unpackb(dealer.recv_multipart()[-1])["error"]["code"] in (-32600, -32700)
    dealer.send_multipart([b"x"] * 20 + [b"", body_of("status")])
    assert settled(server, 5) == {"received": 5, "answered": 4, "dropped": 1}


def mutated(rng):
    """A frame list that is random, or a good request with some bytes changed."""
    kind = rng.randrange(6)
    if kind == 0:
        return [os.urandom(rng.randrange(300))]
    if kind == 1:
        return [os.urandom(rng.randrange(20)) for _ in range(rng.randrange(1, 30))]
    methods = ["status", "report", "events", "nope", "import_begin", "import_chunk", "hello"]
    message = {"jsonrpc": "2.0", "id": rng.choice([1, "a", None, [1], {}, True, -5])}
    if kind == 2:
        del message["id"]
    message |= {"method": rng.choice(methods), "params": rng.choice([{}, None, [], {"top": -1}, 3])}
    body = bytearray(msgpack.packb([message] if kind == 3 else message))
    if kind >= 4:
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    if kind == 5:
        del body[rng.randrange(len(body)) :]
    return [b"", bytes(body)] if rng.randrange(2) else [bytes(body)]


def test_two_thousand_bad_frames_are_counted(server, context, dealer):
    """After random and mutated messages the server answers and its counters add up."""
    rng = random.Random(2)
    other = opened(context, zmq.DEALER, server.endpoint)
    for at in range(2000):
        (dealer, other)[at % 2].send_multipart(mutated(rng))
        if at % 50 == 0:
            while dealer.poll(0):
                dealer.recv_multipart()
    settled(server, 2000)
    fresh = opened(context, zmq.DEALER, server.endpoint)
    counts = ask(fresh, "status")["result"]["messages"]
    assert counts["received"] == 2001 == counts["answered"] + counts["dropped"]
    assert counts["dropped"] > 0


def test_an_oversized_message_is_answered(dealer):
    """One byte over the limit, in one frame or several, gets an error and is counted."""
    dealer.send(b"\0" * (MESSAGE_LIMIT_BYTES + 1))
    assert "16777217" in msgpack.unpackb(dealer.recv())["error"]["message"]
    dealer.send_multipart([b"\0" * (MESSAGE_LIMIT_BYTES // 2 + 1)] * 2)
    assert msgpack.unpackb(dealer.recv())["error"]["code"] == -32600
    assert ask(dealer, "status")["result"]["messages"]["received"] == 3


def test_a_frame_that_zeromq_refuses_does_not_stop_the_server(server, context, dealer):
    """A connection that claims a frame of 18 MiB is cut; the others go on."""
    dealer.send(b"\0" * (18 << 20))
    fresh = opened(context, zmq.DEALER, server.endpoint)
    assert ask(fresh, "status")["result"]["messages"]["received"] == 1


def test_bytes_that_are_no_zmtp_do_not_stop_the_server(server, dealer):
    """Garbage on plain connections, which libzmq may read as ZMTP 1.0, is accounted for."""
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as plain:
            plain.connect(server.path)
            with contextlib.suppress(OSError):
                plain.sendall(os.urandom(500))
    assert ask(dealer, "status")["result"]["samples"] == 900
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        counts = server.messages()
        if counts["received"] == counts["answered"] + counts["dropped"]:
            return
        time.sleep(0.01)
    raise AssertionError(counts)


def test_a_slow_handler_keeps_nobody_waiting(backend, dealer):
    """While dump waits, the same connection gets other answers; then dump's comes."""
    dealer.send(body_of("dump", request_id="slow"))
    assert backend.dumping.wait(10)
    assert ask(dealer, "report", request_id="quick")["id"] == "quick"
    assert ask(dealer, "status")["result"]["messages"] == {
        "received": 3,
        "answered": 2,
        "dropped": 0,
    }
    backend.release.set()
    assert msgpack.unpackb(dealer.recv())["id"] == "slow"


def test_too_many_waiting_requests_are_told_so(server, backend, context, dealer):
    """A connection's requests and all slow ones are bounded; status works when they are full."""
    crowd = [opened(context, zmq.DEALER, server.endpoint) for _ in range(3)]
    for at, one in enumerate(crowd):
        for number in range(UNDER_WAY_LIMIT + 1):
            one.send(body_of("dump", request_id=number))
        deadline = time.monotonic() + 20
        while server.messages()["received"] < 33 * (at + 1) and time.monotonic() < deadline:
            time.sleep(0.01)
    for one, refused in zip(crowd, (1, 1, 33), strict=True):
        replies = [msgpack.unpackb(one.recv()) for _ in range(refused)]
        assert all("waiting" in reply["error"]["message"] for reply in replies)
        assert not one.poll(0)
    assert "result" in ask(dealer, "status")
    backend.release.set()
    assert settled(server, 100)["answered"] == 100


def test_a_peer_that_never_reads_does_not_block(server, context, dealer):
    """Answers beyond the queue of a peer that does not read are dropped and counted."""
    deaf = opened(context, zmq.DEALER, server.endpoint, rcvhwm=1, sndhwm=0)
    for at in range(12_000):
        deaf.send(body_of("hello", request_id=at))
    counts = settled(server, 12_000)
    assert counts["dropped"] > 0
    assert "result" in ask(dealer, "status")


def test_answers_for_a_peer_that_left_are_dropped(server, backend, context):
    """A client that goes away before its answer costs one dropped message."""
    brief = opened(context, zmq.DEALER, server.endpoint)
    brief.send(body_of("dump"))
    assert backend.dumping.wait(10)
    brief.close()
    time.sleep(0.2)
    backend.release.set()
    assert settled(server, 1)["dropped"] == 1


def test_subscribers_get_their_topics(server, context, dealer):
    """What is published reaches the subscribers of a topic, from any thread, as msgpack."""
    sub = opened(context, zmq.SUB, ask(dealer, "hello")["result"]["pub"])
    sub.subscribe(b"window")
    deadline = time.monotonic() + 10
    while not sub.poll(20) and time.monotonic() < deadline:
        server.publish("stats", {"n": 0})
        server.publish("window", {"n": 1})
    topic, payload = sub.recv_multipart()
    assert (topic, msgpack.unpackb(payload)) == (b"window", {"n": 1})
    with pytest.raises(ValueError, match="weather"):
        server.publish("weather", {})


def test_the_sockets_are_0660_in_a_directory_of_0750(server):
    """The files' modes are the contract's, whatever the umask."""
    for path in (server.path, f"{server.path}.pub"):
        info = Path(path).stat()
        assert stat.S_ISSOCK(info.st_mode)
        assert stat.S_IMODE(info.st_mode) == 0o660
    assert stat.S_IMODE(Path(server.path).parent.stat().st_mode) == 0o750


def as_nobody(work):
    """Run ``work`` as uid 65534 in a forked child; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            status = work()
        except BaseException as error:  # noqa: BLE001 - a child must not return into pytest
            sys.stderr.write(repr(error))
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.privileged
@pytest.mark.parametrize("method", ["start", "stop", "shutdown"])
def test_only_root_and_the_owner_may_change(server, backend, tmp_path, method):
    """Another uid that can connect may read; start, stop and shutdown are refused with 77."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    for path in (*tmp_path.parents, tmp_path, Path(server.path).parent):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    Path(server.path).chmod(0o666)

    def work():
        with zmq.Context() as context:
            one = opened(context, zmq.DEALER, server.endpoint)
            read, changed = ask(one, "status"), ask(one, method)
            mine = ask(one, "hello")["result"]["capabilities"]["may_change"]
            one.close()
        good = "result" in read and changed["error"]["data"]["code"] == "permission" and not mine
        return 0 if good and "65534" in changed["error"]["message"] else 1

    assert as_nobody(work) == 0
    assert backend.sampling
    assert not backend.ended.is_set()


def test_the_owner_may_change(backend, dealer):
    """The daemon's own uid stops and starts it."""
    assert ask(dealer, "stop")["result"] == {"sampling": False}
    assert not backend.sampling
    assert ask(dealer, "start")["result"] == {"sampling": True}


def test_nobody_may_change_where_peers_are_unknown(server, dealer):
    """Without the kernel's word on a peer, changing is refused to all."""
    server._dispatcher.trusts_peers = False
    assert ask(dealer, "stop")["error"]["data"]["code"] == "permission"
    assert ask(dealer, "status")["result"]["samples"] == 900


def test_a_stopped_server_leaves_no_files(server):
    """A stop removes both sockets and ends the threads."""
    server.stop()
    assert not os.path.lexists(server.path)
    assert not os.path.lexists(f"{server.path}.pub")
    server.stop()


def test_a_shutdown_is_answered(server, backend, dealer):
    """The answer to what was asked before stop still leaves."""
    dealer.send(body_of("dump"))
    assert backend.dumping.wait(10)
    backend.release.set()
    server.stop()
    assert msgpack.unpackb(dealer.recv())["result"] == {"dumped": True}


def test_a_stop_ends_whatever_peers_do(server, backend, context):
    """Neither a hanging handler, nor unread answers, nor a socket left open keep stop() waiting."""
    deaf = opened(context, zmq.DEALER, server.endpoint, rcvhwm=1, sndhwm=0)
    deaf.send(body_of("dump"))
    for at in range(2000):
        deaf.send(body_of("report", request_id=at))
    flooding = socket.socket(socket.AF_UNIX)
    flooding.connect(f"{server.path}.pub")
    flooding.sendall(zmtp.GREETING + zmtp.ready(b"SUB") + b"\x00\x02\x01x" * 5000)
    assert backend.dumping.wait(20)
    left_open = server._context.socket(zmq.PULL)
    stopping = threading.Thread(target=server.stop, args=(0.2,), daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert not os.path.lexists(server.path)
    left_open.close()
    flooding.close()


def test_hello_is_answered_while_handlers_hang(server, backend, context, dealer):
    """With every quick and slow thread taken, hello of the same and of another connection come."""
    go_on = threading.Event()
    backend.status = lambda _params: {"waited": go_on.wait(60)}
    try:
        for at in range(10):
            dealer.send(body_of("status", request_id=at))
            dealer.send(body_of("dump", request_id=100 + at))
        assert backend.dumping.wait(20)
        other = opened(context, zmq.DEALER, server.endpoint)
        assert ask(other, "hello", request_id="h")["id"] == "h"
        assert ask(dealer, "hello", request_id="h")["id"] == "h"
        assert settled(server, 22, under_way=20)["answered"] == 2
    finally:
        go_on.set()
        backend.release.set()
    assert settled(server, 22)["answered"] == 22


def test_a_flood_of_one_connection_keeps_nobody_waiting(server, backend, context, dealer):
    """Of 1,000 status requests that nobody reads 32 wait, and another's turn comes among them."""
    turns = threading.Semaphore(0)
    backend.status = lambda _params: {"turn": turns.acquire(timeout=60)}
    deaf = opened(context, zmq.DEALER, server.endpoint)
    for at in range(1000):
        deaf.send(body_of("status", request_id=at))
    settled(server, 1000, under_way=UNDER_WAY_LIMIT)
    assert "result" in ask(dealer, "hello")
    dealer.send(body_of("status", request_id="mine"))
    while server.messages()["received"] < 1002:
        time.sleep(0.01)
    # Two of the flood are being answered, at most two more come before it.
    turns.release(6)
    assert msgpack.unpackb(dealer.recv())["id"] == "mine"
    turns.release(1000)
    settled(server, 1002)
    replies = [msgpack.unpackb(deaf.recv()) for _ in range(10)]
    assert all("waiting" in reply["error"]["message"] for reply in replies)


def test_what_a_peer_that_left_still_wants_is_dropped(server, backend, context):
    """When the first of its answers finds the peer gone, its other requests are not carried out."""
    brief = opened(context, zmq.DEALER, server.endpoint)
    for at in range(4):
        brief.send(body_of("dump", request_id=at))
    for at in range(20):
        brief.send(body_of("report", {"session": "late"}, request_id=10 + at))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and server.messages()["received"] < 24:
        time.sleep(0.01)
    brief.close()
    time.sleep(0.2)
    ended = threading.Event()
    backend.report = lambda _: {"ended": ended.wait(60)}
    backend.release.set()
    while server.messages()["dropped"] < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    ended.set()
    assert settled(server, 24)["dropped"] == 24


def test_times_and_names_that_the_store_cannot_hold_are_usage_errors(server, dealer):
    """A count of keys beyond the limit and a name that is no UTF-8 are told, not tried."""
    for params in ({"sort": ["comm"] * 65}, {"session": "\udcff"}, {"event": "\udcff"}):
        request = {"jsonrpc": "2.0", "id": 1, "method": "report", "params": params}
        dealer.send(msgpack.packb(request, unicode_errors="surrogateescape"))
        assert msgpack.unpackb(dealer.recv())["error"]["data"]["code"] == "usage"
    assert server.broken == []
