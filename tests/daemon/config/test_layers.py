"""Settings: layers, precedence, and every mistake told with its place."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.config import Config, Override, changed_keys, load, reload
from opd.errors import ConfigError

ROOT_ENVIRON = {"RUNTIME_DIRECTORY": "/run/opd", "STATE_DIRECTORY": "/var/lib/opd"}


def write(folder, text, name="opd.toml"):
    """Write a setting file; returns its path as text."""
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return str(file)


def complaint(path, overrides=None):
    """The message of the ConfigError that loading must give."""
    with pytest.raises(ConfigError) as caught:
        load(overrides, path, environ=ROOT_ENVIRON)
    assert caught.value.exit_status == 78
    return caught.value.message


def test_defaults_are_the_structs(tmp_path):
    """An empty file gives every default, with endpoint and directory filled in."""
    config = load(None, write(tmp_path, ""), environ=ROOT_ENVIRON)
    assert config.sampling == Config().sampling
    assert config.store == Config().store
    assert config.daemon.endpoint == "ipc:///run/opd/opd.sock"
    assert config.daemon.session_dir == "/var/lib/opd"
    assert config.sampling.events == ("cycles:p",)
    assert config.origin.sources == {}


def test_later_layers_win_key_by_key(tmp_path):
    """Drop-ins in name order win over the file, and flags over all."""
    main = write(tmp_path, '[daemon]\ninterval = 1\nverbose = true\n[sampling]\ncpus = "0"\n')
    write(tmp_path, '[daemon]\ninterval = 3\n[sampling]\nidle = "irq"\n', "conf.d/20-b.toml")
    write(tmp_path, "[daemon]\ninterval = 2\n[store]\nqueue_mib = 7\n", "conf.d/10-a.toml")
    write(tmp_path, "not toml, and not read", "conf.d/README")
    overrides = {"sampling.cpus": Override("--cpus", "1")}
    config = load(overrides, main, environ=ROOT_ENVIRON)
    assert config.daemon.interval == 3
    assert config.daemon.verbose
    assert config.store.queue_mib == 7
    assert config.sampling.idle == "irq"
    assert config.sampling.cpus == "1"
    assert config.origin.sources["daemon.interval"].endswith("conf.d/20-b.toml")
    assert config.origin.sources["sampling.cpus"] == "--cpus"


def test_drop_ins_are_read_without_a_main_file(tmp_path, monkeypatch):
    """Where the default file does not exist, its conf.d still counts."""
    write(tmp_path, "[daemon]\ninterval = 5\n", "conf.d/a.toml")
    monkeypatch.setattr("opd.config.layers.DEFAULT_PATH", str(tmp_path / "opd.toml"))
    assert load(environ=ROOT_ENVIRON).daemon.interval == 5


def test_the_default_file_may_be_missing(tmp_path, monkeypatch):
    """Nothing installed is no error."""
    monkeypatch.setattr("opd.config.layers.DEFAULT_PATH", str(tmp_path / "no" / "opd.toml"))
    assert load(environ=ROOT_ENVIRON).sampling == Config().sampling


def test_flags_arrive_as_text(tmp_path):
    """Numbers of the command line are converted, and the list of one too."""
    overrides = {
        "daemon.interval": Override("--interval", "2.5"),
        "sampling.separate": Override("--separate", ["thread", "cpu"]),
        "daemon.verbose": Override("--verbose", value=True),
    }
    config = load(overrides, write(tmp_path, ""), environ=ROOT_ENVIRON)
    assert config.daemon.interval == 2.5
    assert config.sampling.separate_thread
    assert config.sampling.separate_cpu
    assert config.daemon.verbose


@pytest.mark.parametrize(
    ("separate", "thread", "cpu"),
    [
        ((), False, False),
        (("thread",), True, False),
        (("cpu",), False, True),
        (("all",), True, True),
    ],
)
def test_separate_all_means_all(tmp_path, separate, thread, cpu):
    """The word all stands for every kind."""
    overrides = {"sampling.separate": Override("--separate", separate)}
    sampling = load(overrides, write(tmp_path, ""), environ=ROOT_ENVIRON).sampling
    assert (sampling.separate_thread, sampling.separate_cpu) == (thread, cpu)


def test_endpoint_from_the_environment_wins_over_the_file(tmp_path):
    """OPD_ENDPOINT overrides files and yields to the flag."""
    main = write(tmp_path, '[daemon]\nendpoint = "ipc:///a"\n')
    environ = {**ROOT_ENVIRON, "OPD_ENDPOINT": "ipc:///b"}
    assert load(None, main, environ=environ).daemon.endpoint == "ipc:///b"
    flag = {"daemon.endpoint": Override("--endpoint", "ipc:///c")}
    assert load(flag, main, environ=environ).daemon.endpoint == "ipc:///c"


def test_a_session_directory_becomes_absolute(tmp_path, monkeypatch):
    """The daemon may change its folder without losing its history."""
    monkeypatch.chdir(tmp_path)
    overrides = {"daemon.session_dir": Override("--session-dir", "here")}
    config = load(overrides, write(tmp_path, ""), environ=ROOT_ENVIRON)
    assert config.daemon.session_dir == str(tmp_path / "here")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[daemon]\nintervall = 3\n", ["daemon.intervall", "no such key", "interval"]),
        ("[sampling]\ninterval = 3\n", ["sampling.interval", "interval under [daemon]"]),
        ("interval = 3\n", ["interval", "interval under [daemon]"]),
        ("[damon]\ninterval = 3\n", ["damon", "no such table", "daemon, sampling, store"]),
        ("daemon = 3\n", ["daemon", "expected a table [daemon], got 3"]),
        ("[daemon]\ninterval = 'x'\n", ["expected seconds between 0.1 and 3600", 'got "x"']),
        ("[daemon]\ninterval = nan\n", ["daemon.interval", "NaN"]),
        ("[daemon]\ninterval = true\n", ["daemon.interval", "got true"]),
        ("[daemon]\ninterval = 0\n", ["daemon.interval", "got 0"]),
        ("[daemon]\nverbose = 1\n", ["expected true or false, got 1"]),
        ("[daemon]\nlog_format = 'jsn'\n", ["auto, console or json", "did you mean json"]),
        ("[daemon]\nendpoint = 'tcp://127.0.0.1:1'\n", ["CURVE"]),
        ("[daemon]\nendpoint = '/run/x.sock'\n", ["ipc://", "/run/x.sock"]),
        ("[daemon]\nendpoint = 'ipc://@x'\n", ["must name a socket file"]),
        (f"[daemon]\nendpoint = 'ipc:///{'x' * 110}'\n", ["at most 103 bytes"]),
        ("[daemon]\nsession_dir = 3\n", ["expected the path of a directory, got 3"]),
        ("[sampling]\ncallgraph = 'dwarf'\n", ["expected fp or off", '"dwarf"']),
        ("[sampling]\nseparate = ['thred']\n", ["thread, cpu, cgroup, all", "did you mean thread"]),
        ("[sampling]\nseparate = 'thread'\n", ["expected a list among"]),
        ("[sampling]\nevents = 'cycles'\n", ["expected a list of event specifications"]),
        ("[sampling]\nevents = [1]\n", ["expected a list of event specifications"]),
        ("[sampling]\nevents = []\n", ["at least one event"]),
        ("[sampling]\nring_kib = 500\n", ["power of two", "got 500"]),
        ("[sampling]\nring_kib = 131072\n", ["power of two between 4 and 65536"]),
        ("[store]\nqueue_mib = -1\n", ["MiB between 1 and 16384", "got -1"]),
        ("[store]\nqueue_mib = 9999999999999999999999\n", ["MiB between"]),
        ("[daemon]\ninterval = \n", ["expected TOML", "line 2"]),
        ("[daemon\n", ["expected TOML", "line 1"]),
        ("a = " + "[" * 5000, ["expected TOML"]),
    ],
)
def test_a_mistake_names_file_key_and_what_was_expected(tmp_path, text, parts):
    """Each wrong file says where, what was expected and what was there."""
    path = write(tmp_path, text)
    message = complaint(path)
    assert path in message
    for part in parts:
        assert part in message


def test_all_mistakes_are_told_at_once(tmp_path):
    """Two files and a flag, four mistakes, four lines."""
    main = write(tmp_path, "[daemon]\ninterval = 0\nnope = 1\n[store]\nqueue_mib = 'a'\n")
    write(tmp_path, "[", "conf.d/x.toml")
    message = complaint(main, {"sampling.callgraph": Override("--callgraph", "lbr")})
    lines = message.splitlines()
    assert len(lines) == 5
    for part in ("daemon.interval", "daemon.nope", "store.queue_mib", "x.toml", "--callgraph"):
        assert sum(part in line for line in lines) == 1, part


def test_a_hidden_mistake_is_still_one(tmp_path):
    """A wrong value in the file is told although a flag replaces it."""
    main = write(tmp_path, "[daemon]\ninterval = 0\n")
    assert "daemon.interval" in complaint(main, {"daemon.interval": Override("--interval", "1")})


def test_an_empty_flag_is_no_default(tmp_path):
    """A shell's unset variable does not write into /var/lib/opd."""
    overrides = {"daemon.session_dir": Override("--session-dir", "")}
    assert "--session-dir: expected the path" in complaint(write(tmp_path, ""), overrides)


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "binary", "huge"])
def test_a_file_that_is_no_setting_file(tmp_path, kind):
    """Whatever the path names, the answer comes at once and names it."""
    path = tmp_path / "opd.toml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    elif kind == "huge":
        path.write_text("#" * (1 << 20) + "\n")
    assert str(path) in complaint(str(path))


def test_no_home_and_no_runtime_directory_says_what_to_set(tmp_path):
    """A user without directories is told which variable or flag helps."""
    code = (
        "from opd.config import load\nfrom opd.errors import ConfigError\nimport os\n"
        "os.geteuid = lambda: 4242424\n"
        f"try: load(None, {write(tmp_path, '')!r}, environ={{}})\n"
        "except ConfigError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for part in ("daemon.endpoint", "XDG_RUNTIME_DIR", "daemon.session_dir", "--session-dir"):
        assert part in out.stdout


def test_reload_reads_files_anew_and_keeps_flags(tmp_path):
    """A reload sees the changed file under the same flags, and says what changed."""
    main = write(tmp_path, "[daemon]\ninterval = 1\n")
    flags = {"sampling.callgraph": Override("--callgraph", "off")}
    old = load(flags, main, environ=ROOT_ENVIRON)
    write(tmp_path, '[daemon]\ninterval = 2\n[sampling]\ncallgraph = "fp"\n')
    new = reload(old, environ=ROOT_ENVIRON)
    assert new.daemon.interval == 2
    assert new.sampling.callgraph == "off"
    assert changed_keys(old, new) == ["daemon.interval"]
    write(tmp_path, "[")
    with pytest.raises(ConfigError):
        reload(old, environ=ROOT_ENVIRON)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        f"{s}.{f}"
        for s in ("daemon", "sampling", "store")
        for f in getattr(Config(), s).__struct_fields__
    ]
)


@given(KEYS, JSON_LIKE)
def test_any_value_is_taken_or_refused(name, value):
    """Whatever a flag carries, load answers with settings or a ConfigError."""
    said = ""
    try:
        load({name: Override("--flag", value)}, "/dev/null/none", environ=ROOT_ENVIRON)
    except ConfigError as error:
        said = error.message
    assert "/dev/null/none" in said


@given(st.binary(max_size=200))
def test_any_file_is_taken_or_refused(tmp_path_factory, content):
    """Whatever bytes a file holds, load answers with settings or a ConfigError."""
    path = tmp_path_factory.mktemp("any") / "opd.toml"
    path.write_bytes(content)
    said = str(path)
    try:
        load(None, str(path), environ=ROOT_ENVIRON)
    except ConfigError as error:
        said = error.message
    assert str(path) in said
