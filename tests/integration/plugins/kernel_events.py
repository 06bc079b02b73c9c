"""Plugins that want an event of the kernel: one gets it, one does not, one breaks on it."""

from __future__ import annotations

from opd.plugin import Event, EventRequest, Feature, Stats, hookimpl

SOFTWARE, NO_SUCH_TYPE = 1, 0xFFFF
CONTEXT_SWITCHES, MIGRATIONS = 3, 4
GOOD, REFUSED, BROKEN = "kernel_good", "kernel_refused", "kernel_broken"
_seen = {}


def _feature(name):
    event = Event(name=name.upper(), number=0, summary="never")
    return Feature(name=name, summary="of a test", events=(event,))


@hookimpl
def opd_ext_features():
    """All three."""
    return [_feature(GOOD), _feature(REFUSED), _feature(BROKEN)]


@hookimpl
def opd_ext_init(feature, context):
    """Ask for context switches, or for what no kernel has."""
    kind = NO_SUCH_TYPE if feature.name == REFUSED else SOFTWARE
    # Of two software events alike, Linux 6 writes the samples of both under one id.
    config = MIGRATIONS if feature.name == BROKEN else CONTEXT_SWITCHES
    request = EventRequest(
        name=f"cs-{feature.name}", type=kind, config=config, unit="count", period=1
    )

    def opened(sampler, index, ids):
        if feature.name == BROKEN:
            raise RuntimeError("on purpose")
        _seen.update(index=index, own=ids[feature.name.upper()], open=sampler is not None)

    def refused(number):
        _seen["errno"] = number

    context.add_kernel_event(request, opened=opened, refused=refused)


@hookimpl
def opd_ext_print_stats():
    """What was told."""
    return Stats({name: int(value) for name, value in _seen.items()})
