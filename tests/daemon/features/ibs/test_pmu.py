"""The PMUs of a machine, read from its sysfs."""

import pytest
from fake_pmus import MACHINES, make_devices

from opd.features.ibs.pmu import PmuError, missing, read_machine, read_pmu
from opd_native.ibs import Machine


@pytest.mark.parametrize("machine", MACHINES)
def test_type_format_and_caps_are_what_the_files_say(tmp_path, machine):
    """Of both PMUs; a field's bits from the lowest."""
    devices = make_devices(tmp_path, machine, types=(21, 9))
    for name, number, (fields, caps) in zip(
        ("ibs_fetch", "ibs_op"), (21, 9), MACHINES[machine], strict=True
    ):
        pmu = read_pmu(name, devices)
        assert (pmu.name, pmu.type, pmu.caps) == (name, number, caps)
        assert pmu.fields.keys() == fields.keys()


def test_a_field_puts_a_value_where_its_bits_are(tmp_path):
    """A value over two ranges, and one that is too large."""
    field = read_pmu("ibs_op", make_devices(tmp_path, "zen4")).fields["maxcnt"]
    assert field.word == "config"
    assert field.place(0xFFFF) == 0xFFFF
    assert field.place(0x7F0000) == 0x7F << 20
    assert field.place(0x12345) == 0x2345 | 1 << 20
    with pytest.raises(ValueError, match="needs more than 23 bits"):
        field.place(1 << 23)


def test_a_machine_without_the_pmu_has_none(tmp_path):
    """That is an answer, whose words name what may be the cause."""
    assert read_pmu("ibs_op", str(tmp_path)) is None
    assert missing("ibs_fetch") == (
        "no ibs_fetch PMU (virtual machine / not AMD / disabled in BIOS: caps 0)"
    )


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("type", "soon", "expected a number, got 'soon'"),
        ("type", "", "expected a number"),
        ("format/cnt_ctl", "config19", "expected such as config:0-15,20, got 'config19'"),
        ("format/cnt_ctl", "config9:1", "got 'config9:1'"),
        ("format/cnt_ctl", "config:70", "got 'config:70'"),
        ("format/cnt_ctl", "config:a-b", "got 'config:a-b'"),
        ("format/cnt_ctl", "config:5-2", "got 'config:5-2'"),
    ],
)
def test_files_that_make_no_sense_are_named(tmp_path, file, text, what):
    """With what they say and what was expected."""
    devices = make_devices(tmp_path, "zen4")
    (tmp_path / "ibs_op" / file).write_text(text)
    with pytest.raises(PmuError, match=f"ibs_op/{file}: .*{what}"):
        read_pmu("ibs_op", devices)


def test_an_older_kernel_has_no_caps(tmp_path):
    """The folder is missing, which is no mistake."""
    devices = make_devices(tmp_path, "zen3")
    (tmp_path / "ibs_op" / "caps").rmdir()
    assert read_pmu("ibs_op", devices).caps == {}


def test_the_machine_is_that_of_cpuinfo(tmp_path):
    """Of its first CPU; None for another vendor's, and where there is no such file."""
    lines = "vendor_id\t: {}\ncpu family\t: 25\nmodel\t\t: 17\nstepping\t: 1\n\nmodel\t: 99\n"
    (tmp_path / "cpuinfo").write_text(lines.format("AuthenticAMD"))
    assert read_machine(str(tmp_path), "6.8.0-1-amd64") == Machine(25, 17, 6 << 16 | 8)
    (tmp_path / "cpuinfo").write_text(lines.format("GenuineIntel"))
    assert read_machine(str(tmp_path)) is None
    assert read_machine(str(tmp_path / "none")) is None
