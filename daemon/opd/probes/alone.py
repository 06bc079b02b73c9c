"""One probe at a time on a machine: a lock that daemons and opctl without one take alike.

It is flock(2) on a file, so that it ends with the process that holds it, however
that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "OPD_PROBE_LOCK"
NAME = "probe.lock"
SYSTEM = Path("/run/opd")
_LOCKS = Path("/proc/locks")
_DAEMON = "opd"


class OtherProbeRunsError(OperationFailedError):
    """A process holds the machine's one turn; the message names it."""


class Holder(NamedTuple):
    """A process that holds a lock, and the kernel's name of it."""

    pid: int
    name: str


def places(
    directory: str | Path, environ: Mapping[str, str] | None = None, *, uid: int | None = None
) -> list[Path]:
    """Files that can be the machine's lock, the best first; ``directory``: of the store.

    $OPD_PROBE_LOCK alone where it is set. Else root's and the service's run
    directory, of other users too where they may read it, then the user's own.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    if given := environ.get(VARIABLE):
        return [Path(given)]
    found = []
    if (first := environ.get("RUNTIME_DIRECTORY", "").split(":")[0]).startswith("/"):
        found.append(Path(first))
    if uid == 0 or os.access(SYSTEM / NAME, os.R_OK):
        found.append(SYSTEM)
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    own = Path(runtime if runtime.startswith("/") else f"/run/user/{uid}")
    if uid != 0 and own.is_dir():
        found.append(own / "opd")
    return [place / NAME for place in (*found, Path(directory))]


def take(directory: str | Path) -> int:
    """Take the machine's turn: the descriptor to close when the probe is over.

    Raises OtherProbeRunsError at once when a process has it, OperationFailedError
    where no file can be locked.
    """
    tried = []
    for path in places(directory):
        try:
            fd = _open(path)
        except OSError as error:
            tried.append(f"{path}: {error.strerror}")
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = holder_of(fd)
            os.close(fd)
            raise _refusal(path, holder) from None
        except OSError as error:
            os.close(fd)
            tried.append(f"{path}: flock: {error.strerror}")
            continue
        return fd
    raise OperationFailedError(
        f"no file to keep probes apart by: {'; '.join(tried)}",
        hint=f"{VARIABLE}=FILE names one that can be made",
    )


@contextlib.contextmanager
def alone(directory: str | Path) -> Iterator[None]:
    """Have the machine's turn within. Raises what ``take`` does."""
    fd = take(directory)
    try:
        yield
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    """Open a regular file, made when missing. To lock it, reading is enough."""
    with contextlib.suppress(OSError):  # what hinders opening says so below
        path.parent.mkdir(parents=True, exist_ok=True)
    # Its directory may be another user's: no links, no waiting for a FIFO's other end.
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "no regular file")
    return fd


def holder_of(fd: int) -> Holder | None:
    """Who holds flock on the file; None where the kernel does not tell, as from another container.

    Asked of the kernel: a pid written into the file may be of a process that is gone.
    """
    own = os.fstat(fd)
    device = f"{os.major(own.st_dev):02x}:{os.minor(own.st_dev):02x}:{own.st_ino}"
    try:
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        # "12: FLOCK  ADVISORY  WRITE 4711 00:1a:2342 0 EOF"; of who waits "->" comes second.
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5:6] == [device] and (pid := int(words[4])) > 0:
            name = ""
            with contextlib.suppress(OSError):  # it has ended just now
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            return Holder(pid, name)
    return None


def _refusal(path: Path, holder: Holder | None) -> OtherProbeRunsError:
    if holder is None:
        who = f"a process that is not seen from here holds {path}"
    else:
        name = f" ({holder.name})" if holder.name else ""
        who = f"process {holder.pid}{name} holds {path}"
    is_daemon = holder is not None and holder.name == _DAEMON
    end = "opctl probe cancel" if is_daemon else "Ctrl-C where it was started"
    return OtherProbeRunsError(
        f"another probe is running on this machine: {who}; probes run one at a time",
        hint=f"wait until it has ended, or end it: {end}",
    )
