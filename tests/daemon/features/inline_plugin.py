"""A plugin made in a test: a feature with one event, hooks by name, and what was called."""

from __future__ import annotations

from array import array

from opd.features.asked import Activation
from opd.features.checks import check_features
from opd.features.declared import Column, Event, Feature, Options
from opd.features.hookspecs import hookimpl
from opd.features.plugins import Plugin
from opd.sampling.window import Window

EVENT = Event(
    name="RECORD",
    number=7,
    summary="a record",
    unit="bytes",
    columns=(
        Column(name="one", unit="count", summary="the first"),
        Column(name="two", unit="bytes", summary="the second"),
    ),
)


class Log:
    """Keeps lines."""

    def __init__(self):
        self.lines = []

    def info(self, event, **values):
        """Keep it."""
        self.lines.append((event, values))

    warning = error = debug = info

    def of(self, event):
        """The values of its lines."""
        return [values for word, values in self.lines if word == event]


class Inline:
    """The module of a plugin: set ``hook_NAME`` functions; all calls are in ``calls``."""

    def __init__(self, feature=None):
        self.feature = feature or Feature(name="inline", summary="of a test", events=(EVENT,))
        self.calls = []
        self.does = {}

    def _call(self, hook, *arguments):
        self.calls.append((hook, *arguments))
        return self.does[hook](*arguments) if hook in self.does else None

    @hookimpl
    def opd_ext_features(self):
        """Give the one."""
        return [self.feature]

    @hookimpl
    def opd_ext_init(self, feature, options, context):
        """Note it."""
        return self._call("init", feature, options, context)

    @hookimpl
    def opd_ext_deinit(self, feature):
        """Note it."""
        return self._call("deinit", feature)

    @hookimpl
    def opd_ext_print_stats(self, feature):
        """Note it."""
        return self._call("print_stats", feature)

    @hookimpl
    def opd_sfile_create(self, sfile):
        """Note it."""
        return self._call("create", sfile)

    @hookimpl
    def opd_sfile_dup(self, to, source):
        """Note it."""
        return self._call("dup", to, source)

    @hookimpl
    def opd_sfile_sync(self, sfile, window):
        """Note it."""
        return self._call("sync", sfile, window)

    @hookimpl
    def opd_sfile_close(self, sfile):
        """Note it."""
        return self._call("close", sfile)


def plugin_of(target, name="inline"):
    """The plugin of an object with hooks, loaded."""
    plugin = Plugin(name, "inline_plugin:_target", "test 1.0")
    globals()["_target"] = target
    plugin.features = check_features(plugin.load())
    plugin.loaded = True
    return plugin


def activation_of(target, options=None):
    """Its one feature, asked for."""
    plugin = plugin_of(target)
    return Activation(plugin, plugin.features[0], options or Options())


def empty_window(sequence=0, start_ns=1_700_000_000_000_000_000):
    """A window without samples."""
    return Window(
        sequence=sequence,
        start_ns=start_ns,
        end_ns=start_ns + 10_000_000_000,
        rows=0,
        row_sfile=b"",
        row_stack=b"",
        row_hits=b"",
        row_weight=b"",
        sfiles=0,
        sfile_event=b"",
        sfile_mode=b"",
        sfile_tgid=b"",
        sfile_tid=b"",
        sfile_cpu=b"",
        sfile_image=b"",
        sfile_comm=b"",
        stacks=0,
        stack_start=array("I", [0]).tobytes(),
        stack_flags=b"",
        frame_image=b"",
        frame_address=b"",
        quality={"samples": 0},
    )
