"""Revisions of a source tree: found, built once, kept, and what is said when that fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from dto_libraries import commit, git, repository, source
from opd.errors import OperationFailedError, UsageError
from opd.features.dto import building, keeper, kept
from opd.features.dto.building import built
from opd.features.dto.kept import cache_place
from opd.features.dto.revisions import WORKTREE, Source, find_revision


@pytest.fixture
def tree(tmp_path):
    """Give a tree with two versions and one that does not compile."""
    folder = repository(tmp_path / "tree")
    commit(folder, "v1", source())
    commit(folder, "broken", "this is no C")
    commit(folder, "v2", source(in_copy="turns++; turns--;"))
    return folder


@pytest.fixture
def place(tmp_path):
    """Give a cache."""
    return cache_place(str(tmp_path / "cache"))


def quiet(_words):
    """Tell nobody."""


def of(tree, ref, **others):
    """Name a revision built by make."""
    return Source(
        tree=str(tree), ref=ref, **{"build": "make libx.so", "artifact": "libx.so", **others}
    )


def test_a_revision_is_built_once(tree, place):
    """The second time it is there; another command is another build."""
    first = built(of(tree, "v1"), place, quiet)
    assert first.seconds > 0
    assert first.revision.commit == git(tree, "rev-parse", "v1")
    again = built(of(tree, "v1"), place, lambda words: pytest.fail(f"it builds: {words}"))
    assert (again.path, again.seconds) == (first.path, 0.0)
    other = built(of(tree, "v1", build="make libx.so CFLAGS='-O1 -fPIC -w'"), place, quiet)
    assert other.path != first.path
    assert built(of(tree, "v2"), place, quiet).path != first.path
    assert not list(place.glob("new-*"))


def test_the_user_s_tree_is_not_touched(tree, place):
    """Neither its files nor its index nor its branch: it stands as it stood."""
    (tree / "x.c").write_text("being written")
    before = (git(tree, "status", "--porcelain"), git(tree, "worktree", "list"))
    index = (tree / ".git/index").read_bytes()
    built(of(tree, "v1"), place, quiet)
    assert (git(tree, "status", "--porcelain"), git(tree, "worktree", "list")) == before
    assert (tree / ".git/index").read_bytes() == index
    assert not (tree / "libx.so").exists()


def test_the_tree_as_it_stands(tree, place):
    """With changes and new files that git would take, without those it ignores."""
    clean = find_revision(of(tree, WORKTREE))
    assert clean.tree == find_revision(of(tree, "HEAD")).tree
    (tree / "x.c").write_text(source() + '#include "new.h"\n')
    (tree / "new.h").write_text("int fresh(void);\n")
    (tree / "x.o").write_text("ignored")
    objects = sorted(path.name for path in (tree / ".git/objects").rglob("*"))
    one = built(of(tree, WORKTREE), place, quiet)
    assert one.revision.commit == ""
    assert one.revision.tree != clean.tree
    (tree / "x.o").write_text("still ignored")
    assert built(of(tree, WORKTREE), place, quiet).path == one.path
    assert sorted(path.name for path in (tree / ".git/objects").rglob("*")) == objects


def test_a_part_of_a_tree(tree, place):
    """The build runs in the place that corresponds to the directory given."""
    (tree / "part").mkdir()
    (tree / "part/Makefile").write_text("libp.so:\n\t$(CC) -shared -fPIC -w -o $@ ../x.c\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "part")
    one = of(tree / "part", "HEAD", build="make", artifact="libp.so")
    assert built(one, place, quiet).path.endswith("/libp.so")
    with pytest.raises(UsageError, match="has no part/"):
        built(msgspec.structs.replace(one, ref="v1"), place, quiet)


def test_a_revision_that_does_not_build_shows_its_output(tree, place):
    """The end of it, and nothing is kept."""
    with pytest.raises(OperationFailedError) as caught:
        built(of(tree, "broken"), place, quiet)
    assert "git:broken" in caught.value.message
    assert "`make libx.so` ended with status 2" in caught.value.message
    assert "x.c:1" in caught.value.message
    assert not list(place.glob("*/entry.json"))
    assert not list(place.glob("new-*"))


@pytest.mark.parametrize(
    ("build", "artifact", "said"),
    [
        ("make libx.so", "liby.so", "made no liby.so.*libx.so"),
        ("make libx.so", "x.c", "no ELF file"),
        ("ln -s /etc/hostname libx.so", "libx.so", "leads out of the tree"),
        ("kill -9 $$", "libx.so", "killed by SIGKILL"),
        ("seq 100000; exit 3", "libx.so", "status 3(.|\n)*100000"),
        ("sleep 60", "libx.so", "longer than build_limit, 0.5 s"),
        ("(sleep 60 &) ; exit 4", "libx.so", "status 4"),
    ],
)
def test_builds_that_go_wrong(tree, place, build, artifact, said):
    """Each says how."""
    one = of(tree, "v1", build=build, artifact=artifact, limit=0.5 if build == "sleep 60" else 20.0)
    began = time.monotonic()
    with pytest.raises(OperationFailedError) as caught:
        built(one, place, quiet)
    caught.match(said)
    assert len(caught.value.message) < 2 * building.TAIL_BYTES
    assert time.monotonic() - began < 15


# Started by the shell, in a session of its own, and an orphan of such.
TREE = (
    "note() { echo $1 >>{mark}; }; sleep 60 & note $!;"
    " setsid sh -c 'echo $$ >>{mark}; exec sleep 60' &"
    " (setsid sh -c '(setsid sh -c \"echo \\$\\$ >>{mark}; exec sleep 60\" &)' &);"
)


def pids_in(mark, count):
    """Pids that a build told, once there are so many."""
    until = time.monotonic() + 20
    while not mark.exists() or len(pids := mark.read_text().split()) < count:
        assert time.monotonic() < until, "the build does not begin"
        time.sleep(0.02)
    return pids


def assert_gone(pids):
    """All of them, soon."""
    until = time.monotonic() + 20
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.02)


@pytest.mark.parametrize("ending", ["exit 0", "exit 4", "sleep 60"])
def test_a_build_leaves_nothing_running(tree, place, tmp_path, ending):
    """When it ends, well or not, and when its time is over; whatever session they made."""
    mark = tmp_path / "pids"
    told = f"until [ $(wc -l <{mark}) = 3 ]; do sleep 0.02; done; make libx.so;"
    build = TREE.replace("{mark}", str(mark)) + told + ending
    one = of(tree, "v1", build=build, limit=2.0 if ending == "sleep 60" else 20.0)
    if ending == "exit 0":
        assert built(one, place, quiet).path
    else:
        said = "build_limit" if ending == "sleep 60" else "status 4"
        with pytest.raises(OperationFailedError, match=said):
            built(one, place, quiet)
    pids = mark.read_text().split()
    assert len(pids) == 3
    assert_gone(pids)


@pytest.mark.parametrize("victim", ["builder", "upper keeper", "lower keeper"])
def test_a_build_ends_with_whoever_runs_it(tree, place, tmp_path, victim):
    """Each may be killed: the others end the tree, and the next build goes on."""
    mark = tmp_path / "pids"
    one = of(tree, "v1", build=TREE.replace("{mark}", str(mark)) + "sleep 60", limit=60.0)
    pid = os.fork()
    if pid == 0:
        try:
            built(one, place, quiet)
        except OperationFailedError as error:
            (tmp_path / "said").write_text(error.message)
        finally:
            os._exit(0)
    pids = pids_in(mark, 3)
    upper = children(pid)[0]
    lower = next(child for child in children(upper) if name_of(child) == keeper.NAME)
    chosen = {"builder": pid, "upper keeper": upper, "lower keeper": lower}[victim]
    os.kill(chosen, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert_gone([*pids, upper, lower])
    if victim != "builder":
        assert "was killed by SIGKILL" in (tmp_path / "said").read_text()
    assert built(of(tree, "v1"), place, quiet).seconds > 0
    assert not list(place.glob("new-*"))


def children(pid):
    """Pids of its children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid):
    """Its comm."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_build_that_forks_all_the_time_ends(tree, place, tmp_path):
    """Each of them lives for a moment only, and has another before it ends."""
    code = (
        "import os, time\n"
        "until = time.monotonic() + 60\n"
        "os.setsid()\n"
        "while time.monotonic() < until:\n"
        "    if os.fork(): os._exit(0)\n"
        "    time.sleep(0.01)\n"
    )
    (tmp_path / "forks.py").write_text(code)
    build = f"{sys.executable} -S -I {tmp_path}/forks.py & sleep 60"
    with pytest.raises(OperationFailedError, match="build_limit"):
        built(of(tree, "v1", build=build, limit=1.0), place, quiet)
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in running if b"forks.py" in line and b"\0-I" in line]


def test_a_build_has_no_more_than_it_should(tree, place, tmp_path):
    """Of open files its three; signals as a shell's; a pipe that ends kills it."""
    told = tmp_path / "told"
    build = f"ls /proc/$$/fd >{told}; grep SigIgn /proc/$$/status >>{told}; make libx.so"
    built(of(tree, "v1", build=build), place, quiet)
    *fds, ignored = told.read_text().split("\n")[:-1]
    assert set(fds) - {"10", "11", "255"} == {"0", "1", "2"}
    assert int(ignored.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0


def is_running(pid):
    """Whether a process is more than a name that nobody has taken back."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("v3", "no such revision.*v1"),
        ("--all", "no revision"),
        ("v1:x.c", "no such revision"),
        ("", "no revision"),
        ("HEAD~99", "no such revision"),
    ],
)
def test_a_revision_that_is_not_there(tree, ref, said):
    """Those near it are named."""
    with pytest.raises(UsageError, match=said):
        find_revision(of(tree, ref))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tree": "/nowhere"}, "no such directory"),
        ({"tree": "/"}, "git rev-parse: .*not a git repository"),
        ({"tree": "src"}, "from / on"),
        ({"build": " "}, "build: a git revision needs it"),
        ({"artifact": ""}, "artifact: a git revision needs it"),
        ({"artifact": "../libx.so"}, "within the tree"),
        ({"artifact": "/lib/libx.so"}, "within the tree"),
    ],
)
def test_sources_that_cannot_be(tree, changed, said):
    """What is wrong is named before anything runs."""
    with pytest.raises(UsageError, match=said):
        find_revision(msgspec.structs.replace(of(tree, "v1"), **changed))


def test_a_damaged_entry_is_built_again(tree, place):
    """A library whose bytes are not those that were kept is not run."""
    one = built(of(tree, "v1"), place, quiet)
    path = Path(one.path)
    path.write_bytes(path.read_bytes() + b"more")
    again = built(of(tree, "v1"), place, quiet)
    assert again.seconds > 0
    assert again.path == one.path


def test_the_cache_is_bounded(tree, place, monkeypatch):
    """What was not used for longest goes; what is in use stays."""
    old = built(of(tree, "v1"), place, quiet)
    os.utime(Path(old.path).parent, (1, 1))
    monkeypatch.setattr(kept, "CACHE_ENTRIES_MOST", 1)
    new = built(of(tree, "v2"), place, quiet)
    assert Path(new.path).exists()
    assert not Path(old.path).exists()
    newest = built(of(tree, "v1"), place, quiet)
    assert Path(newest.path).exists()
    assert Path(new.path).exists(), "it was used just now"
    another = built(of(tree, "v1", build="make libx.so CFLAGS='-O1 -fPIC -w'"), place, quiet)
    assert Path(another.path).exists()
    there = {path.parent.name for path in place.glob("*/entry.json")}
    assert len(there) == 2, "twice the bound holds for what was used just now"


def test_a_place_that_others_may_write_to_is_refused(tmp_path, monkeypatch):
    """Libraries in it are run."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    shared.chmod(0o777)
    with pytest.raises(OperationFailedError, match="not this user's alone"):
        cache_place(str(shared))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = cache_place(str(tmp_path / "file" / "dto"))
    assert place == tmp_path / f"opd-dto-{os.geteuid()}"


def test_two_at_once_build_once(tree, place):
    """The second waits and takes what the first made."""
    one = of(tree, "v1", build="sleep 0.5; make libx.so; echo x >>" + str(place) + ".log")
    paths: list[str] = []
    threads = [
        threading.Thread(target=lambda: paths.append(built(one, place, quiet).path))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert Path(f"{place}.log").read_text() == "x\n"
