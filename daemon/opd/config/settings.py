"""The settings of opd. These structs are the reference.

``etc/opd/opd.toml`` is rendered from them (``python -m opd.config.reference``),
and a test holds the two together. Each field's ``Meta`` says what it is
(``description``), what an error asks for (``extra["expected"]``), and, where a
type cannot say it, what else must hold (``extra["check"]``: value → the
reason why not, empty when right).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from opd.redaction import Redact  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opd.config.layers import Override

# sun_path holds 108 bytes with the NUL, and the PUB socket adds ".pub".
ENDPOINT_PATH_BYTES = 103
RING_KIB_MOST = 65536


def _is_endpoint(value: Any) -> str:
    if value == "":
        return ""
    if value.startswith("tcp://"):
        return "tcp endpoints are refused until they have CURVE"
    if not value.startswith("ipc://"):
        return "it does not start with ipc://"
    path = value.removeprefix("ipc://")
    if path == "" or path[0] in "@*" or "\0" in path:
        return "it must name a socket file"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    long = f"a socket's path has at most {ENDPOINT_PATH_BYTES} bytes"
    return long if size > ENDPOINT_PATH_BYTES else ""


def _is_path(value: Any) -> str:
    return "it contains a NUL character" if "\0" in value else ""


def _is_finite(value: Any) -> str:
    return "" if math.isfinite(value) else "it is not a finite number"


def _is_power_of_two(value: Any) -> str:
    return "" if value & (value - 1) == 0 else "it is not a power of two"


def _is_zero_or_at_least_16(value: Any) -> str:
    return "" if value == 0 or value >= 16 else "less than 16 MiB hold next to nothing"


def _is_not_empty(value: Any) -> str:
    return "" if value else "at least one event is needed"


def _is_budget(value: Any) -> str:
    if isinstance(value, str):
        return ""
    return "" if 0.01 <= value <= 100000 else "it is not in that range"


def _is_memory(value: Any) -> str:
    return "" if value == 0 or value >= 32 else "opd does not run in less"


def _says(
    description: str,
    expected: str,
    check: Callable[[Any], str] | None = None,
    *,
    ge: float | None = None,
    le: float | None = None,
) -> msgspec.Meta:
    extra = {"expected": expected, "check": check}
    return msgspec.Meta(description=description, extra=extra, ge=ge, le=le)


class DaemonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The daemon itself: where it listens, where it keeps, how it speaks."""

    endpoint: Annotated[
        str,
        _says(
            "Where opd listens. Empty: ipc:///run/opd/opd.sock for root, else"
            " $XDG_RUNTIME_DIR/opd/opd.sock. $OPD_ENDPOINT overrides this line.",
            "a socket as ipc:///PATH",
            _is_endpoint,
        ),
    ] = ""
    session_dir: Annotated[
        str,
        _says(
            "Where the history is kept. Created when missing. Empty: /var/lib/opd for root,"
            " else $XDG_STATE_HOME/opd (~/.local/state/opd).",
            "the path of a directory",
            _is_path,
        ),
    ] = ""
    interval: Annotated[
        float,
        _says(
            "Seconds of one window: how often hits are taken, named and stored.",
            "seconds between 0.1 and 3600",
            _is_finite,
            ge=0.1,
            le=3600,
        ),
    ] = 10.0
    log_format: Annotated[
        Literal["auto", "console", "json"],
        _says(
            "How log lines look: console, json, or auto (console on a terminal, else json).",
            "auto, console or json",
        ),
    ] = "auto"
    verbose: Annotated[bool, _says("Log debug lines too.", "true or false")] = False
    stats_interval: Annotated[
        float,
        _says(
            "Seconds between two log lines with the statistics of each extended feature."
            " 0: only at SIGUSR1 and at the end.",
            "seconds between 0 and 86400",
            _is_finite,
            ge=0,
            le=86400,
        ),
    ] = 600.0
    hook_seconds: Annotated[
        float,
        _says(
            "Seconds that a hook of an extended feature may take before it is interrupted"
            " and the feature left alone for a while; all of a window together.",
            "seconds between 0.05 and 10",
            _is_finite,
            ge=0.05,
            le=10,
        ),
    ] = 1.0
    hook_mib: Annotated[
        int,
        _says(
            "MiB that opd may grow by while such a hook runs before it is interrupted.",
            "MiB between 8 and 65536",
            ge=8,
            le=65536,
        ),
    ] = 64


class SamplingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is sampled, where, and what is kept apart."""

    events: Annotated[
        tuple[str, ...],
        _says(
            "What to sample, each as NAME[:mods][:COUNT[:UNITMASK]], pmu/term=value/, sys:name or"
            " uprobe:/path:symbol; COUNT is a period or a rate such as 999hz. `opd --list-events`"
            " shows the names. A missing PMU falls back: cycles:p, cycles, cpu-clock.",
            "a list of event specifications",
            _is_not_empty,
        ),
    ] = ("cycles:p",)
    cpu_type: Annotated[
        str,
        _says(
            "Whose events files name the counters' events, such as x86-64/family19. Empty: this"
            " machine's, by CPUID.",
            "a CPU type such as x86-64/family19",
            _is_path,
        ),
    ] = ""
    events_dir: Annotated[
        str,
        _says(
            "Where events files (CPU/events and CPU/unit_masks) are looked for before those that"
            " opd brings. Empty: /etc/opd/events.",
            "the path of a directory",
            _is_path,
        ),
    ] = ""
    callgraph: Annotated[
        Literal["fp", "off"],
        _says("Call chains: fp (frame pointers) or off.", "fp or off"),
    ] = "fp"
    cpus: Annotated[
        str,
        _says(
            "Which CPUs, such as 0-3,8. Empty: those online less isolcpus and nohz_full.",
            "a list of CPUs such as 0-3,8",
        ),
    ] = ""
    separate: Annotated[
        tuple[Literal["thread", "cpu", "cgroup", "all"], ...],
        _says(
            "What else keeps samples apart: thread, cpu, cgroup, or all of them. Cgroups"
            " always are.",
            "a list among thread, cpu, cgroup, all",
        ),
    ] = ()
    idle: Annotated[
        Literal["exclude", "irq"],
        _says(
            "Idle CPUs: exclude their samples, or irq (keep the interrupt work done there).",
            "exclude or irq",
        ),
    ] = "exclude"
    ring_kib: Annotated[
        int,
        _says(
            "Size in KiB of the ring shared with the kernel, one for each CPU.",
            f"a power of two between 4 and {RING_KIB_MOST}",
            _is_power_of_two,
            ge=4,
            le=RING_KIB_MOST,
        ),
    ] = 512

    @property
    def separate_thread(self) -> bool:
        """Whether threads are kept apart."""
        return "thread" in self.separate or "all" in self.separate

    @property
    def separate_cpu(self) -> bool:
        """Whether CPUs are kept apart."""
        return "cpu" in self.separate or "all" in self.separate


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The worker that names and stores windows."""

    worker_memory_mib: Annotated[
        int,
        _says(
            "Memory in MiB that the worker may use before it is ended and started anew.",
            "MiB between 64 and 65536",
            ge=64,
            le=65536,
        ),
    ] = 512
    queue_mib: Annotated[
        int,
        _says(
            "MiB of windows kept while the worker does not answer; beyond it the oldest"
            " are dropped and counted.",
            "MiB between 1 and 16384",
            ge=1,
            le=16384,
        ),
    ] = 64
    keep_mib: Annotated[
        int,
        _says(
            "MiB that the session directory may take; beyond it the oldest windows and segments"
            " are deleted, but not saved sessions and imports. 0: no limit.",
            "MiB, 0 or between 16 and 1073741824",
            _is_zero_or_at_least_16,
            ge=0,
            le=1 << 30,
        ),
    ] = 2048
    keep_days: Annotated[
        float,
        _says(
            "Days that windows and segments are kept, but for saved sessions and imports."
            " 0: no limit.",
            "days between 0 and 36500",
            _is_finite,
            ge=0,
            le=36500,
        ),
    ] = 30.0
    keep_free_mib: Annotated[
        int,
        _says(
            "MiB of the file system that the store leaves free, or a tenth of it when that is"
            " less: with less free it grows no more, and new windows cost old ones. 0: it may"
            " fill the disk.",
            "MiB between 0 and 1073741824",
            ge=0,
            le=1 << 30,
        ),
    ] = 256
    segments: Annotated[
        bool,
        _says(
            "Write each hour that is over as a Parquet file into segments/ of the session"
            " directory, for long ranges in `opctl sql` and for other engines.",
            "true or false",
        ),
    ] = True
    sql_memory_mib: Annotated[
        int,
        _says(
            "MiB that a query of `opctl sql` may use before it spills to disk or fails. The"
            " process that answers takes about 100 more, and ends when nobody asks.",
            "MiB between 16 and 65536",
            ge=16,
            le=65536,
        ),
    ] = 64


class GovernorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What opd itself may cost."""

    cpu_percent: Annotated[
        float | Literal["auto", "off"],
        _says(
            "CPU time of all of opd's processes, in percent of one core; over it the sampling"
            " rates are lowered, which every answer tells. auto: 1, or what five microseconds a"
            " sample come to at the rates and CPUs asked for, if that is more. off: no limit."
            " What people ask of opd (reports, imports, bursts) is not counted.",
            "auto, off, or a percentage between 0.01 and 100000",
            _is_budget,
        ),
    ] = "auto"
    least_hz: Annotated[
        int,
        _says(
            "Samples a second that are never gone below, whatever they cost.",
            "Hz, 1 or more",
            ge=1,
        ),
    ] = 9
    memory_mib: Annotated[
        int,
        _says(
            "MiB of memory (PSS and rings) of all of opd's processes over which it drops its"
            " caches and then keeps fewer distinct stacks a window, and says so. 0: no limit.",
            "MiB, 0 or at least 32",
            _is_memory,
            ge=0,
            le=1 << 20,
        ),
    ] = 256


class PrivacySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is kept of whose files they are."""

    redact: Annotated[
        Redact,
        _says(
            "What is taken out of the paths of images before they are stored, and out of command"
            " lines wherever they are shown. none: nothing. home: whose home directory it is"
            " (/home/[redacted]/...). paths: outside of the system's directories all but the"
            " file's name. Names of programs and functions are kept.",
            "none, home or paths",
        ),
    ] = "none"


def _are_triggers(value: Any) -> str:
    from opd.config.triggers import parse_triggers  # few have any
    from opd.errors import ConfigError

    try:
        parse_triggers(value)
    except ConfigError as error:
        return str(error)
    return ""


class BurstSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bursts at a high rate, asked for by opctl record or begun by a trigger."""

    store_mib: Annotated[
        int,
        _says(
            "MiB that one burst may store; then it ends, and keeps what it has.",
            "MiB between 1 and 65536",
            ge=1,
            le=65536,
        ),
    ] = 256
    trigger: Annotated[
        tuple[dict[str, Any], ...],
        _says(
            "Bursts that begin by themselves, a table [[burst.trigger]] each: `when` (needed;"
            " such as psi.cpu.some.avg10 > 40, load1 > 8, unit:nginx.service cpu > 1.5, the last"
            " in cores), `hold` (it must be so for so long, 3s), `for` (30s), `rate` (4999 Hz),"
            " `cooldown` (rest after it, 10m), `most_per_day` (12), `events`, `comm`.",
            "tables with `when` and what else belongs to a trigger",
            _are_triggers,
        ),
    ] = ()


def _are_schedules(value: Any) -> str:
    if not value:
        return ""
    from opd.errors import ConfigError
    from opd.probes.schedule import parse_schedules  # few have any

    try:
        parse_schedules(value)
    except ConfigError as error:
        return str(error)
    return ""


class ProbeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Probes that run by themselves (docs/probes.md)."""

    schedule: Annotated[
        tuple[str, ...],
        _says(
            'Each a text such as "calibrate:what=syscall,every=1h,when=idle,jitter=5m": a probe,'
            " its options, `every` (without it: once, at the start), `when` (idle: only while"
            " others use no CPU), `jitter` (up to so much later).",
            'a list of texts such as "calibrate:every=1h"',
            _are_schedules,
        ),
    ] = ()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """How a Config came to be: what ``reload`` reads again, and who set what.

    ``path`` is the main file as asked (None: the default one), ``overrides``
    what the command line gave, ``sources`` maps ``section.key`` to the file
    or flag that set it; a key at its default has no entry.
    """

    path: str | None = None
    overrides: Mapping[str, Override] = {}
    sources: Mapping[str, str] = {}


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Extended features asked for, not yet asked of their plugins (opd.features.asked).

    ``flags``: each ``--ext-feature`` as typed. ``tables``: of each
    ``[feature.NAME]`` the values by key with the file that gave them.
    """

    flags: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[str, tuple[Any, str]]] = {}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked, with ``endpoint`` and ``session_dir`` filled in."""

    daemon: DaemonSettings = DaemonSettings()
    sampling: SamplingSettings = SamplingSettings()
    store: StoreSettings = StoreSettings()
    governor: GovernorSettings = GovernorSettings()
    burst: BurstSettings = BurstSettings()
    probes: ProbeSettings = ProbeSettings()
    privacy: PrivacySettings = PrivacySettings()
    features: Features = Features()
    origin: Origin = Origin()


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "daemon": DaemonSettings,
    "sampling": SamplingSettings,
    "store": StoreSettings,
    "governor": GovernorSettings,
    "burst": BurstSettings,
    "probes": ProbeSettings,
    "privacy": PrivacySettings,
}
