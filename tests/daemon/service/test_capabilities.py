"""What a machine allows: this one, an empty one, and machines made of files."""

import pytest

from opd.service.capabilities import examine

NAMES = [
    "PMU",
    "perf_event_paranoid",
    "CAP_PERFMON",
    "CAP_SYS_PTRACE",
    "CAP_DAC_READ_SEARCH",
    "CAP_CHECKPOINT_RESTORE",
    "CAP_SYSLOG",
    "CAP_IPC_LOCK",
    "CAP_SYS_ADMIN",
    "locked memory",
    "open files",
    "perf_event_max_sample_rate",
    "tracefs",
    "kptr_restrict",
    "lockdown",
    "seccomp",
    "PID namespace",
    "cgroup",
    "pressure",
    "hugepages",
    "NUMA",
    "CPUs",
    "ibs_op",
    "ibs_fetch",
    "DSA",
    "virtual machine",
    "vdso",
]


class Machine:
    """A machine made of files."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text=""):
        """One file of it."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self

    def link(self, name, target):
        """One symbolic link of it."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)
        return self

    def examine(self):
        """Its findings by name."""
        proc, sys = str(self.folder / "proc"), str(self.folder / "sys")
        return {finding.name: finding for finding in examine(proc=proc, sys=sys)}


@pytest.fixture
def machine(tmp_path):
    """An empty one."""
    return Machine(tmp_path)


def test_this_machine_is_described_whole():
    """Every point has its line; what is off has a remedy, what is on has none."""
    findings = examine()
    assert [finding.name for finding in findings] == ["PMU", "perf_event_open", *NAMES[1:]]
    for finding in findings:
        assert finding.detail, finding
        assert finding.ok == (finding.remedy == ""), finding


def test_an_empty_machine_is_described_too(machine):
    """No file there is no exception, and each thing that is off has a remedy."""
    findings = machine.examine()
    assert list(findings) == NAMES
    for finding in findings.values():
        assert finding.ok == (finding.remedy == ""), finding
    assert not findings["PMU"].ok
    assert not findings["CAP_PERFMON"].ok
    assert not findings["tracefs"].ok


def dsa_queue(machine):
    """A device with one queue that can be used."""
    folder = "sys/bus/dsa/devices"
    for name, value in {
        "dsa0/state": "enabled",
        "dsa0/pasid_enabled": "1",
        "dsa0/numa_node": "-1",
        "wq0.0/state": "enabled",
        "wq0.0/type": "user",
        "wq0.0/driver_name": "user",
        "wq0.0/mode": "shared",
        "wq0.0/size": "16",
        "wq0.0/max_transfer_size": "2097152",
    }.items():
        machine.write(f"{folder}/{name}", value + "\n")
    machine.write("dev/dsa/wq0.0")


@pytest.mark.parametrize(
    ("name", "value", "line", "detail"),
    [
        ("dsa0/state", "disabled", "dsa0 device state", "disabled, not enabled"),
        ("dsa0/pasid_enabled", "0", "dsa0 SVA", "cannot use a process's addresses"),
        ("wq0.0/state", "disabled", "wq0.0 queue state", "state is disabled, not enabled"),
        ("wq0.0/type", "kernel", "wq0.0 type", "type is kernel, not user"),
        ("wq0.0/driver_name", "dmaengine", "wq0.0 driver", "not user"),
        ("wq0.0/mode", "", "wq0.0 mode", "not shared or dedicated"),
        ("wq0.0/size", "0", "wq0.0 size", "no entries"),
    ],
)
def test_what_keeps_a_dsa_queue_off_is_told_by_check(machine, name, value, line, detail):
    """Each check has its line; the one that failed is also the device's, with its remedy."""
    dsa_queue(machine)
    findings = machine.examine()
    assert findings["DSA"].detail == "1 queue can be used"
    assert findings[line].ok
    machine.write(f"sys/bus/dsa/devices/{name}", value + "\n")
    findings = machine.examine()
    assert not findings["DSA"].ok
    assert detail in findings[line].detail
    assert detail in findings["DSA"].detail
    assert findings["DSA"].remedy == findings[line].remedy != ""


def test_a_dsa_queue_that_may_not_be_opened(machine):
    """No node in /dev: its line says so."""
    dsa_queue(machine)
    (machine.folder / "dev/dsa/wq0.0").unlink()
    assert "No such file" in machine.examine()["wq0.0 permission"].detail


def test_a_machine_with_everything(machine):
    """Files as a root process on bare metal sees them: nothing is off."""
    machine.write("sys/bus/event_source/devices/cpu/type", "4\n")
    machine.write("sys/bus/event_source/devices/ibs_op/type", "10\n")
    machine.write("sys/bus/event_source/devices/ibs_fetch/type", "9\n")
    dsa_queue(machine)
    machine.write("sys/devices/system/cpu/online", "0-1\n")
    machine.write("sys/devices/system/cpu/isolated", "1\n")
    machine.write("sys/devices/system/node/online", "0-1\n")
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n")
    machine.write("sys/kernel/tracing/events/enable", "0\n")
    machine.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    machine.write("proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0\n")
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    machine.write("proc/self/maps", "7ffd-7ffe r-xp 00000000 00:00 0  [vdso]\n")
    machine.link("proc/self/ns/pid", "pid:[4026531836]")
    machine.write("proc/cpuinfo", "flags\t\t: fpu ibs\n")
    machine.write("proc/kallsyms", "0000000000000000 A a\nffffffff81000000 T _text\n")
    machine.write("proc/sys/kernel/perf_event_paranoid", "4\n")
    machine.write("proc/sys/kernel/perf_event_max_sample_rate", "100000\n")
    findings = machine.examine()
    assert [finding for finding in findings.values() if not finding.ok] == []
    assert findings["cgroup"].detail.startswith("v2: ")
    assert findings["NUMA"].detail == "2 nodes"
    assert findings["virtual machine"].detail == "no"
    assert "2048kB: 8" in findings["hugepages"].detail
    assert "isolated 1" in findings["CPUs"].detail


@pytest.mark.parametrize(
    ("file", "text", "name", "found"),
    [
        ("proc/sys/kernel/perf_event_paranoid", "2\n", "perf_event_paranoid", (False, "2")),
        ("proc/sys/kernel/perf_event_paranoid", "-1\n", "perf_event_paranoid", (True, "-1")),
        ("proc/sys/kernel/perf_event_paranoid", "x\n", "perf_event_paranoid", (False, "readable")),
        (
            "proc/sys/kernel/perf_event_max_sample_rate",
            "200\n",
            "perf_event_max_sample_rate",
            (False, "200"),
        ),
        (
            "proc/kallsyms",
            "0000000000000000 T _text\n" * 9,
            "kptr_restrict",
            (False, "no addresses"),
        ),
        ("proc/kallsyms", "ffffffff81000000 T _text\n", "kptr_restrict", (True, "shows addresses")),
        (
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
            "lockdown",
            (False, "confidentiality"),
        ),
        ("proc/self/status", "Seccomp:\t2\n", "seccomp", (True, "filter is active")),
        ("proc/self/cgroup", "1:cpu:/\n0::/x\n", "cgroup", (True, "hybrid")),
        ("proc/self/cgroup", "1:cpu:/\n", "cgroup", (False, "v1")),
        ("proc/pressure/cpu", "some avg10=0\n", "pressure", (True, "tells")),
        ("proc/pressure", "", "pressure", (False, "never fire")),
        ("proc/cpuinfo", "flags : ibs\n", "ibs_op", (False, "the kernel has no PMU")),
        ("proc/cpuinfo", "flags : hypervisor\n", "ibs_fetch", (False, "virtual machine")),
        ("proc/cpuinfo", "flags : hypervisor\n", "virtual machine", (True, "yes")),
        ("sys/devices/system/cpu/online", "9999999-x\n", "CPUs", (False, "unknown")),
        ("proc/self/status", f"CapEff:\t{1 << 21:x}\n", "CAP_PERFMON", (True, "stands for it")),
        ("proc/self/status", f"CapEff:\t{1 << 38:x}\n", "CAP_SYS_ADMIN", (True, "not needed")),
        ("proc/self/status", f"CapEff:\t{1 << 38:x}\n", "perf_event_paranoid", (False, "readable")),
        ("proc/self/status", "CapEff:\tzz\n", "CAP_PERFMON", (False, "missing")),
        ("proc/self/status", f"CapEff:\t{1 << 14:x}\n", "locked memory", (True, "no limit")),
    ],
)
def test_one_file_decides(machine, file, text, name, found):
    """Each fact is read from its file."""
    finding = machine.write(file, text).examine()[name]
    ok, part = found
    assert finding.ok is ok, finding
    assert part in finding.detail, finding


def test_a_container_is_told(machine):
    """In a PID namespace of its own opd cannot tell the others' processes apart."""
    finding = machine.link("proc/self/ns/pid", "pid:[4026532000]").examine()["PID namespace"]
    assert not finding.ok
    assert "swapper" in finding.detail


@pytest.mark.parametrize(
    ("level", "part"),
    [(-1, "everything"), (0, "whole CPUs"), (1, "kernel too"), (2, "user level"), (3, "nothing")],
)
def test_each_level_of_paranoia_is_put_in_words(machine, level, part):
    """What it allows a user; above 0 with a remedy."""
    machine.write("proc/sys/kernel/perf_event_paranoid", f"{level}\n")
    finding = machine.examine()["perf_event_paranoid"]
    assert part in finding.detail
    assert finding.ok == (level <= 0)


def test_ipc_lock_is_not_missed_where_the_rings_fit(machine):
    """The unit gives LimitMEMLOCK= instead; where that is too small it is said."""
    machine.write("proc/sys/kernel/perf_event_mlock_kb", "100000000\n")
    findings = machine.examine()
    assert findings["CAP_IPC_LOCK"].ok
    assert "not needed" in findings["CAP_IPC_LOCK"].detail
    machine.write("proc/sys/kernel/perf_event_mlock_kb", "4\n")
    proc, sys = str(machine.folder / "proc"), str(machine.folder / "sys")
    findings = {one.name: one for one in examine(proc=proc, sys=sys, ring_kib=1 << 40)}
    if findings["locked memory"].ok:
        pytest.skip("locked memory is not limited here")
    assert "LimitMEMLOCK=" in findings["locked memory"].remedy
    assert "LimitMEMLOCK=" in findings["CAP_IPC_LOCK"].remedy


def test_binary_junk_everywhere_is_survived(machine):
    """Files full of nonsense give findings, not exceptions."""
    for name in (
        "proc/self/status",
        "proc/self/cgroup",
        "proc/self/maps",
        "proc/cpuinfo",
        "proc/kallsyms",
        "proc/mounts",
        "sys/devices/system/cpu/online",
        "sys/devices/system/node/online",
        "sys/kernel/security/lockdown",
    ):
        file = machine.write(name).folder / name
        file.write_bytes(b"\x00\xff: [\n" * 50)
    assert list(machine.examine()) == NAMES
