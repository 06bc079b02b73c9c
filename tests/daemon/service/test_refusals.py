"""Why perf_event_open refuses, in words that say what to change."""

import errno
import os

import pytest

from opd.errors import EventError, OperationFailedError, PermissionDeniedError
from opd.service.capabilities import explain_open_failure, try_open


def user(folder, *, capabilities=0, paranoid="2\n"):
    """A proc of a process with these capability bits."""
    (folder / "self").mkdir()
    (folder / "self" / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities:016x}\n")
    kernel = folder / "sys" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / "perf_event_paranoid").write_text(paranoid)
    return str(folder)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_no_permission_names_sysctl_and_capability(tmp_path, number):
    """Status 77, the value now, and both ways out."""
    error = explain_open_failure(number, "cycles:p", cpu=3, proc=user(tmp_path))
    assert isinstance(error, PermissionDeniedError)
    assert error.exit_status == 77
    assert "'cycles:p' on CPU 3" in error.message
    assert "kernel.perf_event_paranoid is 2" in error.message
    assert "CAP_PERFMON" in error.hint
    assert "kernel.perf_event_paranoid=0" in error.hint


@pytest.mark.parametrize(
    ("event", "level"),
    [("sched:sched_switch", -1), ("9p:9p_x", -1), ("faults:u", 0), ("cpu-clock", 0)],
)
def test_tracepoints_need_one_level_more(tmp_path, event, level):
    """The value to set is the one that is enough for this event."""
    error = explain_open_failure(errno.EACCES, event, proc=user(tmp_path))
    assert f"perf_event_paranoid={level}" in error.hint


def test_refused_in_spite_of_the_capability(tmp_path):
    """Then it is a filter in front, not the sysctl."""
    proc = user(tmp_path, capabilities=1 << 38)
    error = explain_open_failure(errno.EPERM, "cycles", proc=proc)
    assert isinstance(error, PermissionDeniedError)
    assert "seccomp" in error.hint


def test_an_unreadable_sysctl_is_said_to_be(tmp_path):
    """No guess about what cannot be read."""
    error = explain_open_failure(errno.EACCES, "cycles", proc=str(tmp_path))
    assert "unreadable" in error.message
    assert (
        "is 4"
        in explain_open_failure(errno.EACCES, "cycles", paranoid=4, proc=str(tmp_path)).message
    )


@pytest.mark.parametrize(
    ("number", "kind", "part"),
    [
        (errno.ENOENT, EventError, "no PMU"),
        (errno.EOPNOTSUPP, EventError, "cannot do"),
        (errno.EINVAL, EventError, "refuses the parameters"),
        (errno.E2BIG, EventError, "too old"),
        (errno.ENOSYS, EventError, "no perf events"),
        (errno.EMFILE, OperationFailedError, "LimitNOFILE"),
        (errno.ENFILE, OperationFailedError, "file-max"),
        (errno.ENODEV, OperationFailedError, "offline"),
        (errno.EBUSY, OperationFailedError, "nmi_watchdog"),
        (errno.ENOSPC, OperationFailedError, "no counter left"),
        (errno.ENOMEM, OperationFailedError, "memory"),
        (errno.EIO, OperationFailedError, os.strerror(errno.EIO)),
        (9999, OperationFailedError, "9999"),
    ],
)
def test_each_refusal_has_its_kind_and_remedy(number, kind, part):
    """Every errno names the event, and carries a hint."""
    error = explain_open_failure(number, "cycles:p")
    assert type(error) is kind
    assert "'cycles:p'" in error.message
    assert part in str(error)
    assert error.hint


def test_trying_for_real():
    """A software event opens or is refused for permission; a PMU of no number is not there."""
    assert try_open(1, 0) in {0, errno.EACCES, errno.EPERM}
    assert try_open(0x7FFFFFFF, 0) in {errno.ENOENT, errno.EACCES, errno.EPERM}


@pytest.mark.parametrize(
    ("event", "paranoid"),
    [
        ("sched:sched_switch", "perf_event_paranoid=-1"),
        ("CPU_CLK_UNHALTED:u", "perf_event_paranoid=0"),
        ("cpu/event=0x76/", "perf_event_paranoid=0"),
        ("uprobe:/bin/true:main", ""),
    ],
)
def test_what_each_source_needs(tmp_path, event, paranoid):
    """Tracepoints need a lower level than counters; probes need the capability, whatever it is."""
    error = explain_open_failure(errno.EACCES, event, paranoid=2, proc=str(tmp_path))
    assert error.exit_status == 77
    assert paranoid in error.hint
    assert bool(paranoid) == ("sysctl" in error.hint)
    assert "CAP_PERFMON" in error.hint


def test_a_pmu_that_cannot_sample():
    """EINVAL of a PMU's own event says what may be wrong with it."""
    assert "cannot sample" in explain_open_failure(errno.EINVAL, "msr/tsc/").message
