"""The shipped setting files are the structs' defaults, every option in them."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

from opd.config import Config, load
from opd.config.reference import render
from opd.config.settings import SECTIONS

ETC = Path(__file__).parents[2] / "etc" / "opd"
ENVIRON = {"RUNTIME_DIRECTORY": "/run/opd", "STATE_DIRECTORY": "/var/lib/opd"}


def test_it_is_what_the_structs_render():
    """The file is generated: python -m opd.config.reference > etc/opd/opd.toml."""
    assert (ETC / "opd.toml").read_text() == render()


def test_it_loads_as_it_is():
    """As shipped it changes nothing."""
    config = load(None, str(ETC / "opd.toml"), environ=ENVIRON)
    assert (config.sampling, config.store) == (Config().sampling, Config().store)
    assert config.origin.sources == {}


def test_uncommented_every_option_is_at_its_default(tmp_path):
    """Each line without its # is valid, and the value is the struct's default."""
    text = re.sub(r"(?m)^#(?=[a-z])", "", (ETC / "opd.toml").read_text())
    table = tomllib.loads(text)
    assert {name: list(keys) for name, keys in table.items()} == {
        name: list(struct.__struct_fields__) for name, struct in SECTIONS.items()
    }
    path = tmp_path / "opd.toml"
    path.write_text(text)
    config = load(None, str(path), environ=ENVIRON)
    assert (config.sampling, config.store) == (Config().sampling, Config().store)
    assert config.daemon.interval == Config().daemon.interval


def test_every_option_is_explained():
    """Each option has a comment right above it."""
    lines = (ETC / "opd.toml").read_text().splitlines()
    for above, line in pairwise(lines):
        if re.match("#[a-z_]+ = ", line):
            assert above.startswith("# "), line


def test_the_drop_in_example_is_valid(tmp_path):
    """What conf.d/README shows can be used."""
    example = re.search(r"(?m)(^    .*\n)+", (ETC / "conf.d" / "README").read_text())[0]
    path = tmp_path / "opd.toml"
    path.write_text(re.sub("(?m)^    ", "", example))
    assert load(None, str(path), environ=ENVIRON).sampling.events == ("cycles:p:499hz",)
