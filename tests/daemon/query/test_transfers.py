"""Imports over the wire."""

from __future__ import annotations

import os
import time

import pytest

from opd.errors import OperationFailedError, StoreError, UsageError
from opd.query.client import Client
from opd.query.transfers import Transfers

ME, OTHER = (b"me", None), (b"other", None)


@pytest.fixture
def transfers(tmp_path):
    """Small limits, quick expiry."""
    made = Transfers(str(tmp_path), size_limit_bytes=3 << 20, idle_seconds=0.05)
    yield made
    made.close()


def chunk(transfers, key, offset, data, owner=ME):
    """Send one piece."""
    return transfers.chunk(owner, {"transfer": key, "offset": offset, "data": data})


def test_a_file_arrives_whole_and_nameless(server, backend, tmp_path):
    """A client's bytes, name, origin and time reach the back end; no file is left."""
    data = os.urandom((5 << 20) + 17)
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    os.utime(path, ns=(10**18, 10**18))
    seen = []
    with Client(server.endpoint) as client, path.open("rb") as file:
        result = client.send_file(file, name="night", origin="perf.data", progress=seen.append)
    assert result["samples"] == len(data)
    assert backend.imported == [("night", "perf.data", data, 10**18, 0)]
    assert seen[-1] == len(data)
    assert {entry.name for entry in tmp_path.iterdir()} == {"perf.data", "run"}


def test_an_empty_file_is_refused(server, tmp_path):
    """Nothing is not a recording."""
    path = tmp_path / "empty"
    path.touch()
    with (
        Client(server.endpoint) as client,
        path.open("rb") as file,
        pytest.raises(UsageError, match="empty"),
    ):
        client.send_file(file, name="", origin="empty")


def test_pieces_must_follow_each_other(transfers):
    """A gap, an overlap or a short end is refused; the transfer stays usable."""
    key = transfers.begin(ME, {})["transfer"]
    assert chunk(transfers, key, 0, b"abc") == {"received": 3}
    for offset in (0, 4):
        with pytest.raises(UsageError, match="offset"):
            chunk(transfers, key, offset, b"x")
    with pytest.raises(UsageError, match="3 of 9"), transfers.end(ME, {"transfer": key, "size": 9}):
        pass
    with transfers.end(ME, {"transfer": key, "size": 3}) as whole:
        assert whole.file.read() == b"abc"
    with pytest.raises(UsageError):
        chunk(transfers, key, 3, b"x")


def test_a_transfer_belongs_to_its_connection(transfers):
    """Another connection can neither feed nor end nor abort it."""
    key = transfers.begin(ME, {})["transfer"]
    with pytest.raises(UsageError):
        chunk(transfers, key, 0, b"x", OTHER)
    with pytest.raises(UsageError):
        transfers.abort(OTHER, {"transfer": key})
    assert transfers.abort(ME, {"transfer": key}) == {"received": 0}


def test_limits_hold(transfers):
    """At most two a connection, eight in all, so many bytes each."""
    for at in range(4):
        for _ in range(2):
            transfers.begin((b"%d" % at, None), {})
        with pytest.raises(OperationFailedError):
            transfers.begin((b"%d" % at, None), {})
    with pytest.raises(OperationFailedError):
        transfers.begin(ME, {})
    with pytest.raises(OperationFailedError, match="limit"):
        transfers.begin(ME, {"size": (3 << 20) + 1})


def test_one_that_grows_too_long_is_forgotten(transfers):
    """A transfer that passes the limit ends, however small its claim was."""
    key = transfers.begin(ME, {"size": 1})["transfer"]
    for at in range(3):
        chunk(transfers, key, at << 20, b"x" * (1 << 20))
    with pytest.raises(OperationFailedError, match="limit"):
        chunk(transfers, key, 3 << 20, b"x")
    with pytest.raises(UsageError, match="no transfer"):
        chunk(transfers, key, 3 << 20, b"x")


def test_idle_ones_expire(transfers):
    """A transfer that nobody feeds makes room for others."""
    keys = [transfers.begin(ME, {})["transfer"] for _ in range(2)]
    time.sleep(0.1)
    transfers.begin(ME, {})
    with pytest.raises(UsageError):
        chunk(transfers, keys[0], 0, b"x")


@pytest.mark.parametrize("name", ["a/b", "a\nb", "x" * 256, "\x1b[1m"])
def test_a_name_is_one_printable_word(transfers, name):
    """A session's name cannot be a path or a trick on a terminal."""
    with pytest.raises(UsageError, match="printable"):
        transfers.begin(ME, {"name": name})


def test_a_spool_that_is_not_there_is_named(tmp_path):
    """The error has the directory."""
    with pytest.raises(StoreError, match="nowhere"):
        Transfers(str(tmp_path / "nowhere")).begin(ME, {})


def test_a_resting_transfer_makes_room(tmp_path):
    """Eight abandoned transfers do not keep the next client out for a minute."""
    transfers = Transfers(str(tmp_path), yield_seconds=0.05)
    keys = [transfers.begin((b"%d" % at, None), {})["transfer"] for at in range(8)]
    time.sleep(0.1)
    chunk(transfers, keys[0], 0, b"alive", (b"0", None))
    transfers.begin(ME, {})
    chunk(transfers, keys[0], 5, b"alive", (b"0", None))
    with pytest.raises(UsageError):
        chunk(transfers, keys[1], 0, b"x", (b"1", None))
    transfers.close()
