"""Who offers a feature: entry points on the path, built-ins, plugins that are broken."""

from __future__ import annotations

import sys

import pytest
from inline_plugin import Inline

from installed_plugins import lay_out
from opd.errors import ConfigError
from opd.features.declared import Column, Event, Feature, Options, Probe
from opd.features.entrypoints import EntryPoint, entry_points
from opd.features.plugins import Plugin
from opd.features.registry import Registry
from opd.features.thread import Budget

BUDGET = Budget(30.0, 1 << 30, addresses=False)


@pytest.fixture
def targets(monkeypatch):
    """Give a function that makes entry points of objects, by plugin name."""

    class Module:
        """Stands for an imported module."""

    module = Module()
    monkeypatch.setitem(sys.modules, "opd_registry_targets", module)

    def points(**by_name):
        for name, target in by_name.items():
            setattr(module, name, target)
        return [EntryPoint(name, f"opd_registry_targets:{name}", "pkg 2.0") for name in by_name]

    return points


def registry(points, builtin=None):
    """A registry of these alone."""
    return Registry(builtin=builtin or {}, installed=lambda: points, budget=BUDGET)


def named(name, **more):
    """A plugin with one feature."""
    return Inline(Feature(name=name, summary="of a test", **more))


def test_entry_points_are_read_from_folders(tmp_path):
    """Of every package on the path; the first of two that are alike counts."""
    first, second = tmp_path / "first", tmp_path / "second"
    lay_out(first, "Some_Plugin", {"b": "mod:thing [extra]", "a": "mod"})
    lay_out(second, "some.plugin", {"hidden": "other"})
    lay_out(second, "more", {"c": "third"})
    (second / "odd-1.0.dist-info").mkdir()
    (second / "odd-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[opd.plugins]\nx=y")
    text = "[console_scripts]\nz = z:z\n[opd.plugins]\n# no = no\n\nd=fourth\n[other]\ne = e\n"
    (second / "more-1.0.dist-info" / "entry_points.txt").write_text(text)
    (second / "old.egg-info").mkdir()
    (second / "old.egg-info" / "entry_points.txt").write_text("[opd.plugins]\nf = fifth\n")
    found = entry_points([str(first), str(second), str(tmp_path / "nowhere"), "/dev/null"])
    assert [(point.name, point.value, point.package) for point in found] == [
        ("b", "mod:thing", "Some_Plugin 1.0"),
        ("a", "mod", "Some_Plugin 1.0"),
        ("d", "fourth", "more 1.0"),
        ("f", "fifth", "old"),
    ]


def test_ours_are_found_as_importlib_finds_them():
    """The reader is our own for its speed alone."""
    from importlib.metadata import entry_points as theirs

    expected = {(point.name, point.value) for point in theirs(group="opd.plugins")}
    assert {(point.name, point.value) for point in entry_points()} == expected
    assert {"null", "skeleton"} <= {name for name, _value in expected}


def test_the_plugin_that_is_called_so_is_asked_first(targets):
    """Others are not even loaded."""
    other, wanted = named("other"), named("some_thing")
    points = targets(other=other, some_thing=wanted)
    loaded = registry(points)
    plugin, feature = loaded.find("some_thing")
    assert (plugin.name, feature.name, plugin.package) == ("some_thing", "some_thing", "pkg 2.0")
    assert [one.loaded for one in loaded._third_party()] == [False, True]


def test_a_plugin_may_offer_what_it_is_not_called(targets):
    """Then all are loaded until one has it."""
    points = targets(many=named("within"), more=named("else_where"))
    assert registry(points).find("else_where")[0].name == "more"


def test_what_nobody_offers_is_told_with_the_nearest(targets):
    """And plugins that could not be asked."""

    class Broken:
        """No hooks at all."""

    with pytest.raises(ConfigError) as error:
        registry(targets(good=named("within"), bad=Broken())).find("withn")
    assert "no feature 'withn'; did you mean within?; there are: within" in str(error.value)
    assert "bad (it has no hook opd_ext_features)" in str(error.value)


def test_a_name_belongs_to_one_plugin(targets):
    """The built-in one wins, then the first; the other says so."""
    points = targets(first=named("same"), second=named("same"), third=named("ours"))
    builtin = {"ours": "opd_registry_targets:ours"}
    targets(ours=named("ours"))
    found = registry(points, builtin)
    by_name = {plugin.name: plugin for plugin in found.plugins()}
    assert "its feature same is already that of plugin first" in by_name["second"].broken
    assert "its feature ours is already" in by_name["third"].broken
    assert by_name["second"].features == []
    assert found.find("ours")[0].package == "opd"


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("no_such_module", "ModuleNotFoundError"),
        ("sys:no_such", "AttributeError"),
        ("json", "no hook opd_ext_features"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_why(target, part):
    """It is listed as broken, and nothing is raised."""
    [plugin] = registry([EntryPoint("x", target, "pkg 1")]).plugins()
    assert part in plugin.broken
    assert plugin.features == []


class NotOptions:
    """Another struct."""


EVENT = Event(name="E", number=0, summary="x")
NONSENSE = {
    "upper": (Feature(name="Upper", summary="x"), "lower case letters"),
    "dash": (Feature(name="a-b", summary="x"), "lower case letters"),
    "silent": (Feature(name="a", summary=""), "needs a summary"),
    "options": (
        Feature(name="a", summary="x", options=NotOptions),
        "subclass of opd.plugin.Option",
    ),
    "instance": (
        Feature(name="a", summary="x", options=Options()),
        "subclass of opd.plugin.Option",
    ),
    "check": (Feature(name="a", summary="x", unavailable="no"), "must be callable"),
    "list": (Feature(name="a", summary="x", events=[EVENT]), "must be a tuple"),
    "many": (Feature(name="a", summary="x", events=(EVENT,) * 600), "at most 512"),
    "twice": (Feature(name="a", summary="x", events=(EVENT, EVENT)), "name or number is taken"),
    "foreign": (Feature(name="a", summary="x", events=("E",)), "expected an Event, got 'E'"),
    "name": (
        Feature(name="a", summary="x", events=(Event(name="E.x", number=0, summary="x"),)),
        "letters, digits, _",
    ),
    "number": (
        Feature(name="a", summary="x", events=(Event(name="E", number=-1, summary="x"),)),
        "0 or more",
    ),
    "column": (
        Feature(
            name="a",
            summary="x",
            events=(
                Event(
                    name="E",
                    number=0,
                    summary="x",
                    columns=(Column(name="comm", unit="x", summary="x"),),
                ),
            ),
        ),
        "wrong column",
    ),
    "probe": (
        Feature(
            name="a",
            summary="x",
            probes=(Probe(name="", summary="x", metrics=(), measure=print),),
        ),
        "Probe",
    ),
    "none": (None, "expected a Feature, got 'None'"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_a_declaration_that_is_wrong_is_told(targets, case):
    """Whatever a plugin declares is looked at before it is used."""
    feature, part = NONSENSE[case]
    [plugin] = registry(targets(x=Inline(feature))).plugins() if feature else [_none(targets)]
    assert part in plugin.broken


def _none(targets):
    target = Inline()
    target.feature = None
    [plugin] = registry(targets(x=target)).plugins()
    return plugin


def test_a_hook_with_an_argument_that_there_is_not_is_told(targets):
    """Pluggy checks names of hooks and arguments when it is registered."""
    from opd.features.hookspecs import hookimpl

    class Wrong:
        """Its hook asks for what nobody gives."""

        @hookimpl
        def opd_ext_deinit(self, feature, colour):
            """Never called."""

    [plugin] = registry(targets(x=Wrong())).plugins()
    assert "colour" in plugin.broken


def test_columns_cannot_be_called_like_those_of_reports():
    """The reserved words are all keys and measures that there are."""
    from opd.cli.rows import MEASURES
    from opd.features.checks import RESERVED
    from opd.store.keys import KEYS

    assert {*KEYS, *MEASURES, "time"} == RESERVED


def test_a_plugin_without_a_hook_has_it_answered_for():
    """Only opd_ext_features is needed."""
    from opd.features.hookspecs import hookimpl

    class Least:
        """The least plugin."""

        @hookimpl
        def opd_ext_features(self):
            """Offer one."""
            return [Feature(name="least", summary="x")]

    sys.modules["opd_registry_least"] = Least()
    try:
        plugin = Plugin("least", "opd_registry_least", "")
        [feature] = plugin.load()
    finally:
        del sys.modules["opd_registry_least"]
    assert plugin.has("opd_ext_features")
    assert not plugin.has("opd_sfile_sync")
    plugin.init(feature, Options(), None)
    plugin.deinit(feature)
    assert plugin.unavailable(feature) == ""
