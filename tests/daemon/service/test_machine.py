"""What the daemon marks by itself, on files and clocks made up for it."""

import time
from pathlib import Path

import pytest

from opd.sampling.live import end_of_window
from opd.service.machine import Clocks, MachineWatch

NS = 10**9
WALL = 1_700_000_000 * NS


class Link:
    """Keeps what is posted, as the store would."""

    def __init__(self):
        self.seen = {}
        self.marks = []

    def request(self, what, params, timeout):
        """Tell what was seen."""
        assert (what, params) == ("seen", {})
        assert timeout > 0
        return {"seen": dict(self.seen)}

    def post(self, what, params):
        """Keep marks and what was seen."""
        assert what == "mark"
        self.marks += params["marks"]
        self.seen |= params["seen"]


class Machine:
    """A root directory, clocks, and daemons that come and go."""

    def __init__(self, root):
        self.root = root
        self.link = Link()
        self.clocks = Clocks(WALL, 1000 * NS, 1000 * NS)
        self.write("proc/sys/kernel/random/boot_id", "boot-1\n")
        self.start()

    def write(self, path, text):
        """A file under the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def start(self):
        """Another daemon over the same store."""
        self.watch = MachineWatch(self.link, root=self.root, clocks=lambda: self.clocks)

    def pass_time(self, seconds, *, set_by=0.0, slept=0.0):
        """Time goes by; somebody sets the clock, or the machine sleeps."""
        self.clocks = Clocks(
            self.clocks.wall + int((seconds + set_by + slept) * NS),
            self.clocks.boot + int((seconds + slept) * NS),
            self.clocks.running + int(seconds * NS),
        )

    def turn(self, times=1):
        """Look, and give the kinds and texts of new marks."""
        before = len(self.link.marks)
        for _ in range(times):
            self.watch.turn()
        return [(kind, text) for _at, kind, text in self.link.marks[before:]]


@pytest.fixture
def machine(tmp_path):
    """A machine whose first daemon has looked once."""
    made = Machine(tmp_path)
    assert made.turn() == []
    return made


def test_a_quiet_machine_marks_nothing(machine):
    """Not at first, not later, not over a restart; and what is seen is not written again."""
    for _ in range(3):
        for _ in range(20):
            machine.pass_time(5, set_by=0.001)
            assert machine.turn() == []
        seen = dict(machine.link.seen)
        machine.pass_time(3600, set_by=0.3)
        machine.start()
        assert machine.turn() == []
        assert {k: v for k, v in machine.link.seen.items() if k != "clock"} == {
            k: v for k, v in seen.items() if k != "clock"
        }


@pytest.mark.parametrize("restarted", [False, True])
def test_clock_steps_are_marked(machine, restarted):
    """Forward and back, once each, with how far; also while opd was not running."""
    for seconds, text in (
        (3600.2, "clock set forward by 1 h"),
        (-7200, "clock set back by 2 h"),
        (0.7, "clock set forward by 0.7 s"),
    ):
        machine.pass_time(5, set_by=seconds)
        if restarted:
            machine.start()
        assert machine.turn() == [("clock", text)]
        assert machine.link.marks[-1][0] == machine.clocks.wall
        machine.pass_time(5)
        assert machine.turn(2) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_suspends_are_marked_where_they_began(machine, restarted):
    """A suspend is no clock step; its mark is at its start."""
    machine.pass_time(4)
    began = machine.clocks.wall
    machine.pass_time(1, slept=8 * 3600 + 61)
    if restarted:
        machine.start()
    assert machine.turn() == [("suspend", "suspended for 8 h 1 min 1 s")]
    assert abs(machine.link.marks[-1][0] - began) <= NS
    assert machine.turn() == []


def test_a_boot_is_marked_at_its_time(machine):
    """Another boot id: a mark when the machine came up, and clocks begin anew."""
    machine.write("proc/sys/kernel/random/boot_id", "boot-2\n")
    machine.clocks = Clocks(WALL + 10**6 * NS, 60 * NS, 60 * NS)
    machine.start()
    ((kind, text),) = machine.turn()
    assert kind == "boot"
    assert text.startswith("booted, kernel ")
    assert machine.link.marks[-1][0] == WALL + 10**6 * NS - 60 * NS
    assert machine.turn() == []


def test_a_new_kernel_is_marked(machine):
    """Its release before and after, or that it was built anew."""
    release = machine.link.seen["kernel"].partition(" ")[0]
    machine.link.seen["kernel"] = "5.10.0-8 aabb"
    machine.start()
    assert ("kernel", f"kernel 5.10.0-8 → {release}") in machine.turn()
    machine.link.seen["kernel"] = f"{release} aabb"
    machine.start()
    assert machine.turn() == [("kernel", f"another build of {release}")]


def test_microcode_is_marked_while_running(tmp_path):
    """By sysfs where it is there, else by /proc/cpuinfo."""
    machine = Machine(tmp_path)
    cpuinfo = "processor\t: 0\nmodel name\t: x\nmicrocode\t: 0x{}\nprocessor\t: 1\n"
    machine.write("proc/cpuinfo", cpuinfo.format("10"))
    assert machine.turn() == []
    machine.write("proc/cpuinfo", cpuinfo.format("12"))
    assert machine.turn() == [("microcode", "microcode 0x10 → 0x12")]
    machine.write("sys/devices/system/cpu/cpu0/microcode/version", "0x13\n")
    assert machine.turn() == [("microcode", "microcode 0x12 → 0x13")]


def log_line(at, text):
    """As dpkg writes it: local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(at // NS)) + text + "\n"


def test_packages_are_named_once_they_rest(machine):
    """By dpkg's log; a change that goes on is one mark, and older lines are not told."""
    status = machine.write("var/lib/dpkg/status", "old")
    machine.clocks = Clocks(time.time_ns(), machine.clocks.boot, machine.clocks.running)
    machine.start()
    machine.link.seen["clock"] = ""
    assert machine.turn(2) == []
    log = machine.write(
        "var/log/dpkg.log", log_line(time.time_ns() - 60 * NS, "install old:all <none> 1")
    )
    later = time.time_ns() + 2 * NS
    with log.open("a") as file:
        file.write(log_line(later, "upgrade libc6:amd64 2.36-9 2.36-10"))
        file.write(log_line(later, "status installed libc6:amd64 2.36-10"))
        file.write(log_line(later, "install nginx:amd64 <none> 1.22"))
        file.write(log_line(later, "remove telnet:amd64 0.17 <none>"))
    machine.pass_time(4)
    status.write_text("half")
    assert machine.turn() == []
    status.write_text("changed")
    assert machine.turn() == []
    ((kind, text),) = machine.turn()
    assert kind == "packages"
    assert (
        text == "dpkg: upgraded libc6 2.36-9 → 2.36-10, installed nginx 1.22, removed telnet 0.17"
    )
    assert machine.turn() == []


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        ("usr/lib/sysimage/rpm/rpmdb.sqlite", "rpm"),
        ("var/lib/pacman/local/x", "pacman"),
        ("lib/apk/db/installed", "apk"),
    ],
)
def test_other_package_managers(machine, path, manager):
    """They are noticed over a restart too, without names."""
    machine.write(path, "1")
    assert machine.turn(3) == []
    time.sleep(0.01)
    machine.write(path.replace("/x", "/y"), "22")
    machine.start()
    assert machine.turn(2) == [("packages", f"{manager}: packages changed")]


def test_many_packages_are_counted(machine):
    """The first ones are named, the rest counted."""
    machine.clocks = Clocks(time.time_ns() + 10 * NS, machine.clocks.boot, machine.clocks.running)
    status = machine.write("var/lib/dpkg/status", "old")
    machine.turn(3)
    at = time.time_ns() + 2 * NS
    lines = [log_line(at, f"install p{number}:all <none> 1") for number in range(50)]
    machine.write("var/log/dpkg.log", "".join(lines))
    status.write_text("new one")
    texts = [text for kind, text in machine.turn(2) if kind == "packages"]
    assert len(texts) == 1
    assert texts[0].endswith("installed p5 1 and 44 more")


def test_damaged_notes_are_as_none(machine):
    """What cannot be read of what was seen is seen anew."""
    boot = "boot-1"
    machine.link.seen |= {"clock": f"{boot} x y", "suspend": "?", "boot": boot}
    machine.start()
    assert machine.turn() == []
    assert machine.link.seen["clock"].split()[0] == boot


def test_real_files_can_be_looked_at():
    """On this machine: nothing is marked, and boot and kernel are seen."""
    link = Link()
    watch = MachineWatch(link)
    watch.turn()
    watch.turn()
    assert link.marks == []
    assert link.seen["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize(
    ("moved", "elapsed", "length"),
    [
        (10.0, 10.0, 10.0),
        (10.01, 10.0, 10.01),  # the clock is slewed
        (3610.0, 10.0, 10.0),  # set forward, or asleep
        (-3590.0, 10.0, 10.0),  # set back
        (-0.2, 0.1, 0.0),  # less than a step, and it went back
    ],
)
def test_a_window_has_the_length_it_took(moved, elapsed, length):
    """Whatever the wall clock does meanwhile; and it never ends before it starts."""
    end = end_of_window(WALL, WALL + int(moved * NS), int(elapsed * NS))
    assert end - WALL == int(length * NS)
