"""Where opd listens and keeps, by user and environment."""

import pytest

from opd.errors import ConfigError
from opd.service import paths


@pytest.mark.parametrize(
    ("environ", "uid", "endpoint"),
    [
        ({}, 0, "ipc:///run/opd/opd.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, "ipc:///run/opd/opd.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/5"}, 5, "ipc:///run/user/5/opd/opd.sock"),
        ({"RUNTIME_DIRECTORY": "/run/x:/run/y"}, 5, "ipc:///run/x/opd.sock"),
        ({"RUNTIME_DIRECTORY": "relative"}, 0, "ipc:///run/opd/opd.sock"),
    ],
)
def test_where_a_daemon_listens(environ, uid, endpoint):
    """The unit's directory, the system's for root, the user's own else."""
    assert paths.daemon_endpoint(environ, uid=uid) == endpoint


def test_no_runtime_directory_never_means_tmp():
    """A predictable name where all may write is refused with a remedy."""
    with pytest.raises(ConfigError) as caught:
        paths.daemon_endpoint({"XDG_RUNTIME_DIR": "relative"}, uid=4242424)
    assert "--endpoint" in caught.value.hint


@pytest.mark.parametrize(
    ("environ", "uid", "place"),
    [
        ({}, 0, "/var/lib/opd"),
        ({"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}, 5, "/var/lib/x"),
        ({"XDG_STATE_HOME": "/h/state", "HOME": "/h"}, 5, "/h/state/opd"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, 5, "/h/.local/state/opd"),
        ({"HOME": "/h"}, 5, "/h/.local/state/opd"),
    ],
)
def test_where_the_history_is_kept(environ, uid, place):
    """The unit's directory, the system's for root, the user's own else."""
    assert paths.state_dir(environ, uid=uid) == place


def test_no_home_is_an_error_with_a_remedy():
    """A user that nobody knows is told what to set."""
    with pytest.raises(ConfigError) as caught:
        paths.state_dir({}, uid=4242424)
    assert "--session-dir" in caught.value.hint


def test_a_client_asks_where_a_daemon_listens(monkeypatch, tmp_path):
    """OPD_ENDPOINT first, the system's socket where it stands, else the user's."""
    assert paths.client_endpoint({"OPD_ENDPOINT": "ipc:///x"}) == "ipc:///x"
    socket = tmp_path / "opd.sock"
    monkeypatch.setattr(paths, "SYSTEM_ENDPOINT", f"ipc://{socket}")
    user = {"XDG_RUNTIME_DIR": "/run/user/5"}
    assert paths.client_endpoint(user, uid=5) == "ipc:///run/user/5/opd/opd.sock"
    assert paths.client_endpoint({}, uid=4242424) == f"ipc://{socket}"
    socket.touch()
    assert paths.client_endpoint(user, uid=5) == f"ipc://{socket}"


@pytest.mark.parametrize(
    ("environ", "uid", "place"),
    [
        ({}, 0, "/var/cache/opd"),
        ({"CACHE_DIRECTORY": "/var/cache/x:/y"}, 0, "/var/cache/x"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/home/a"}, 5, "/c/opd"),
        ({"HOME": "/home/a"}, 5, "/home/a/.cache/opd"),
        ({"HOME": "relative"}, 5, ""),
    ],
)
def test_where_what_can_be_made_anew_is_kept(environ, uid, place):
    """The unit's directory, the system's for root, the user's own else, or none."""
    assert paths.cache_dir(environ, uid=uid) == place
