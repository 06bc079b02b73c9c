r"""What the path of a cgroup says: systemd unit and slice, container and its runtime.

The innermost that a path names counts: of a service inside of a container the
unit is that service, of a container inside of another the inner one. Names of
units are shown as systemd prints them to people (``\x2d`` is ``-``). Processes
beside a container that only look after it (conmon, lxc.monitor, the supervisor
of systemd-nspawn) are not in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Label(NamedTuple):
    """What a path says; None where it says nothing."""

    unit: str | None = None
    slice: str | None = None
    container: str | None = None
    runtime: str | None = None


# Units that processes run in. A slice holds units and is told apart.
_UNITS = (".service", ".scope", ".mount", ".socket", ".swap")
_ESCAPED = re.compile(r"\\x([2-7][0-9a-f])")

_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
    "libpod-payload": "podman",
}
# RUNTIME-ID.scope; with colons: what runc makes of a path that is none of systemd's.
_SCOPE = re.compile(rf"(?:[^:]*:)?({'|'.join(_RUNTIMES)})[-:]([0-9a-f]{{64}})(?:\.scope)?")
_MACHINE = re.compile(r"machine-(?:(qemu|lxc)-\d+-)?(.+)\.scope")
_MACHINES = {"qemu": "qemu", "lxc": "libvirt-lxc", None: "systemd-nspawn"}
_NSPAWN = "systemd-nspawn@"
# Namespaces that containerd's own clients make, where a name may be no id.
_NAMESPACES = frozenset(("default", "k8s.io", "moby", "buildkit"))
_RUNTIME_OF_PARENT = {"docker": "docker", "ecs": "docker", "libpod_parent": "podman"}
_HEX = "0123456789abcdef"
_ID_LENGTH = 64
_POD_UID_LENGTH = 32


def read_label(path: str) -> Label:
    """Read the path of a cgroup, from the root of its hierarchy."""
    segments = [_plain(segment) for segment in path.split("/") if segment]
    unit = part = container = runtime = None
    for at, segment in enumerate(segments):
        if segment.endswith(".slice"):
            part = segment
        elif segment.endswith(_UNITS):
            unit = segment
        found = _container_of(segments, at)
        if found is not None:
            container, runtime = found
    return Label(unit, part, container, runtime)


def _plain(segment: str) -> str:
    """A segment as systemd would name it: its escapes undone, but not to a control letter."""
    # Systemd puts "_" before names that the kernel uses itself.
    plain = segment.removeprefix("_")
    return _ESCAPED.sub(lambda found: _letter(found[0], int(found[1], 16)), plain)


def _letter(escape: str, code: int) -> str:
    letter = chr(code)
    return escape if letter == "/" or not letter.isprintable() else letter


def _container_of(segments: list[str], at: int) -> tuple[str, str | None] | None:
    """The container that begins with this segment, and what runs it."""
    segment = segments[at]
    found: tuple[str, str | None] | None = None
    if scope := _SCOPE.fullmatch(segment):
        found = scope[2], _RUNTIMES[scope[1]]
    elif machine := _MACHINE.fullmatch(segment):
        found = machine[2], _MACHINES[machine[1]]
    elif segment.startswith("lxc.payload.") and len(segment) > len("lxc.payload."):
        found = segment.removeprefix("lxc.payload."), "lxc"
    elif at > 0 and segments[at - 1] in ("lxc", "lxc.payload"):
        found = segment, "lxc"
    elif segment.startswith(_NSPAWN) and segment.endswith(".service"):
        name = segment.removeprefix(_NSPAWN).removesuffix(".service")
        if name and segments[at + 1 : at + 2] != ["supervisor"]:
            found = name, "systemd-nspawn"
    elif len(segment) == _ID_LENGTH and not segment.strip(_HEX):
        found = segment, _runtime_of(segments[:at])
    elif at == 1 and segments[0] in _NAMESPACES and segment[:1].isalnum():
        found = segment, "containerd"
    return found


def _runtime_of(above: list[str]) -> str | None:
    """What runs a container that is only an id under ``above``."""
    for segment in reversed(above):
        if segment in _RUNTIME_OF_PARENT:
            return _RUNTIME_OF_PARENT[segment]
        if _is_pod(segment):
            return "kubernetes"
    # containerd: /NAMESPACE/ID
    return "containerd" if len(above) == 1 and above[0][:1].isalnum() else None


def _is_pod(segment: str) -> bool:
    """Whether it is ``podUID``, or a slice that ends so."""
    uid = segment.removesuffix(".slice").rpartition("pod")[2]
    digits = uid.replace("-", "").replace("_", "")
    return "pod" in segment and len(digits) == _POD_UID_LENGTH and not digits.strip(_HEX)
