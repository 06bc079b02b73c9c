"""Lists of CPUs as the kernel writes them, and which ones are sampled."""

from __future__ import annotations

import re
from pathlib import Path

from opd.errors import ConfigError

# The kernel's own bound is 8192; beyond this a list is a mistake or an attack on memory.
CPU_MOST = 65535
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def parse_cpu_list(text: str, *, what: str = "") -> tuple[int, ...]:
    """``"0-3,8"`` → ``(0, 1, 2, 3, 8)``: sorted, each once; an empty text is no CPU.

    Raises ConfigError naming the part that is wrong.
    """
    cpus: set[int] = set()
    where = f"{what}: " if what else ""
    if text.strip() == "":
        return ()
    for part in text.strip().split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f"{where}expected CPUs such as 0-3,8, got {part[:80]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > CPU_MOST or first > CPU_MOST:
            raise ConfigError(f"{where}CPU {max(first, last)} is above {CPU_MOST}")
        if last < first:
            raise ConfigError(f"{where}{part.strip()!r} ends before it begins")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def format_cpu_list(cpus: tuple[int, ...]) -> str:
    """``(0, 1, 2, 3, 8)`` → ``"0-3,8"``."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and parts[-1][-1] + 1 == cpu:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(str(cpu) for cpu in part) for part in parts)


def online_cpus(*, sysfs: str = "/sys") -> tuple[int, ...]:
    """The CPUs that are online now. Raises ConfigError when sysfs does not say."""
    place = Path(sysfs, "devices/system/cpu/online")
    try:
        text = place.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the list of online CPUs in {place}: {error}") from error
    cpus = parse_cpu_list(text, what=f"{place}")
    if not cpus:
        raise ConfigError(f"{place} lists no CPU")
    return cpus


def select_cpus(asked: str = "", *, sysfs: str = "/sys") -> tuple[int, ...]:
    """The CPUs to sample: those ``asked`` for, else online less isolcpus and nohz_full.

    Where every CPU is isolated, all that are online. Raises ConfigError for a
    list that is wrong or that names CPUs which are not online.
    """
    online = online_cpus(sysfs=sysfs)
    if asked.strip():
        cpus = parse_cpu_list(asked)
        missing = tuple(sorted(set(cpus) - set(online)))
        if missing:
            raise ConfigError(
                f"expected CPUs that are online ({format_cpu_list(online)}),"
                f" got {format_cpu_list(missing)} too"
            )
        return cpus
    quiet = _quiet(sysfs, "isolated") | _quiet(sysfs, "nohz_full")
    return tuple(cpu for cpu in online if cpu not in quiet) or online


def _quiet(sysfs: str, name: str) -> set[int]:
    try:
        text = Path(sysfs, "devices/system/cpu", name).read_text(errors="replace")
    except OSError:
        return set()
    # A kernel built with nohz_full and booted without it writes "(null)".
    return set() if "null" in text else set(parse_cpu_list(text, what=name))
