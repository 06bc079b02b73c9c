"""Options of a feature: texts and TOML values become what its struct says."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from opd.errors import ConfigError
from opd.features.arguments import Argument
from opd.features.declared import Feature, Options, ReplayOptions, about
from opd.features.options import Given, OptionsDeclarationError, describe, read_options, texts


class Many(ReplayOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of each kind."""

    events: Annotated[tuple[str, ...], about("Which events.")] = ("ALL",)
    count: Annotated[int, about("A period.", ge=50000, le=1048575)] = 250000
    share: Annotated[float, about("A share.", ge=0, le=1)] = 0.5
    rand: Annotated[bool, about("Random low bits.")] = True
    mode: Annotated[Literal["cycles", "ops"], about("What is counted.")] = "ops"
    level: Annotated[Literal[0, 1, 2], about("A level.")] = 0
    memory: Annotated[int, about("How much.", unit="size", ge=1)] = 1 << 20
    sizes: Annotated[tuple[int, ...], about("Several.", unit="size")] = ()
    name: Annotated[str, about("A name.")] = ""
    exclusive = (("memory", "share"),)

    def __post_init__(self):
        """Refuse what types cannot."""
        if "NONE" in self.events:
            raise ValueError("no event 'NONE'; did you mean ALL?")


FEATURE = Feature(name="many", summary="one of each", options=Many)


def read(**given):
    """Options of texts."""
    return read_options(
        FEATURE, texts(tuple(Argument(key, text, "-x many") for key, text in given.items()))
    )


def read_toml(**given):
    """Options of TOML values."""
    return read_options(
        FEATURE,
        {
            key: Given(value, "opd.toml: [feature.many]", is_text=False)
            for key, value in given.items()
        },
    )


def test_defaults():
    """Nothing given: the struct's own."""
    assert read() == Many()


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("events", "A+B", ("A", "B")),
        ("events", "A\\+B", ("A+B",)),
        ("count", "0xffff", 65535),
        ("share", "0.25", 0.25),
        ("rand", "off", False),
        ("rand", "YES", True),
        ("mode", "cycles", "cycles"),
        ("level", "2", 2),
        ("memory", "256m", 256 << 20),
        ("memory", "4K", 4096),
        ("memory", "7", 7),
        ("sizes", "1k+2g", (1024, 2 << 30)),
        ("name", "a\\,b=c\\\\", "a,b=c\\"),
        ("name", "a+b", "a+b"),
        ("name", "", ""),
    ],
)
def test_texts(key, text, value):
    """Each kind of option reads its own."""
    assert getattr(read(**{key: text}), key) == value


@pytest.mark.parametrize(
    ("key", "text", "part"),
    [
        ("events", "A+", "an item is empty"),
        ("count", "many", "expected a whole number from 50000 to 1048575, got 'many'"),
        ("count", "49999", "got '49999'"),
        ("count", "1048576", "to 1048575, got '1048576'"),
        ("count", "1.5", "got '1.5'"),
        ("share", "1.5", "expected a number from 0 to 1"),
        ("share", "nan", "got 'nan'"),
        ("rand", "maybe", "expected true or false, got 'maybe'"),
        ("mode", "cycle", "expected cycles or ops, got 'cycle': did you mean cycles?"),
        ("level", "3", "expected 0 or 1 or 2"),
        ("memory", "1t", "a size such as 64k"),
        ("memory", "k", "a size such as 64k"),
        ("name", "x\\", "escapes nothing"),
        ("cuont", "1", "no option 'cuont'; did you mean count?; valid: replay events count"),
        ("events", "NONE", "no event 'NONE'; did you mean ALL?"),
    ],
)
def test_a_wrong_text_is_told(key, text, part):
    """The token, what was expected, and the closest valid one."""
    with pytest.raises(ConfigError) as error:
        read(**{key: text})
    assert part in str(error.value)
    assert "-x many" in str(error.value)


def test_all_mistakes_at_once():
    """One line each."""
    with pytest.raises(ConfigError) as error:
        read(count="x", rand="y", nothing="z")
    assert len(error.value.message.splitlines()) == 3


def test_of_a_pair_one_is_given():
    """A default that is given counts; the second as it is by default is not given."""
    for given in ({"memory": "1m", "share": "0.1"}, {"memory": "2m", "share": "0"}):
        with pytest.raises(ConfigError, match="-x many: memory and share: give one of them, got"):
            read(**given)
    assert read(memory="2m", share="0.5").memory == 2 << 20
    assert read(share="0.1").share == 0.1
    with pytest.raises(ConfigError, match=r"feature.many.: memory and share: give one"):
        read_toml(memory=1 << 20, share=0.25)


def test_toml_values():
    """Files have types of their own; a size may be text there."""
    options = read_toml(events=["A", "B"], count=60000, rand=False, memory="2m", mode="cycles")
    assert options.events == ("A", "B")
    assert (options.count, options.rand, options.memory) == (60000, False, 2 << 20)


@pytest.mark.parametrize(
    ("key", "value"),
    [("count", "60000"), ("count", True), ("events", "A"), ("rand", 1), ("mode", "x"), ("name", 3)],
)
def test_toml_values_of_another_type(key, value):
    """No guessing: what a file says is what it is."""
    with pytest.raises(ConfigError, match=f"{key}: expected"):
        read_toml(**{key: value})


def test_descriptions_are_complete():
    """Each option's type in words, default as it would be typed, and meaning."""
    listed = {one.name: one for one in describe(Many)}
    assert listed["replay"].default == ""
    assert listed["events"][1:] == ("a list by + of: text", "ALL", "Which events.")
    assert listed["count"][1:3] == ("a whole number from 50000 to 1048575", "250000")
    assert listed["rand"][1:3] == ("true or false", "true")
    assert listed["level"][1] == "0 or 1 or 2"
    assert all(one.meaning for one in listed.values())


class NoMeaning(Options, frozen=True, kw_only=True):
    """An option that nobody explains."""

    bare: int = 1


class NoDefault(Options, frozen=True, kw_only=True):
    """An option that must be given."""

    must: Annotated[int, about("Needed.")]


class OddType(Options, frozen=True, kw_only=True):
    """An option that no text can be."""

    odd: Annotated[dict, about("Odd.")] = {}  # noqa: RUF012 - it is refused


@pytest.mark.parametrize("struct", [NoMeaning, NoDefault, OddType])
def test_a_struct_that_cannot_be_used_says_so(struct):
    """That is the plugin's mistake, not the user's."""
    with pytest.raises(OptionsDeclarationError):
        read_options(Feature(name="x", summary="x", options=struct), {})
