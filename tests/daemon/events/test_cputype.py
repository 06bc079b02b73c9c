"""CPU types: detection by CPUID, names, and where files are found."""

import pytest
from events_files import write_type

from opd.errors import EventError
from opd.events import cputype
from opd.events.cpucatalogue import Catalogue


def proc(folder, vendor, family):
    """A /proc whose cpuinfo tells vendor and family, as the kernel writes them."""
    lines = ["processor\t: 0"]
    if vendor:
        lines += [f"vendor_id\t: {vendor}", f"cpu family\t: {family}", "model\t\t: 1"]
    (folder / "cpuinfo").write_text("\n".join(lines) + "\n\nprocessor\t: 1\ncpu family\t: 99\n")
    return str(folder)


@pytest.mark.parametrize(
    ("vendor", "family", "expected"),
    [
        ("AuthenticAMD", 16, "x86-64/family10"),
        ("AuthenticAMD", 18, "x86-64/family12"),
        ("AuthenticAMD", 20, "x86-64/family14"),
        ("AuthenticAMD", 21, "x86-64/family15"),
        ("AuthenticAMD", 23, "x86-64/family17"),
        ("HygonGenuine", 24, "x86-64/family17"),
        ("AuthenticAMD", 25, "x86-64/family19"),
        ("AuthenticAMD", 26, "x86-64/family1a"),
        ("AuthenticAMD", 22, "x86-64/generic"),
        ("AuthenticAMD", "²", "x86-64/generic"),
        ("GenuineIntel", 6, "x86-64/generic"),
        ("", 0, "timer"),
    ],
)
def test_the_type_of_a_machine(tmp_path, vendor, family, expected):
    """By vendor and family; an x86-64 that is not known is generic, anything else the timer."""
    assert cputype.detect(proc=proc(tmp_path, vendor, family), machine="x86_64") == expected


def test_other_machines_have_the_timer(tmp_path):
    """An Arm machine, and one without cpuinfo."""
    assert cputype.detect(proc=proc(tmp_path, "", 0), machine="aarch64") == "timer"
    assert cputype.detect(proc=str(tmp_path / "none"), machine="x86_64") == "timer"


def test_every_type_that_can_be_detected_has_its_files():
    """Each brings events, and is among those that are listed; what is only included is not."""
    known = cputype.known_types(cputype.search_path())
    assert known == sorted(
        ["timer", "x86-64/generic"]
        + [f"x86-64/family{family}" for family in ("10", "12", "14", "15", "17", "19", "1a")]
    )
    for name in known:
        assert Catalogue(cpu_type=name).events.events


@pytest.mark.parametrize("name", ["x86-64/family10", "x86-64/family10h"])
def test_a_type_by_its_other_name(name):
    """Oprofile writes some with an h."""
    assert Catalogue(cpu_type=name).cpu_type == "x86-64/family10"
    assert Catalogue(cpu_type="x86-64/family1ah").cpu_type == "x86-64/family1a"


@pytest.mark.parametrize("name", ["", "../../etc", "x86-64", "X86-64/family10", "a/b/c", "é"])
def test_an_unknown_type_is_refused_with_those_there_are(name):
    """The valid ones are listed."""
    with pytest.raises(EventError, match="unknown CPU type") as caught:
        cputype.check_type(name, cputype.search_path())
    assert "valid: timer, x86-64/family10" in str(caught.value)


def test_a_type_of_ones_own_can_be_asked_for(tmp_path):
    """A directory of the settings adds types, and is read before what opd brings."""
    folder = write_type(tmp_path, "mine")
    catalogue = Catalogue(cpu_type="mine", events_dir=folder)
    assert "CYCLES_RUN" in catalogue.events.by_name
    assert "mine" in cputype.known_types(cputype.search_path(folder))


def test_files_are_read_only_when_somebody_chose_them(tmp_path):
    """A broken override of this machine's type is told by ``check``; others are left alone."""
    here = proc(tmp_path, "AuthenticAMD", 25)
    folder = write_type(tmp_path / "events", "x86-64/family17", events="broken\n")
    Catalogue(events_dir=folder, proc=here).check()
    write_type(tmp_path / "events", "x86-64/family19", events="broken\n")
    with pytest.raises(Exception, match="family19/events:1"):
        Catalogue(events_dir=folder, proc=here).check()
