"""Triggers: what is read, when one fires, and a real burst that began by itself."""

from __future__ import annotations

import time

import pytest

from opd.config.triggers import Trigger, parse_condition
from opd.service.triggers import Readings, Watching


def _write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_pressure_and_load_are_read(tmp_path):
    """The fields that the kernel writes; what is not there is told, until it is."""
    _write(
        tmp_path,
        {
            "pressure/cpu": "some avg10=12.50 avg60=3.00 avg300=1.00 total=99\n",
            "loadavg": "1.50 2.50 3.50 1/100 4711\n",
        },
    )
    readings = Readings(proc=str(tmp_path), cgroups=[])
    assert readings.read(parse_condition("psi.cpu.some.avg10 > 1"), 0.0) == 12.5
    assert readings.read(parse_condition("psi.cpu.some.avg300 > 1"), 0.0) == 1.0
    assert readings.read(parse_condition("load5 > 1"), 0.0) == 2.5
    assert readings.unavailable == {}
    full = parse_condition("psi.cpu.full.avg10 > 1")
    assert readings.read(full, 0.0) is None
    assert "no line 'full'" in readings.unavailable[full.text]
    memory = parse_condition("psi.memory.some.avg10 > 1")
    assert readings.read(memory, 0.0) is None
    assert "No such file" in readings.unavailable[memory.text]
    _write(tmp_path, {"pressure/memory": "some avg10=0.10 avg60=0 avg300=0 total=9\n"})
    assert readings.read(memory, 1.0) == 0.1
    assert memory.text not in readings.unavailable


@pytest.mark.parametrize("version", [1, 2])
def test_cores_of_a_unit_come_from_its_cgroup(tmp_path, version):
    """Two readings make cores; a unit that restarts is found again."""

    def use(seconds):
        if version == 2:
            name, text = "cpu.stat", f"usage_usec {round(seconds * 1e6)}\nuser_usec 1\n"
        else:
            name, text = "cpuacct.usage", f"{round(seconds * 1e9)}\n"
        _write(tmp_path, {f"system.slice/nginx.service/{name}": text})

    readings = Readings(cgroups=[str(tmp_path)])
    unit = parse_condition("unit:nginx.service cpu > 1.5")
    path = parse_condition("cgroup:/system.slice/nginx.service cpu > 1.5")
    assert readings.read(unit, 100.0) is None
    assert "no cgroup of nginx.service" in readings.unavailable[unit.text]
    use(10.0)
    assert readings.read(unit, 101.0) is None  # it is not looked for at once
    assert readings.read(unit, 131.0) is None
    assert readings.read(path, 131.0) is None
    use(14.0)
    assert readings.read(unit, 133.0) == pytest.approx(2.0)
    assert readings.read(path, 133.0) == pytest.approx(2.0)
    assert readings.unavailable == {}
    for file in (tmp_path / "system.slice/nginx.service").iterdir():
        file.unlink()
    assert readings.read(unit, 134.0) is None
    use(1.0)
    assert readings.read(unit, 135.0) is None
    use(1.5)
    assert readings.read(unit, 136.0) == pytest.approx(0.5)


class Clock:
    """Simulated seconds with a value that is read."""

    def __init__(self, trigger):
        self.value = None
        self.watching = Watching([trigger], lambda _condition, _now: self.value)
        self.now = 1000.0
        self.fired = []

    def run(self, seconds, value):
        """Look once a second; bursts begin at once."""
        self.value = value
        for _ in range(seconds):
            self.now += 1
            due = self.watching.due(self.now)
            if due is not None:
                self.fired.append(self.now - 1000)
                self.watching.fired(due[0], self.now)


def _trigger(**options):
    return Trigger(when=parse_condition("load1 > 8"), **options)


def test_it_fires_when_the_condition_has_held():
    """A moment is not enough; nor is a value that cannot be read."""
    clock = Clock(_trigger(hold=3.0))
    clock.run(100, 7.0)
    clock.run(3, 9.0)
    clock.run(1, None)
    clock.run(3, 9.0)
    assert clock.fired == []
    clock.run(1, 9.0)
    assert clock.fired == [108]


def test_it_rests_for_the_burst_and_the_cooldown():
    """What goes on being bad is not recorded all the time."""
    clock = Clock(_trigger(hold=0.0, seconds=30.0, cooldown=60.0))
    clock.run(300, 9.0)
    assert clock.fired == [1, 91, 181, 271]


def test_no_more_than_so_many_a_day():
    """The bound is over any 24 hours."""
    clock = Clock(_trigger(hold=0.0, seconds=10.0, cooldown=20.0, most_per_day=3))
    clock.run(3600, 9.0)
    assert clock.fired == [1, 31, 61]
    clock.now += 86400 - 3600
    clock.run(100, 9.0)
    assert clock.fired == [1, 31, 61, 86401, 86431, 86461]


def test_a_burst_that_could_not_begin_is_tried_again_later():
    """Refused ones do not count for the day."""
    trigger = _trigger(hold=0.0, most_per_day=1)
    watching = Watching([trigger], lambda _condition, _now: 9.0)
    assert watching.due(10.0) == (trigger, 9.0)
    watching.refused(trigger, 10.0)
    assert watching.due(30.0) is None
    assert watching.due(71.0) == (trigger, 9.0)


def test_a_real_one_records_marks_and_rests(start_daemon, tmp_path):
    """A condition that holds begins a burst of its own, with a mark, once."""
    config = tmp_path / "opd.toml"
    config.write_text(
        "[[burst.trigger]]\nwhen = 'load1 >= 0'\nhold = 0\nfor = '2s'\nrate = 499\n"
        "[[burst.trigger]]\nwhen = 'unit:no-such-thing.service cpu > 1'\n"
    )
    daemon = start_daemon("--config", str(config), "--interval", "1")
    until = time.monotonic() + 90
    while not (ended := daemon.ask("record", "--list")["ended"]):
        assert time.monotonic() < until, daemon.log()
        time.sleep(0.3)
    (burst,) = ended
    assert burst["result"]["ended"] == "time"
    assert burst["origin"].startswith("load1 >= 0 (was ")
    quality = daemon.ask("report", "--session", burst["session"])["quality"]
    assert quality["hz_asked"] == 499
    time.sleep(3)
    listing = daemon.ask("record", "--list")
    assert listing["running"] is None
    assert len(listing["ended"]) == 1
    marks = [mark for mark in daemon.ask("mark", "--list")["marks"] if mark["kind"] == "trigger"]
    assert len(marks) == 1
    assert burst["session"] in marks[0]["text"]
    assert '"trigger.unavailable"' in daemon.log()
    assert daemon.stop() == 0
