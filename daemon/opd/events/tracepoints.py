"""Tracepoints: where tracefs is, the number of one, all there are."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from opd.config.nearest import did_you_mean
from opd.errors import EventError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNT_HINT = "mount it as root: mount -t tracefs tracefs /sys/kernel/tracing"
WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")
_OCTAL = re.compile(r"\\([0-7]{3})")


def find_tracefs(*, sysfs: str = "/sys", proc: str = "/proc") -> str | None:
    """The mounted tracefs (also below a debugfs), or None when there is none.

    Raises PermissionDeniedError when it is mounted and this user may not enter.
    """
    candidates = [f"{sysfs}/kernel/tracing", f"{sysfs}/kernel/debug/tracing"]
    for mount_point, kind in _mounts(proc):
        if kind == "tracefs":
            candidates.insert(0, mount_point)
        elif kind == "debugfs":
            candidates.append(f"{mount_point}/tracing")
    locked: OSError | None = None
    for place in candidates:
        # Without the mount the folder is there and empty.
        try:
            if "events" in os.listdir(place):  # noqa: PTH208
                return place
        except PermissionError as error:
            locked = locked or error
        except OSError:
            continue
    if locked is not None:
        place = locked.filename
        raise PermissionDeniedError(
            f"tracepoints need {place}, which user {os.geteuid()} may not read",
            hint=f"run as root, or let a group in: mount -o remount,gid=GROUP,mode=750 {place}",
        ) from locked
    return None


def tracepoint_id(system: str, name: str, tracefs: str | None) -> int | None:
    """The kernel's number of ``system:name``, or None when there is no such tracepoint.

    Raises EventError when its file holds none, PermissionDeniedError when it is not readable.
    """
    if tracefs is None or not WORD.fullmatch(system) or not WORD.fullmatch(name):
        return None
    file = Path(tracefs, "events", system, name, "id")
    try:
        text = file.read_text(errors="replace").strip()
    except PermissionError as error:
        raise PermissionDeniedError(
            f"tracepoint {system}:{name}: user {os.geteuid()} may not read {file}",
            hint=f"run as root, or let a group in: mount -o remount,gid=GROUP,mode=750 {tracefs}",
        ) from error
    except OSError:
        return None
    if not re.fullmatch("[0-9]{1,9}", text):
        raise EventError(f"tracepoint {system}:{name}: expected a number in {file}, got {text!r}")
    return int(text)


def tracepoint_names(tracefs: str) -> Iterator[str]:
    """Every ``sys:name`` that can be sampled, in order of name; unreadable folders are left out."""
    events = Path(tracefs, "events")
    for system in _folders(events):
        for name in _folders(events / system):
            if (events / system / name / "id").exists():
                yield f"{system}:{name}"


def unknown_tracepoint(system: str, name: str, tracefs: str) -> EventError:
    """The error for a ``system:name`` that is not there: which system, which names are close."""
    systems = _folders(Path(tracefs, "events"))
    if system in systems:
        names = _folders(Path(tracefs, "events", system))
        return EventError(
            f"no tracepoint {name!r} in {system!r}{did_you_mean(name, names)}",
            hint=f"those of {system}: {_some(names)}",
        )
    return EventError(
        f"unknown event {system + ':' + name!r}: neither an event nor a system of"
        f" tracepoints{did_you_mean(system, systems)}",
        hint="opd --list-events shows those of this machine",
    )


def _some(names: list[str], most: int = 12) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _folders(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def _mounts(proc: str) -> Iterator[tuple[str, str]]:
    try:
        text = Path(proc, "mounts").read_text(errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) > 2:
            yield _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[1]), words[2]
