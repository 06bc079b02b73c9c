"""One plugin: its hooks as typed calls, each run by whoever keeps it within bounds.

A pluggy manager each: one plugin's hook that raises would end the call of all
others, so none is ever called together with another's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from opd.features.checks import (
    NonsenseError,
    check_features,
    check_nothing,
    check_reason,
    check_stats,
)

if TYPE_CHECKING:
    import pluggy

    from opd.features.context import Context
    from opd.features.declared import Feature, Options, Stats
    from opd.features.samplefile import SampleFile, SampleWindow


class Plugin:
    """A module (or object) with hooks. ``package`` is what brought it, with its version.

    ``broken`` says why it cannot be used, "" when it can; ``features`` are
    those it offers, once loaded. All methods run foreign code, on the calling
    thread: see :mod:`opd.features.thread`. They raise what it raises, and
    NonsenseError for what breaks the hook's contract.
    """

    def __init__(self, name: str, target: str, package: str) -> None:
        self.name = name
        self.target = target  # module[:attribute]
        self.package = package
        self.broken = ""
        self.features: list[Feature] = []
        self.loaded = False
        self._hooks: pluggy.HookRelay | None = None
        self._has: frozenset[str] = frozenset()

    def load(self) -> list[Feature]:
        """Import it, register its hooks, ask which features it offers."""
        import pluggy

        from opd.features import hookspecs

        module, _, attribute = self.target.partition(":")
        target: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            target = getattr(target, part)
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(target, self.name)
        manager.check_pending()  # a hook by a wrong name would never be called
        has = frozenset(
            name for name in hookspecs.HOOKS if getattr(manager.hook, name).get_hookimpls()
        )
        if "opd_ext_features" not in has:
            raise NonsenseError("it has no hook opd_ext_features")
        self._hooks, self._has = manager.hook, has
        return check_features(self._one("opd_ext_features"))

    def has(self, hook: str) -> bool:
        """Whether it implements the hook."""
        return hook in self._has

    def unavailable(self, feature: Feature) -> str:
        """Why this machine cannot run the feature; "" when it can."""
        return check_reason(feature.unavailable())

    def init(self, feature: Feature, options: Options, context: Context) -> None:
        """``opd_ext_init``."""
        check_nothing(self._one("opd_ext_init", feature=feature, options=options, context=context))

    def deinit(self, feature: Feature) -> None:
        """``opd_ext_deinit``."""
        check_nothing(self._one("opd_ext_deinit", feature=feature))

    def print_stats(self, feature: Feature) -> Stats:
        """``opd_ext_print_stats``."""
        return check_stats(self._one("opd_ext_print_stats", feature=feature))

    def sfile_create(self, sfile: SampleFile) -> None:
        """``opd_sfile_create``."""
        check_nothing(self._one("opd_sfile_create", sfile=sfile))

    def sfile_dup(self, to: SampleFile, source: SampleFile) -> None:
        """``opd_sfile_dup``."""
        check_nothing(self._one("opd_sfile_dup", to=to, source=source))

    def sfile_sync(self, sfile: SampleFile, window: SampleWindow) -> None:
        """``opd_sfile_sync``."""
        check_nothing(self._one("opd_sfile_sync", sfile=sfile, window=window))

    def sfile_close(self, sfile: SampleFile) -> None:
        """``opd_sfile_close``."""
        check_nothing(self._one("opd_sfile_close", sfile=sfile))

    def _one(self, hook: str, **arguments: Any) -> Any:
        """What the hook returned; None when the plugin does not have it."""
        results = getattr(self._hooks, hook)(**arguments)
        return results[0] if results else None
