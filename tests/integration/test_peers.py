"""Who may do what, each rule tried: as root, as the daemon's user, as a group member, as nobody."""

import json
import stat
import subprocess

import pytest

from opd.query.methods import METHODS
from other_users import GROUP, OTHER_USER, SERVICE_CAPABILITIES, USER, as_user

NOBODY = 65534
# DESIGN's list; those that are not built yet are no methods.
FOR_OWNERS = {"start", "stop", "reset", "save", "mark", "shutdown", "probe", "record"} & {*METHODS}
# How a burst that was begun is asked for and ended belongs to `record`.
FOR_OWNERS |= {"record_poll", "record_stop"}
FOR_OWNERS |= {"probe_run", "probe_compare", "probe_cancel"}
# To reset what all see is no reading.
FOR_OWNERS |= {"readprofile_reset"}
PARAMETERS = {
    "save": {"name": "kept"},
    "mark": {"text": "deploy"},
    "record": {"name": "burst", "seconds": 5},
    "record_poll": {"session": "burst"},
    "sql": {"query": "SELECT 1"},
}
# Needs a transfer or the right parameters to be more than a wrong request.
NOT_PLAIN = {name for name in METHODS if name.startswith("import_")}
# Wrong requests here, since there is no such event, job or run: but not refused.
NAMES_NOTHING = {name for name in METHODS if name.startswith("probe_")} - {"probe_list"} | {
    "derive",
    "readprofile",
    "readprofile_reset",
}

ASK = """
import json, sys
from opd.errors import OpdError
from opd.query.client import Client
endpoint, questions = sys.argv[1], json.loads(sys.argv[2])
answers = {}
with Client(endpoint) as client:
    for method, params in questions.items():
        try:
            client.call(method, params)
            answers[method] = 0
        except OpdError as error:
            answers[method] = error.exit_status
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def daemon(place, start_daemon):
    """Runs like the service: a user and a group of its own, a few capabilities."""
    folder = place.folder("peers", owner=USER)
    program = [*as_user(USER, group=GROUP, capabilities=SERVICE_CAPABILITIES)]
    program += [place.python, "-m", "opd.cli.opd"]
    endpoint = f"ipc://{folder}/run/opd.sock"
    one = start_daemon("-e", "cpu-clock", "--endpoint", endpoint, program=program, directory=folder)
    one.endpoint = endpoint
    yield one
    assert one.stop() == 0


@pytest.fixture(scope="module")
def ask(place, daemon):
    """Give a function that asks methods as somebody: the exit status each would have."""

    def asking(user, methods, groups=()):
        questions = {name: PARAMETERS.get(name, {}) for name in methods}
        # Root as it is: without its capabilities a closed directory is closed to it too.
        words = as_user(user, groups=groups) if user else []
        done = subprocess.run(
            [*words, place.python, "-c", ASK, daemon.endpoint, json.dumps(questions)],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return asking


READING = sorted({*METHODS} - FOR_OWNERS - NOT_PLAIN)
# What ends the daemon is tried last, and not by those who may.
CHANGING = sorted(FOR_OWNERS - {"shutdown"}, key=lambda name: (name == "start", name))


def allowed(methods):
    """What somebody gets who may do it all."""
    answers = {name: 2 if name in NAMES_NOTHING else 0 for name in methods}
    return answers | {"probe_cancel": 1} if "probe_cancel" in answers else answers


def test_the_list_is_the_designs():
    """Exactly those methods are for owners."""
    assert {name for name, method in METHODS.items() if method.owner_only} == FOR_OWNERS


def test_the_socket_is_the_groups_and_its_directory_closed_to_others(daemon):
    """A directory that opd made is 0750, the sockets 0660."""
    directory = daemon.directory / "run"
    status = directory.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o750, GROUP)
    for name in ("opd.sock", "opd.sock.pub"):
        status = (directory / name).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, GROUP)


@pytest.mark.parametrize("user", [0, USER])
def test_root_and_the_daemons_user_may_do_everything(ask, user):
    """Reading and changing."""
    methods = [*READING, *CHANGING]
    if user != 0:  # a session of that name is there now
        methods.remove("save")
    groups = (GROUP,) if user else ()
    assert ask(user, methods, groups) == allowed(methods)


def test_a_member_of_the_group_may_read(ask):
    """Every method that changes nothing."""
    assert ask(OTHER_USER, READING, (GROUP,)) == allowed(READING)


def test_a_member_of_the_group_may_not_change(ask, daemon):
    """77 from each of the others, and nothing has changed."""
    before = daemon.ask("status")
    wanted = sorted(FOR_OWNERS)
    assert ask(OTHER_USER, wanted, (GROUP,)) == dict.fromkeys(wanted, 77)
    after = daemon.ask("status")
    assert after["pid"] == before["pid"]
    assert after["sampling"] == before["sampling"]


def test_a_member_of_the_group_may_import(place, daemon):
    """The client opens the file, so it is his to read: the daemon never does."""
    path = place.path / "garbage.data"
    path.write_bytes(b"not a recording")
    path.chmod(0o600)
    done = place.opctl(OTHER_USER, daemon.endpoint, "import", str(path), groups=(GROUP,))
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    path.chmod(0o644)
    done = place.opctl(OTHER_USER, daemon.endpoint, "import", str(path), groups=(GROUP,))
    assert done.returncode == 1
    assert "perf.data" in done.stderr


@pytest.mark.parametrize("command", ["status", "report", "stop", "shutdown", "doctor"])
def test_nobody_else_gets_in(place, daemon, command):
    """Exit 77 at once, with what would let him in."""
    done = place.opctl(NOBODY, daemon.endpoint, command)
    assert done.returncode == 77
    assert "opd" in done.stderr
    assert done.stdout == ""


def test_opctl_says_77_to_a_member_who_would_change(place, daemon):
    """And who may."""
    done = place.opctl(OTHER_USER, daemon.endpoint, "stop", groups=(GROUP,))
    assert done.returncode == 77
    assert f"uid {USER}" in done.stderr
    assert daemon.ask("status")["sampling"] is True


def test_a_directory_that_is_there_stays_as_it_is(place, start_daemon):
    """Owner and mode are somebody's choice."""
    folder = place.folder("chosen", owner=USER)
    run = place.folder("chosen/run", owner=USER, mode=0o711)
    program = [*as_user(USER, group=GROUP, capabilities=SERVICE_CAPABILITIES)]
    program += [place.python, "-m", "opd.cli.opd"]
    endpoint = f"ipc://{run}/opd.sock"
    one = start_daemon("-e", "cpu-clock", "--endpoint", endpoint, program=program, directory=folder)
    assert stat.S_IMODE(run.stat().st_mode) == 0o711
    assert run.stat().st_gid == USER
    assert stat.S_IMODE((run / "opd.sock").stat().st_mode) == 0o660
    assert one.stop() == 0
