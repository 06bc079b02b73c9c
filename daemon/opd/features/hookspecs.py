"""The hooks of a plugin. Each contract: when, arguments, thread, may it block, if it raises.

What holds of all: a hook runs on a thread of its feature (``opd_ext_features``
on one of its plugin), one at a time of all, and sampling goes on beside it. It
has a budget of time (``daemon.hook_seconds``) and of memory
(``daemon.hook_mib``). One that raises, uses more than its budget or returns
what its contract does not allow is interrupted, logged with the plugin's name
and counted, and the feature is left alone for a while: 10 s after the first
failure, twice as long after each one more, at most 10 minutes. Only
``opd_ext_features`` is needed; a plugin without a hook is not asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from opd.features.context import Context
    from opd.features.declared import Feature, Options, Stats
    from opd.features.samplefile import SampleFile, SampleWindow

PROJECT = "opd"

_spec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@_spec
def opd_ext_features() -> list[Feature]:  # type: ignore[empty-body]
    """Say which features the plugin offers.

    When: once a process, when a feature is asked for that the plugin may
    offer, and for ``opd --list-features``.
    Arguments: none.
    Returns: at least one Feature; all of them are checked.
    Thread: the plugin's. May block: no, it is part of opd's start-up.
    If it raises: the plugin is broken, which is logged and listed; whoever
    asked for a feature of it by name gets exit status 78.
    """


@_spec
def opd_ext_init(feature: Feature, options: Options, context: Context) -> None:
    """Begin: register records, decoders, events, calls.

    When: before the events are opened, at the start and whenever sampling
    begins anew (SIGHUP); again after a failure, once its time is over.
    Arguments: the feature as declared, its options (of its own struct), and
    the Context, which is valid until ``opd_ext_deinit``.
    Returns: None.
    Thread: the feature's. May block: up to the budget; opd waits for it.
    If it raises: ``UnavailableError`` says that this machine cannot run the
    feature: the daemon goes on without it, or with ``--strict`` exits 78. All
    else counts as a failure.
    """


@_spec
def opd_ext_deinit(feature: Feature) -> None:
    """End: let go of everything.

    When: on every way out of a daemon that called ``opd_ext_init``, also when
    that failed: sampling ends, begins anew, or the daemon ends.
    Arguments: the feature.
    Returns: None.
    Thread: the feature's. May block: up to the budget.
    If it raises: it is logged and counted; nothing waits for it.
    """


@_spec
def opd_ext_print_stats(feature: Feature) -> Stats:  # type: ignore[empty-body]
    """Give the feature's statistics.

    When: every ``daemon.stats_interval``, at SIGUSR1, at the end, and for each
    ``stats`` that a client asks.
    Arguments: the feature.
    Returns: Stats with at most 256 numbers or short texts by name.
    Thread: the feature's. May block: no, somebody waits for the answer.
    If it raises: a failure; who asked gets what opd counted of the feature.
    """


@_spec
def opd_sfile_create(sfile: SampleFile) -> None:
    """Take note of a new sample file.

    When: a window first has samples of one of this feature's events for this
    event, process, image and mode, and what ``--separate`` keeps apart.
    Arguments: the sample file; the same one (equal, hashable) comes again.
    Returns: None.
    Thread: the feature's, after the window was cut and before it is stored.
    May block: no: all calls of a window have one budget together.
    If it raises: a failure; the file counts as not seen, and comes again.
    """


@_spec
def opd_sfile_dup(to: SampleFile, source: SampleFile) -> None:
    """Make ``to`` know what is known of ``source``.

    When: a session is saved: what goes on is a copy, and what was is kept.
    ``opd_sfile_close`` of ``source`` follows.
    Arguments: the new sample file and the one it is a copy of; they differ in
    ``session`` alone.
    Returns: None.
    Thread: the feature's. May block: no, as above.
    If it raises: a failure; ``to`` counts as not seen.
    """


@_spec
def opd_sfile_sync(sfile: SampleFile, window: SampleWindow) -> None:
    """See the rows of a sample file, and add extra columns to them.

    When: once a window for each sample file that the window has, before it is
    stored.
    Arguments: the sample file, and its rows of the window as whole columns.
    Returns: None; ``window.set_column`` adds what is to be stored.
    Thread: the feature's. May block: no, as above.
    If it raises: a failure; the window is stored without the columns of this
    and the sample files after it, and that is counted.
    """


@_spec
def opd_sfile_close(sfile: SampleFile) -> None:
    """Forget a sample file.

    When: its session ends (reset, save), it is evicted because there are too
    many, or sampling ends.
    Arguments: the sample file.
    Returns: None.
    Thread: the feature's. May block: no, as above.
    If it raises: a failure; the file is forgotten all the same.
    """


HOOKS = (
    "opd_ext_features",
    "opd_ext_init",
    "opd_ext_deinit",
    "opd_ext_print_stats",
    "opd_sfile_create",
    "opd_sfile_dup",
    "opd_sfile_sync",
    "opd_sfile_close",
)
