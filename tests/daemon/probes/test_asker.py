"""Code that the asker brings runs as the asker: a second real uid, and one not to be had."""

from __future__ import annotations

import os
import subprocess

import pytest

from dto_libraries import compiled, source
from opd.errors import OpdError, PermissionDeniedError
from opd.features.dto.hooks import DTO
from opd.probes import running
from opd.probes.asker import Asker, asker_of
from opd.probes.running import Limits
from opd.query.endpoint import Peer
from other_users import GROUP, SERVICE_CAPABILITIES, USER, as_user

# Leaves word of who runs it.
TELLS = """
#include <stdio.h>
#include <sys/types.h>
__attribute__((constructor)) static void tell(void) {
    FILE *file = fopen("%s", "a");
    if (!file) return;
    gid_t groups[8]; int count = getgroups(8, groups);
    fprintf(file, "%%d %%d", getuid(), getgid());
    for (int i = 0; i < count; i++) fprintf(file, " %%d", groups[i]);
    fprintf(file, "\\n");
    fclose(file);
}
"""
NOBODY = Asker(uid=65534, gid=65534, groups=(65534, GROUP))


@pytest.fixture
def folder(place, request):
    """Give a directory that nobody may write to, and everybody read."""
    path = place.folder(f"asker-{request.node.name[:40]}")
    path.chmod(0o777)
    return path


@pytest.fixture
def python(place, monkeypatch):
    """Have probes run by an interpreter that everybody may run."""
    monkeypatch.setattr("sys.executable", str(place.python))


def library(folder):
    """Make a library that tells who runs it; its path and where it tells."""
    told = folder / "told"
    return compiled(folder, "libx", source(before=TELLS % told)), told


@pytest.mark.usefixtures("python")
def test_all_of_it_runs_as_the_asker(folder):
    """Planned, tried and measured: never as root; what root alone may read is not read."""
    path, told = library(folder)
    text = f"current={path},size=64,rounds=1,looks=1,iterations=20"
    planned = running.plan("dto", text, asker=NOBODY)
    assert planned.prepares
    running.prepare(
        "dto", planned.parameters, asker=NOBODY, tell=lambda _words: None, cancelled=lambda: ""
    )
    outcome = running.measure("dto", planned.parameters, limits=Limits(seconds=60), asker=NOBODY)
    assert outcome.void == ""
    assert set(told.read_text().splitlines()) == {f"65534 65534 {GROUP} 65534"}
    secret = folder / "secret.so"
    secret.write_bytes((folder / "libx.so").read_bytes())
    secret.chmod(0o600)
    with pytest.raises(OpdError, match="Permission denied"):
        running.plan("dto", f"current={secret}", asker=NOBODY)


@pytest.mark.usefixtures("python")
def test_root_and_oneself_stay_what_they_are(folder):
    """Root's library is root's own doing."""
    path, told = library(folder)
    root = asker_of(0, 0)
    planned = running.plan("dto", f"current={path}", asker=root)
    running.prepare(
        "dto", planned.parameters, asker=root, tell=lambda _words: None, cancelled=lambda: ""
    )
    assert {line.split()[0] for line in told.read_text().splitlines()} == {"0"}


def test_a_daemon_that_cannot_become_the_asker_refuses(folder, place):
    """And says what to do; what is opd's own it measures."""
    path, told = library(folder)
    code = """
import sys
from opd.errors import OpdError
from opd.probes import running
from opd.probes.asker import Asker
for text in sys.argv[1:]:
    try:
        running.plan("dto", text, asker=Asker(uid=0, gid=0))
        print("planned")
    except OpdError as error:
        print(error.exit_status, error)
"""
    said = subprocess.run(
        [*as_user(USER), place.python, "-c", code, f"current={path}", "current=sse2"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert said[0].startswith("77 probe dto: ")
    assert "cannot do so as uid 0" in said[0]
    assert "--session-dir" in said[0]
    assert said[1] == "planned"
    assert not told.exists()


def test_capabilities_of_the_daemon_are_not_for_foreign_code(place):
    """A service has some; a library that it runs for its own user has none."""
    code = (
        "from opd.probes.asker import drop_capabilities; drop_capabilities();"
        "print(*[l.split()[1] for l in open('/proc/self/status') if l[:3] == 'Cap'][:5])"
    )
    said = subprocess.run(
        [*as_user(USER, capabilities=SERVICE_CAPABILITIES), place.python, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    inheritable, permitted, effective, _bounding, ambient = (int(word, 16) for word in said)
    assert (inheritable, permitted, effective, ambient) == (0, 0, 0, 0)


def test_the_uid_is_the_socket_s(monkeypatch):
    """What a peer's connection says goes with the job, whatever its parameters are."""
    from opd.service.probing import Probing

    asked = []

    def plan(probe, options, *, asker=None):
        asked.append((probe, options, asker))
        raise PermissionDeniedError("no further")

    monkeypatch.setattr(running, "plan", plan)
    probing = Probing(None)
    peer = Peer(uid=USER, gid=GROUP, pid=1)
    with pytest.raises(PermissionDeniedError):
        probing.answer("probe_run", {"probe": "dto", "options": "current=/x.so"}, peer)
    with pytest.raises(PermissionDeniedError):
        probing.answer("probe_compare", {"a": "dto:size=1k", "b": "dto:size=2k"}, peer)
    assert [(asker.uid, asker.gid) for _probe, _options, asker in asked] == [(USER, GROUP)] * 2


def test_the_environment_is_the_asker_s(monkeypatch):
    """Its home and no directory of the daemon's service."""
    if os.geteuid() != 0:
        pytest.skip("becoming another needs root")
    monkeypatch.setenv("CACHE_DIRECTORY", "/var/cache/opd")
    monkeypatch.setenv("XDG_CACHE_HOME", "/root/.cache")
    spawning = NOBODY.spawning()
    assert (spawning["user"], spawning["group"], spawning["cwd"]) == (65534, 65534, "/")
    assert not {"CACHE_DIRECTORY", "XDG_CACHE_HOME"} & set(spawning["env"])
    assert spawning["env"]["USER"] == "nobody"
    assert asker_of(0, 0).spawning() == {}


def test_only_foreign_code_counts():
    """What is opd's own needs no other user."""
    from opd.probes.plan import read_all

    text = "current=sse2+git:x,tree=/x,build=b,artifact=a"
    assert [bool(DTO.runs_code(one)) for one in read_all(DTO, text)] == [False, True]
