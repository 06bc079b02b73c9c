"""Which events there are on a machine with, and without, PMU and tracefs."""

from opd.events import parse_event
from opd.events.listing import core_pmus, list_events


def machine(folder, *pmus, tracepoints=()):
    """The roots of a machine with these PMUs and tracepoints."""
    for pmu in pmus:
        (folder / "sys" / "bus" / "event_source" / "devices" / pmu).mkdir(parents=True)
    for name in tracepoints:
        place = folder / "sys" / "kernel" / "tracing" / "events" / name
        place.mkdir(parents=True)
        (place / "id").write_text("1\n")
    return {"sysfs": str(folder / "sys"), "proc": str(folder / "proc")}


def test_a_machine_without_pmu_says_so(tmp_path):
    """Hardware events are listed as not here, software ones as here."""
    listed = {event.name: event for event in list_events(**machine(tmp_path, "software"))}
    assert not listed["cycles"].available
    assert "cpu-clock" in listed["cycles"].reason
    assert listed["page-faults"].available
    assert listed["page-faults"].aliases == ("faults",)
    assert not listed["sys:name"].available
    assert "mount -t tracefs" in listed["sys:name"].reason


def test_a_machine_with_pmu_and_tracefs(tmp_path):
    """Hardware events and the tracepoints, in order of name, each with its default."""
    roots = machine(tmp_path, "cpu", tracepoints=("sched/sched_switch", "block/block_rq_issue"))
    (tmp_path / "sys" / "kernel" / "tracing" / "events" / "enable").write_text("0\n")
    events = list_events(**roots)
    assert all(event.available for event in events)
    names = [event.name for event in events if event.kind == "tracepoint"]
    assert names == ["block:block_rq_issue", "sched:sched_switch"]
    assert {event.name: event.default for event in events}["cycles"] == "99hz"


def test_a_tracefs_found_by_its_mount(tmp_path):
    """/proc/mounts says where, blanks written as octal."""
    roots = machine(tmp_path)
    place = tmp_path / "odd place" / "events" / "irq" / "softirq_entry"
    place.mkdir(parents=True)
    (place / "id").write_text("5\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "mounts").write_text(
        f"proc /proc proc rw 0 0\nnone {tmp_path}/odd\\040place tracefs rw 0 0\nshort\n"
    )
    assert parse_event("irq:softirq_entry", **roots).config == 5
    assert "irq:softirq_entry" in [event.name for event in list_events(**roots)]


def test_a_tracefs_below_a_debugfs(tmp_path):
    """The older place is looked at too."""
    roots = machine(tmp_path)
    place = tmp_path / "sys" / "kernel" / "debug" / "tracing" / "events" / "irq" / "a"
    place.mkdir(parents=True)
    (place / "id").write_text("6\n")
    assert parse_event("irq:a", **roots).config == 6


def test_core_pmus_of_other_machines(tmp_path):
    """Hybrid and Arm core PMUs have a list of CPUs; uncore ones have a mask."""
    roots = machine(tmp_path, "cpu_core", "armv8_pmuv3_0", "uncore_imc", "software")
    devices = tmp_path / "sys" / "bus" / "event_source" / "devices"
    (devices / "cpu_core" / "cpus").write_text("0-3\n")
    (devices / "armv8_pmuv3_0" / "cpus").write_text("0-3\n")
    (devices / "uncore_imc" / "cpumask").write_text("0\n")
    assert core_pmus(sysfs=roots["sysfs"]) == ["armv8_pmuv3_0", "cpu_core"]


def test_every_listed_event_can_be_asked_for(tmp_path):
    """Name and aliases are all understood, and the default is the one that is used."""
    roots = machine(tmp_path)
    for event in list_events(**roots):
        if event.name == "sys:name":
            continue
        for name in (event.name, *event.aliases):
            request = parse_event(name, **roots)
            used = f"{request.hz}hz" if request.hz else str(request.period)
            assert (used, request.unit) == (event.default, event.unit)
            assert event.summary
