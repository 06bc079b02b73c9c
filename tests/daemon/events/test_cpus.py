"""Lists of CPUs, and which ones are sampled."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.errors import ConfigError
from opd.events import online_cpus, parse_cpu_list, select_cpus
from opd.events.cpus import format_cpu_list


def machine(folder, **files):
    """A sysfs with these files of devices/system/cpu."""
    cpu = folder / "devices" / "system" / "cpu"
    cpu.mkdir(parents=True)
    for name, text in files.items():
        (cpu / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("0", (0,)),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("3,1-2,2", (1, 2, 3)),
        (" 1 , 2 ", (1, 2)),
    ],
)
def test_lists(text, cpus):
    """The kernel's form, sorted and each once."""
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1,,2", "1-", "-1", "3-1", "1-2-3", "0-99999999999", "70000", "1;2", "٣", "0x1"]
)
def test_wrong_lists_name_the_part(text):
    """Each mistake is a ConfigError, at once, without taking memory."""
    with pytest.raises(ConfigError) as caught:
        parse_cpu_list(text, what="--cpus")
    assert caught.value.message.startswith("--cpus: ")


@given(st.sets(st.integers(0, 500), max_size=40))
def test_a_list_survives_being_written(cpus):
    """What format_cpu_list writes is read back the same."""
    assert parse_cpu_list(format_cpu_list(tuple(cpus))) == tuple(sorted(cpus))


@given(st.text(max_size=40) | st.from_regex(r"[0-9,\- ]{0,20}", fullmatch=True))
def test_any_text_is_a_list_or_a_config_error(text):
    """No text gets anything else."""
    try:
        cpus = parse_cpu_list(text)
    except ConfigError:
        return
    assert list(cpus) == sorted(set(cpus))


def test_the_default_leaves_quiet_cpus_out(tmp_path):
    """CPUs of isolcpus and nohz_full are not sampled unless asked for."""
    sysfs = machine(tmp_path, online="0-7", isolated="2\n", nohz_full="3-4\n")
    assert select_cpus(sysfs=sysfs) == (0, 1, 5, 6, 7)
    assert select_cpus("2-3", sysfs=sysfs) == (2, 3)


@pytest.mark.parametrize("quiet", ["\n", "(null)\n", ""])
def test_no_quiet_cpus(tmp_path, quiet):
    """What the kernel writes when there are none."""
    assert select_cpus(sysfs=machine(tmp_path, online="0,2", nohz_full=quiet)) == (0, 2)


def test_all_cpus_quiet_means_all(tmp_path):
    """An empty set of CPUs would sample nothing."""
    assert select_cpus(sysfs=machine(tmp_path, online="0-1", isolated="0-1")) == (0, 1)


def test_an_offline_cpu_is_named(tmp_path):
    """The message says which are not online and which are."""
    sysfs = machine(tmp_path, online="0-3,6")
    with pytest.raises(ConfigError) as caught:
        select_cpus("2-6,9", sysfs=sysfs)
    assert "0-3,6" in caught.value.message
    assert "4-5,9" in caught.value.message


@pytest.mark.parametrize("online", [None, "", "x"])
def test_a_sysfs_that_does_not_say(tmp_path, online):
    """Missing, empty or broken: a ConfigError that names the file."""
    sysfs = machine(tmp_path, **({} if online is None else {"online": online}))
    with pytest.raises(ConfigError, match="devices/system/cpu/online"):
        online_cpus(sysfs=sysfs)


def test_this_machine():
    """The list agrees with what the C library counts."""
    assert len(online_cpus()) == os.sysconf("SC_NPROCESSORS_ONLN")
