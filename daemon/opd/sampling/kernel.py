"""What the running kernel says of itself: boot, build-id, modules, idle functions."""

from __future__ import annotations

from pathlib import Path

# Functions in which the idle task does nothing: the idle loop, its drivers'
# ways to halt, and what hypervisors put in their place.
IDLE_FUNCTIONS = (
    "acpi_idle_do_entry",
    "acpi_idle_enter",
    "acpi_processor_ffh_cstate_enter",
    "acpi_safe_halt",
    "amd_e400_idle",
    "arch_cpu_idle",
    "arch_cpu_idle_enter",
    "cpu_idle_poll.isra.0",
    "cpu_startup_entry",
    "cpuidle_enter",
    "cpuidle_enter_state",
    "default_enter_idle",
    "default_idle",
    "default_idle_call",
    "do_idle",
    "haltpoll_cpu_online",
    "intel_idle",
    "intel_idle_ibrs",
    "intel_idle_irq",
    "mwait_idle",
    "mwait_idle_with_hints",
    "native_safe_halt",
    "poll_idle",
    "pv_native_safe_halt",
    "tick_nohz_idle_enter",
    "tick_nohz_idle_exit",
    "xen_safe_halt",
)

_GNU_BUILD_ID = 3


def boot_id(proc: str = "/proc") -> str:
    """Give the boot's id as the kernel spells it, "" when it is not readable."""
    try:
        return (Path(proc) / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def cpuid(proc: str = "/proc") -> str:
    """Give vendor, family, model and stepping of the first CPU as perf.data spells them.

    >>> cpuid("/nowhere")
    ''
    """
    keys = {"vendor_id": "", "cpu family": "", "model": "", "stepping": ""}
    try:
        with (Path(proc) / "cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, colon, value = line.partition(":")
                if not colon:
                    break  # the end of the first CPU
                if key.strip() in keys:
                    keys[key.strip()] = value.strip()
    except OSError:
        return ""
    return ",".join(keys.values()) if all(keys.values()) else ""


def kernel_build_id(sys: str = "/sys") -> str:
    """Give the running kernel's build-id in hex, "" when it has none."""
    try:
        notes = (Path(sys) / "kernel/notes").read_bytes()
    except OSError:
        return ""
    at = 0
    # ELF notes: three words (name size, content size, type), each part padded to 4 bytes.
    while at + 12 <= len(notes):
        sizes = [int.from_bytes(notes[at + i : at + i + 4], "little") for i in (0, 4, 8)]
        name_end = at + 12 + (sizes[0] + 3 & ~3)
        end = name_end + (sizes[1] + 3 & ~3)
        if sizes[2] == _GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[name_end : name_end + sizes[1]].hex()
        at = end
    return ""


def module_ranges(proc: str = "/proc") -> list[tuple[str, int, int]]:
    """Give (name, start, end) of each loaded module; none when addresses are hidden."""
    try:
        text = (Path(proc) / "modules").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    ranges = []
    for line in text.splitlines():
        fields = line.split()
        # name size references users state address
        if len(fields) >= 6 and (start := int(fields[5], 16)):
            ranges.append((fields[0], start, start + int(fields[1])))
    return ranges


def idle_ranges(proc: str = "/proc") -> list[tuple[int, int]]:
    """Give the [start, end) of the idle functions; none when kallsyms is hidden."""
    from opd_native.errors import NativeError
    from opd_native.kallsyms import Kallsyms

    try:
        from opd.symbols.kallsyms import open_kallsyms

        with open_kallsyms() if proc == "/proc" else Kallsyms(f"{proc}/kallsyms") as symbols:
            return symbols.ranges(IDLE_FUNCTIONS)
    except NativeError:
        return []
