"""NAME[:ARGS]: the grammar, whatever is in the values."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.errors import ConfigError
from opd.features.arguments import escape, parse_ext_feature, split, unescape

KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
TEXTS = st.text(st.sampled_from(string.printable + "é\\\\,,++=="), max_size=30)


def parse(text):
    """Name and options of the one feature."""
    [asked] = parse_ext_feature(text)
    return asked.name, {one.key: one.text for one in asked.arguments}


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("null", "null", {}),
        ("null:", "null", {}),
        ("ibs-fetch:events=A+B,count=5", "ibs_fetch", {"events": "A+B", "count": "5"}),
        ("a_b:some-key=x", "a_b", {"some_key": "x"}),
        ("x:path=/a\\,b\\+c\\\\,n=1", "x", {"path": "/a\\,b\\+c\\\\", "n": "1"}),
        ("x:a=b=c:d", "x", {"a": "b=c:d"}),
        ("x:a=", "x", {"a": ""}),
    ],
)
def test_names_and_options(text, name, options):
    """- is _ in names; escapes stay until the type is known."""
    assert parse(text) == (name, options)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "got ''"),
        (":fetch", "got ''"),
        ("9x", "got '9x'"),
        ("Null", "got 'Null'"),
        ("x:a", "expected KEY=VALUE, got 'a'"),
        ("x:a=1,", "expected KEY=VALUE, got ''"),
        ("x:a=1,,b=2", "expected KEY=VALUE, got ''"),
        ("x:=1", "option's name, got ''"),
        ("x:a=1,a=2", "a is given twice"),
        ("x:a-b=1,a_b=2", "a_b is given twice"),
        ("x:a=b\\", "escapes nothing"),
        ("x:" + "a" * 70000, "longer than"),
    ],
)
def test_a_mistake_names_its_token(text, part):
    """Exit status 78 comes from ConfigError."""
    with pytest.raises(ConfigError) as error:
        parse_ext_feature(text)
    assert part in str(error.value)


@given(st.dictionaries(KEYS, st.lists(TEXTS, min_size=1, max_size=4), max_size=5))
def test_what_is_escaped_comes_back(options):
    """Whatever the items hold, they are what was escaped."""
    args = ",".join(f"{key}={'+'.join(map(escape, items))}" for key, items in options.items())
    _name, found = parse(f"x:{args}")
    assert {key: [unescape(i) for i in split(text, "+")] for key, text in found.items()} == options


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    """No other error than ConfigError."""
    asked = []
    with contextlib.suppress(ConfigError):
        asked = parse_ext_feature(text)
    assert all(one.name for one in asked)


LEGACY = "ibs:fetch:IBS_FETCH_ALL,IBS_FETCH_LATENCY:250000:0|op:IBS_OP_ALL:100000:0x07"


def test_oprofiles_spelling():
    """One argument of oprofile is two features; bits of the mask are options."""
    fetch, op = parse_ext_feature(LEGACY)
    assert (fetch.name, op.name) == ("ibs_fetch", "ibs_op")
    assert {one.key: one.text for one in fetch.arguments} == {
        "events": "IBS_FETCH_ALL+IBS_FETCH_LATENCY",
        "count": "250000",
    }
    assert {one.key: one.text for one in op.arguments} == {
        "events": "IBS_OP_ALL",
        "count": "100000",
        "cnt_ctl": "1",
        "memaccess": "1",
        "branch_target": "1",
    }


def test_oprofiles_spelling_of_one_part():
    """The | at the end that opcontrol wrote does no harm, nor do blanks before a part."""
    [op] = parse_ext_feature("ibs:  op:IBS_OP_LOAD:50000:0|")
    assert {one.key: one.text for one in op.arguments}["cnt_ctl"] == "0"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ibs", "neither fetch nor op"),
        ("ibs:|", "neither fetch nor op"),
        ("ibs:fetsh:A:1:0", "expected fetch or op, got 'fetsh'"),
        ("ibs:op:A:1", "op needs events, a count and a unit mask, got 'op:A:1'"),
        ("ibs:op::1:0", "an event without a name"),
        ("ibs:op:A,,B:1:0", "an event without a name in 'A,,B'"),
        ("ibs:op:A:x:0", "count of 1 or more, got 'x'"),
        ("ibs:op:A:0:0", "count of 1 or more, got '0'"),
        ("ibs:op:A:1:zz", "unit mask in hex, got 'zz'"),
        ("ibs:op:A:1:8", "unit mask '8': op allows 0 to 0x7"),
        ("ibs:fetch:A:1:1", "unit mask '1': fetch allows 0 to 0x0"),
        ("ibs:op:A:1:0|op:B:1:0", "op is given twice"),
    ],
)
def test_a_mistake_in_oprofiles_spelling(text, part):
    """Also there the token is named."""
    with pytest.raises(ConfigError) as error:
        parse_ext_feature(text)
    assert part in str(error.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("null:a=\udcff", "byte 0xff after 'null:a=' is no UTF-8"),
        ("n\udc80ull", "byte 0x80 after 'n' is no UTF-8"),
        ("null:" + "a" * 99 + "\udce9", "aaa' is no UTF-8"),
    ],
)
def test_bytes_that_are_no_text_are_told(text, part):
    """As they come from a command line, before anybody else meets them."""
    with pytest.raises(ConfigError) as caught:
        parse_ext_feature(text)
    assert caught.value.message.startswith("--ext-feature: ")
    assert part in caught.value.message
    assert "UTF-8" in caught.value.hint
    assert caught.value.message.isprintable()
