"""A plugin whose features each do something wrong in one hook: named bad_HOW_HOOK."""

from __future__ import annotations

from opd.plugin import Column, Event, Feature, Stats, hookimpl

HOWS = ("raise", "hang", "nonsense", "allocate")
HOOKS = (
    "unavailable",
    "opd_ext_init",
    "each_window",
    "opd_ext_print_stats",
    "opd_sfile_create",
    "opd_sfile_dup",
    "opd_sfile_sync",
    "opd_sfile_close",
    "opd_ext_deinit",
)


def misbehave(how):
    """Do it; only nonsense returns."""
    if how == "raise":
        raise RuntimeError("on purpose")
    kept = []
    while how in ("hang", "allocate"):
        kept.append(bytearray(1 << 20) if how == "allocate" else None)
        kept = kept[-1:] if how == "hang" else kept
    return 42


def at(hook, name):
    """Misbehave if this is the hook of the feature or event called so."""
    _bad, how, where = name.lower().split("_", 2)
    return misbehave(how) if where == hook else None


def _feature(how, hook):
    name = f"bad_{how}_{hook}"
    return Feature(
        name=name,
        summary=f"does {how} in {hook}",
        events=(
            Event(
                name=name.upper(),
                number=0,
                summary="a record a window",
                columns=(Column(name="sum", unit="count", summary="one a row"),),
            ),
        ),
        unavailable=lambda: at("unavailable", name) or "",
    )


FEATURES = [_feature(how, hook) for how in HOWS for hook in HOOKS]


@hookimpl
def opd_ext_features():
    """All of them."""
    return FEATURES


@hookimpl
def opd_ext_init(feature, context):
    """Feed in a record a window."""

    def each(_start_ns, _end_ns):
        context.record(feature.name.upper(), 1, comm="bad")
        return at("each_window", feature.name)

    context.each_window(each)
    return at("opd_ext_init", feature.name)


@hookimpl
def opd_ext_deinit(feature):
    """End."""
    return at("opd_ext_deinit", feature.name)


@hookimpl
def opd_ext_print_stats(feature):
    """Say that it is fine, unless it is not."""
    return at("opd_ext_print_stats", feature.name) or Stats({"fine": 1})


@hookimpl
def opd_sfile_create(sfile):
    """Take note."""
    return at("opd_sfile_create", sfile.event)


@hookimpl
def opd_sfile_dup(to, source):
    """Copy."""
    return at("opd_sfile_dup", to.event or source.event)


@hookimpl
def opd_sfile_sync(sfile, window):
    """Set the column."""
    window.set_column("sum", [1] * len(window))
    return at("opd_sfile_sync", sfile.event)


@hookimpl
def opd_sfile_close(sfile):
    """Forget."""
    return at("opd_sfile_close", sfile.event)


class Loading:
    """A plugin that is wrong before it offers anything."""

    def __init__(self, how):
        self.how = how

    @hookimpl
    def opd_ext_features(self):
        """Misbehave."""
        return misbehave(self.how)


load_raise, load_hang, load_nonsense, load_allocate = map(Loading, HOWS)


class Misspelt:
    """A plugin with a hook that opd does not have."""

    @hookimpl
    def opd_sfile_sink(self, sfile):
        """Never called."""
        del sfile


misspelt = Misspelt()
