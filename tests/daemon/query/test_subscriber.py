"""What is published, heard over restarts of a server."""

from __future__ import annotations

import os

import pytest

from opd.query.server import Server
from opd.query.subscriber import Back, Gone, Heard, Subscription


def until(listening, kind):
    """What was heard up to the first of a kind, and that."""
    heard = []
    for happened in listening:
        heard.append(happened)
        if isinstance(happened, kind):
            return heard
    return pytest.fail(f"no {kind.__name__} among {heard}")


def started(endpoint, directory, backend):
    """A server on an endpoint."""
    made = Server(endpoint, backend, state_dir=directory)
    made.start()
    return made


def test_a_server_that_comes_back_is_heard_again(tmp_path, backend):
    """Gone once when it ends, back when another one listens, and its messages arrive."""
    endpoint = f"ipc://{tmp_path}/opd.sock"
    server = started(endpoint, tmp_path, backend)
    with Subscription(f"{endpoint}.pub", ["window"]) as subscription:
        listening = subscription.listen(60)
        assert until(listening, Back) == [Back(os.getpid())]
        # A subscription takes a moment to arrive.
        while not isinstance(first := _soon(server, subscription), Heard):
            pass
        assert first.topic == "window"
        server.stop()
        gone = [item for item in until(listening, Gone) if not isinstance(item, Heard)]
        assert gone == [Gone(hung=False)]
        server = started(endpoint, tmp_path, backend)
        assert until(listening, Back)[-1] == Back(os.getpid())
        while not isinstance(_soon(server, subscription), Heard):
            pass
        server.stop()


def _soon(server, subscription):
    """Publish, and what is heard in the next tenth of a second."""
    server.publish("log", {"not": "asked for"})
    server.publish("window", {"sequence": 7})
    return next(subscription.listen(0.1), None)


def test_listening_ends_on_time(server):
    """Without news, after the seconds asked for."""
    with Subscription(f"{server.endpoint}.pub", ["stats"]) as subscription:
        assert list(subscription.listen(0.3)) in ([], [Back(os.getpid())])
