"""What paths of cgroups say of units and containers."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.sampling.labels import Label, read_label
from places import DATA

with (DATA / "cgroups" / "paths.tsv").open(encoding="utf-8") as table:
    PATHS = [tuple(row) for row in csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]

IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
NAMES = st.from_regex(r"[a-z][a-z0-9_.@:-]{0,20}", fullmatch=True)
SEGMENTS = st.one_of(
    NAMES,
    IDS,
    NAMES.map("{}.service".format),
    NAMES.map("{}.slice".format),
    st.sampled_from(("docker", "lxc", "kubepods", "machine.slice", "supervisor", "_", r"\x2d")),
    st.text(st.characters(exclude_characters="/\n\0"), min_size=1, max_size=12),
)


@pytest.mark.parametrize("row", PATHS, ids=lambda row: row[0])
def test_real_paths(row):
    """Each path of the table gives what stands beside it (``-``: nothing)."""
    path, *expected = row
    assert read_label(path) == Label(*(None if word == "-" else word for word in expected))


@given(st.lists(SEGMENTS, max_size=8))
def test_any_path_is_read(segments):
    """No path fails; a runtime comes with a container; what is named stands in the path."""
    path = "/" + "/".join(segments)
    label = read_label(path)
    assert label.runtime is None or label.container is not None
    plain = path.replace(r"\x2d", "-")
    for word in (label.unit, label.slice, label.container):
        assert word is None or (word and "\n" not in word)
        if word is not None and "\\" not in path:
            assert word in plain


@given(st.lists(NAMES, max_size=3), IDS, st.lists(NAMES, max_size=2))
def test_the_container_is_the_innermost(outside, inner, inside):
    """A scope of docker names the container wherever it is, whatever is inside of it."""
    path = "/".join(["", *outside, f"docker-{inner}.scope", *inside])
    assert read_label(path)[2:] == (inner, "docker")


@given(st.from_regex(r"[A-Za-z0-9:_.-]{1,30}", fullmatch=True))
def test_what_systemd_escapes_is_undone(name):
    """A unit's name comes back from the path that systemd makes of it."""
    escaped = "".join(
        letter if letter.isalnum() or letter in ":_." else rf"\x{ord(letter):02x}"
        for letter in name
    )
    if escaped[0] in "_.":
        escaped = "_" + escaped
    assert read_label(f"/system.slice/{escaped}.service").unit == f"{name}.service"


def test_an_escape_never_makes_a_control_character_or_a_slash():
    """They stay as they stand."""
    assert read_label(r"/a\x0ab.service").unit == r"a\x0ab.service"
    assert read_label(r"/a\x2fb.service").unit == r"a\x2fb.service"
