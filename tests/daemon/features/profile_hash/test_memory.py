"""Memory of profile_hash: refused before any is taken, with what would fit."""

import re

import pytest

from opd.features.declared import UnavailableError
from opd.features.profile_hash import hooks
from opd.features.profile_hash.memory import BYTES_MOST, check_memory
from opd.features.profile_hash.options import ProfileHashOptions
from opd_native.pc_hash import PcHash, Target, memory_bytes

KERNEL = Target(0xFFFFFFFF81000000, 0xFFFFFFFF82300000, 2)  # 19 MiB of code


def refused(target=KERNEL, *, cpus, **options):
    """What is said of these."""
    chosen = ProfileHashOptions(shift=target.shift, **options)
    with pytest.raises(UnavailableError) as caught:
        check_memory(chosen, target, cpus=cpus)
    return str(caught.value)


def test_defaults_fit_on_any_machine():
    """On as many CPUs as Linux can have, too."""
    check_memory(ProfileHashOptions(), KERNEL, cpus=8192)
    check_memory(ProfileHashOptions(slots=1 << 20), KERNEL, cpus=32)


def test_bytes_are_those_that_are_mapped():
    """A page of counters, or a part of one, two tables of 8 bytes a slot, a word a slot."""
    assert memory_bytes(slots=512, cpus=3, length=0) == 3 * (2 * 4096 + 4096)
    assert memory_bytes(slots=8, cpus=0, length=1 << 62) == 1 << 64
    hashed = PcHash(slots=64, ways=8, policy="evict", nodes=[-1, -1], length=9)
    hashed.add(0, [1])
    hashed.add(1, [2])
    assert hashed.stats().bytes == memory_bytes(slots=64, cpus=2, length=0)


def test_large_tables_on_many_cpus_are_refused():
    """With what was asked, what may be, and the slots that fit."""
    said = refused(cpus=512, slots=1 << 20)
    asked = memory_bytes(slots=1 << 20, cpus=512, length=KERNEL.length)
    for words in (f"{asked} bytes", f"at most {BYTES_MOST}", "slots=1048576", "512 CPUs"):
        assert words in said
    [slots] = re.findall(r"slots=(\d+) would do", said)
    check_memory(ProfileHashOptions(slots=int(slots)), KERNEL, cpus=512)
    assert "bytes of memory" in refused(cpus=512, slots=int(slots) * 2)


def test_a_large_buffer_is_refused_with_the_shift_that_fits():
    """The tables are no help there."""
    large = Target(0, (1 << 28) + 1, 0)
    said = refused(large, cpus=2)
    assert f"{4 * large.length} of the buffer" in said
    [shift] = re.findall(r"; shift=(\d+) would do", said)
    check_memory(ProfileHashOptions(), large._replace(shift=int(shift)), cpus=2)
    both = refused(Target(0, 1 << 30, 1), cpus=512, slots=1 << 20)
    [(shift, slots)] = re.findall(r"; shift=(\d+),slots=(\d+) would do", both)
    options = ProfileHashOptions(slots=int(slots))
    check_memory(options, Target(0, 1 << 30, int(shift)), cpus=512)


def test_what_no_shift_can_hold_says_so():
    """A file may claim addresses of all 64 bits."""
    assert "smaller range" in refused(Target(0, (1 << 64) - 1, 0), cpus=1)


def test_nothing_is_made_of_what_is_refused(monkeypatch):
    """Not the tables; and the file that was open is closed."""

    class Code:
        """Of a file, say."""

        target = Target(0, 1 << 40, 0)
        closed = False

        def close(self):
            """Let go."""
            self.closed = True

    code = Code()
    monkeypatch.setattr(hooks, "find_code", lambda _options: code)
    monkeypatch.setattr(hooks, "PcHash", None)  # would be called in vain
    [feature] = hooks.opd_ext_features()
    with pytest.raises(UnavailableError, match="bytes of memory"):
        hooks.opd_ext_init(feature, ProfileHashOptions(shift=0), None)
    assert code.closed
    assert hooks.running() is None
