"""The event grammar: what each specification asks of the kernel, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opd.errors import EventError, PermissionDeniedError
from opd.events import EventRequest, parse_event, parse_events
from opd.events.catalogue import BY_NAME


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A fake machine with a tracefs of three tracepoints."""
    root = tmp_path_factory.mktemp("machine")
    for name, number in (
        ("sched/sched_switch", "372\n"),
        ("sched/sched_wakeup", "373\n"),
        ("9p/9p_client_req", "12\n"),
        ("bad/number", "x\n"),
    ):
        folder = root / "tracing" / "events" / name
        folder.mkdir(parents=True)
        (folder / "id").write_text(number)
    rate = root / "proc" / "sys" / "kernel"
    rate.mkdir(parents=True)
    (rate / "perf_event_max_sample_rate").write_text("50000\n")
    (root / "sys").mkdir()
    return {
        "sysfs": str(root / "sys"),
        "proc": str(root / "proc"),
        "tracefs": str(root / "tracing"),
    }


@pytest.fixture(scope="module")
def bare(machine):
    """The same machine with no tracefs mounted."""
    return {"sysfs": machine["sysfs"], "proc": machine["proc"]}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("cpu-clock", (1, 0, "ns", 99, None)),
        ("task-clock", (1, 1, "ns", 99, None)),
        ("page-faults", (1, 2, "count", None, 1)),
        ("faults", (1, 2, "count", None, 1)),
        ("context-switches", (1, 3, "count", None, 1)),
        ("cs", (1, 3, "count", None, 1)),
        ("cpu-migrations", (1, 4, "count", None, 1)),
        ("minor-faults", (1, 5, "count", None, 1)),
        ("major-faults", (1, 6, "count", None, 1)),
        ("alignment-faults", (1, 7, "count", None, 1)),
        ("emulation-faults", (1, 8, "count", None, 1)),
        ("cycles", (0, 0, "count", 99, None)),
        ("cpu-cycles", (0, 0, "count", 99, None)),
        ("instructions", (0, 1, "count", 99, None)),
        ("cache-references", (0, 2, "count", 99, None)),
        ("cache-misses", (0, 3, "count", 99, None)),
        ("branches", (0, 4, "count", 99, None)),
        ("branch-instructions", (0, 4, "count", 99, None)),
        ("branch-misses", (0, 5, "count", 99, None)),
        ("bus-cycles", (0, 6, "count", 99, None)),
        ("stalled-cycles-frontend", (0, 7, "count", 99, None)),
        ("stalled-cycles-backend", (0, 8, "count", 99, None)),
        ("ref-cycles", (0, 9, "count", 99, None)),
        ("cpu-clock:999hz", (1, 0, "ns", 999, None)),
        ("cpu-clock:999HZ", (1, 0, "ns", 999, None)),
        ("cpu-clock:1000000", (1, 0, "ns", None, 1_000_000)),
        ("page-faults:100", (1, 2, "count", None, 100)),
        ("page-faults:50hz", (1, 2, "count", 50, None)),
        ("cycles:100000", (0, 0, "count", None, 100_000)),
        ("cycles:50000hz", (0, 0, "count", 50_000, None)),
        ("cycles:100000:0", (0, 0, "count", None, 100_000)),
        ("cycles:100000:0x00:1:1", (0, 0, "count", None, 100_000)),
        ("sched:sched_switch", (2, 372, "count", None, 1)),
        ("9p:9p_client_req:7", (2, 12, "count", None, 7)),
        ("sched:sched_wakeup:k:20hz", (2, 373, "count", 20, None)),
    ],
)
def test_what_is_asked_of_the_kernel(machine, text, asked):
    """Type, number, unit and rate of each form."""
    request = parse_event(text, **machine)
    assert (request.type, request.config, request.unit, request.hz, request.period) == asked


@pytest.mark.parametrize(
    ("text", "name", "excluded", "precise"),
    [
        ("cycles", "cycles", "", 0),
        ("cycles:u", "cycles:u", "kh", 0),
        ("cycles:k:1000", "cycles:k", "uh", 0),
        ("cycles:uk", "cycles:uk", "h", 0),
        ("cycles:upp", "cycles:upp", "kh", 2),
        ("cycles:P", "cycles:P", "", 3),
        ("cycles:I", "cycles:I", "I", 0),
        ("cpu-clock", "cpu-clock", "I", 0),
        ("cpu-clock:ppp", "cpu-clock:ppp", "I", 0),
        ("page-faults:u", "page-faults:u", "kh", 0),
        ("cycles:1000:0:1:0", "cycles:k", "uh", 0),
        ("cycles:1000:0:0:1", "cycles:u", "kh", 0),
        ("cycles:1000:0:0", "cycles:u", "kh", 0),
        ("cycles:p:1000:0:0:1", "cycles:pu", "kh", 1),
        ("sched:sched_switch:k", "sched:sched_switch:k", "uh", 0),
    ],
)
def test_modifiers(machine, text, name, excluded, precise):
    """Levels, idle and precision, also in oprofile's spelling; the name carries them."""
    request = parse_event(text, **machine)
    assert request.name == name
    flags = {
        "u": request.exclude_user,
        "k": request.exclude_kernel,
        "h": request.exclude_hv,
        "I": request.exclude_idle,
    }
    assert "".join(letter for letter, out in flags.items() if out) == excluded
    assert request.precise_ip == precise


def test_idle_irq_keeps_idle_cpus_but_for_the_modifier(machine):
    """With idle=irq only I excludes idle, from fallbacks too."""
    assert not parse_event("cpu-clock", idle="irq", **machine).exclude_idle
    assert parse_event("cpu-clock:I", idle="irq", **machine).exclude_idle
    assert not parse_event("cycles", idle="irq", **machine).fallbacks[-1].exclude_idle
    assert parse_event("cycles", **machine).fallbacks[-1].exclude_idle


def test_the_ladder(machine):
    """cycles:p falls back to cycles, then cpu-clock, at the same rate."""
    request = parse_event("cycles:p", **machine)
    assert [(rung.name, rung.precise_ip, rung.hz) for rung in request.fallbacks] == [
        ("cycles", 0, 99),
        ("cpu-clock", 0, 99),
    ]
    assert all(rung.fallbacks == () for rung in request.fallbacks)


def test_the_ladder_keeps_levels_and_never_counts_nanoseconds_for_cycles(machine):
    """A period of a counter becomes the default rate of the timer."""
    request = parse_event("instructions:upp:12345", **machine)
    assert [rung.name for rung in request.fallbacks] == [
        "instructions:up",
        "instructions:u",
        "cpu-clock:u",
    ]
    assert [rung.period for rung in request.fallbacks] == [12345, 12345, None]
    timer = request.fallbacks[-1]
    assert (timer.hz, timer.unit, timer.exclude_kernel) == (99, "ns", True)
    assert parse_event("cycles:777hz", **machine).fallbacks[-1].hz == 777


def test_software_events_need_no_ladder(machine):
    """What every machine has, falls back to nothing."""
    assert parse_event("page-faults", **machine).fallbacks == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["1 to 256 characters"]),
        ("x" * 300, ["1 to 256 characters"]),
        ("cylces", ["'cylces'", "cycles"]),
        ("CYCLES:p", ["'CYCLES'", "valid: cpu-clock"]),
        ("zzz", ["unknown event 'zzz'", "valid: cpu-clock", "--list-events"]),
        ("cylces:u", ["'cylces'", "did you mean cycles"]),
        ("cycles,instructions", ["one event each"]),
        ("cycles:", ["expected a count", "''"]),
        ("cycles:x", ["unknown modifier 'x'", "u k h p P I"]),
        ("cycles:uu", ["u stands there twice"]),
        ("cycles:pppp", ["p, pp, ppp or P"]),
        ("cycles:pP", ["p, pp, ppp or P"]),
        ("cycles:u:u", ["unknown modifier 'u'"]),
        ("cycles:0", ["'0'", "500 to 9223372036854775807"]),
        ("cycles:499", ["500 to"]),
        ("cycles:-5", ["'-5'"]),
        ("cycles:1.5", ["'1.5'"]),
        ("cycles:1_000", ["'1_000'"]),
        ("cycles:٣٣٣٣", ["expected a count"]),
        ("cycles:9223372036854775808", ["500 to 9223372036854775807"]),
        ("cycles:" + "9" * 240, ["500 to 9223372036854775807"]),
        ("cycles:0hz", ["'0hz'", "1hz to 50000hz"]),
        ("cycles:50001hz", ["50000hz", "perf_event_max_sample_rate"]),
        ("cpu-clock:9999", ["10000 to"]),
        ("page-faults:0", ["1 to"]),
        ("cycles:1000:0x1", ["unit mask '0x1'", "has none"]),
        ("cycles:1000:xx", ["expected a unit mask"]),
        ("cycles:1000:", ["expected a unit mask"]),
        ("cycles:1000:0:2", ["KERNEL: expected 0 or 1, got '2'"]),
        ("cycles:1000:0:1:x", ["USER: expected 0 or 1, got 'x'"]),
        ("cycles:1000:0:0:0", ["nothing is left"]),
        ("cycles:u:1000:0:1:0", ["levels are given twice"]),
        ("cycles:1000:0:1:1:9", ["'9' is too much"]),
        ("sched:sched_swich", ["no tracepoint 'sched_swich' in 'sched'", "sched_switch"]),
        ("sced:sched_switch", ["unknown event 'sced:sched_switch'", "did you mean sched"]),
        ("sched:sched_switch:0", ["count '0'"]),
        ("bad:number", ["expected a number"]),
        ("../sched:sched_switch", ["unknown event '../sched'"]),
        ("sched:../sched/sched_switch", ["unknown event 'sched'"]),
        ("uprobe:/bin/true:main", ["this kernel has no PMU 'uprobe'"]),
        ("cpu/event=0x3c", ["expected pmu/term=value,.../"]),
        ("cycles\0", ["unknown event"]),
    ],
)
def test_refused_with_the_token_and_the_valid_ones(machine, text, parts):
    """Each mistake names what is wrong; exit status 78."""
    with pytest.raises(EventError) as caught:
        parse_event(text, **machine)
    assert caught.value.exit_status == 78
    for part in parts:
        assert part in str(caught.value)


def test_without_tracefs_the_remedy_is_the_mount(bare):
    """An unmounted tracefs is said to be the reason, and how to mount it."""
    (Path(bare["sysfs"]) / "kernel" / "tracing").mkdir(parents=True, exist_ok=True)
    with pytest.raises(EventError) as caught:
        parse_event("sched:sched_switch", **bare)
    assert "tracefs is not mounted" in caught.value.message
    assert "mount -t tracefs" in caught.value.hint


def test_an_unreadable_rate_limit_falls_back(tmp_path):
    """Without the sysctl the kernel's usual limit counts."""
    roots = {"sysfs": str(tmp_path), "proc": str(tmp_path)}
    assert parse_event("cpu-clock:100000hz", **roots).hz == 100_000
    with pytest.raises(EventError):
        parse_event("cpu-clock:100001hz", **roots)


def test_a_low_rate_limit_lowers_the_default(tmp_path):
    """The default of 99 Hz never exceeds what the kernel takes."""
    kernel = tmp_path / "sys" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / "perf_event_max_sample_rate").write_text("50\n")
    request = parse_event("cycles", sysfs=str(tmp_path), proc=str(tmp_path))
    assert (request.hz, request.fallbacks[-1].hz) == (50, 50)


def test_several_events_and_all_their_mistakes(machine):
    """Order is kept; mistakes are told together, with the file or flag."""
    names = [request.name for request in parse_events(["cs", "cycles:p"], **machine)]
    assert names == ["cs", "cycles:p"]
    with pytest.raises(EventError) as caught:
        parse_events(["nope", "cs", "cs:5", "cycles:0"], source="--event", **machine)
    lines = caught.value.message.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("--event: ") for line in lines)
    assert "'cs' is asked for twice" in lines[1]


MODS = st.sampled_from(["u", "k", "uk", "p", "pp", "P", "I", "upp"])


@given(
    st.sampled_from(sorted(BY_NAME)),
    st.none() | MODS,
    st.none() | st.integers(10_000, 2**63 - 1) | st.integers(1, 50_000).map("{}hz".format),
)
def test_every_right_specification_is_understood(machine, name, mods, count):
    """Name, modifiers and count in any mix; the name comes back, one of rate and period."""
    text = ":".join(str(part) for part in (name, mods, count) if part is not None)
    request = parse_event(text, **machine)
    assert isinstance(request, EventRequest)
    assert request.name == name + (f":{mods}" if mods else "")
    assert (request.hz is None) != (request.period is None)
    for rung in request.fallbacks:
        assert parse_event(rung.name, **machine).type == rung.type


TOKENS = st.lists(
    st.sampled_from(
        [
            *sorted(BY_NAME),
            "sched",
            "sched_switch",
            "u",
            "ppp",
            "P",
            "1000",
            "999hz",
            "0x0",
            "0",
            "1",
            "-1",
            "",
            "..",
            "/",
            "\0",
            "é",
            "9" * 30,
        ]
    ),
    max_size=7,
).map(":".join)


@settings(deadline=None)
@given(TOKENS | st.text(max_size=300))
def test_any_text_is_an_event_or_an_event_error(machine, text):
    """No text gets anything but a request or an EventError."""
    try:
        request = parse_event(text, **machine)
    except EventError:
        return
    assert request.name


@settings(deadline=None)
@given(TOKENS | st.text(max_size=300))
def test_any_text_without_tracefs(bare, text):
    """The same where tracefs is not mounted."""
    try:
        request = parse_event(text, **bare)
    except EventError:
        return
    assert request.name


IN_A_MOUNT_NAMESPACE = """
[ -d /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing || exit 99
exec "$0" -c '
from opd.events import parse_event
from opd.events.listing import list_events
request = parse_event("sched:sched_switch")
number = int(open("/sys/kernel/tracing/events/sched/sched_switch/id").read())
assert (request.type, request.config, request.period) == (2, number, 1), request
names = {event.name for event in list_events() if event.kind == "tracepoint"}
assert "sched:sched_switch" in names and len(names) > 50, len(names)
'
"""


@pytest.mark.privileged
def test_a_real_tracepoint():
    """With a tracefs mounted (in a namespace of its own) the kernel's own number comes back."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", IN_A_MOUNT_NAMESPACE, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in {1, 99} and ("permitted" in done.stderr or "denied" in done.stderr):
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.mark.privileged
def test_a_locked_tracefs_is_a_matter_of_permission(machine):
    """Another user gets 77 and how to be let in."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    tracing = Path(machine["sysfs"]) / "kernel" / "debug" / "tracing"
    tracing.mkdir(parents=True, exist_ok=True)
    tracing.chmod(0o700)
    for parent in tracing.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setuid(65534)
            parse_event("sched:sched_switch", sysfs=machine["sysfs"], proc="/nowhere")
        except PermissionDeniedError as error:
            status = 0 if error.exit_status == 77 and "gid=" in error.hint else 2
        finally:
            os._exit(status)
    tracing_status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    tracing.rmdir()
    assert tracing_status == 0
