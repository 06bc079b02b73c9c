"""Options of profile_hash: what is taken, and what a wrong one is told."""

import pytest

from opd.errors import ConfigError
from opd.features.arguments import parse_pairs
from opd.features.options import read_options, texts
from opd.features.profile_hash.hooks import opd_ext_features

[FEATURE] = opd_ext_features()


def read(text):
    """Options of a flag."""
    return read_options(FEATURE, texts(parse_pairs(text, "--ext-feature profile-hash")))


def test_left_out_it_is_the_kernel_at_the_daemons_own_event():
    """Eight pages of slots a table; of a full line of the cache one slot gives way."""
    options = read("")
    assert (options.module, options.binary, options.range, options.event) == ("", "", "", "")
    assert (options.slots * 8, options.all_ways, options.policy) == (32768, 8, "evict")


def test_ways_are_a_line_where_one_slot_gives_way_and_all_where_all_do():
    """Unless others are asked for."""
    assert read("policy=evict").all_ways == 8
    assert read("policy=flush,slots=512").all_ways == 512
    assert read("policy=none,ways=16").all_ways == 16
    assert read("ways=4").all_ways == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shift=70", ["shift", "70", "0 to 31"]),
        ("shift=-1", ["shift", "-1"]),
        ("slots=48", ["slots", "48", "no power of two", "32 or 64"]),
        ("slots=4", ["slots", "4"]),
        ("slots=4194304", ["slots", "1048576"]),
        ("ways=3", ["ways", "no power of two"]),
        ("ways=8192", ["ways", "8192", "4096"]),
        ("policy=evcit", ["policy", "evict"]),
        ("rate=1000000", ["rate", "100000"]),
        ("event=no-such", ["event", "no-such"]),
        ("event=NULL_RECORD::x", ["event"]),
        ("range=12", ["range", "START-END"]),
        ("range=a b-c", ["range"]),
        ("range=-", ["range", "START-END"]),
        ("range=_stext-", ["range", "START-END"]),
        ("range=" + "x" * 600 + "-_etext", ["range", "START-END"]),
        ("module=" + "x" * 56, ["module", "nf_tables"]),
        ("binary=/bin/true\0", ["binary", "absolute"]),
        ("module=../x", ["module", "nf_tables"]),
        ("module=[nf_tables]", ["module"]),
        ("binary=bin/true", ["binary", "absolute"]),
        ("module=nf_tables,binary=/bin/true", ["module", "binary", "both"]),
        ("shfit=2", ["shfit", "shift"]),
    ],
)
def test_a_wrong_option_is_told_what_is_right(text, words):
    """Before anything of the machine is asked: exit status 78."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.exit_status == 78
    for word in words:
        assert word in str(caught.value)
