"""Which plugins there are, and who offers a feature. Each is loaded only when it may matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.config.nearest import did_you_mean
from opd.errors import ConfigError
from opd.features.entrypoints import EntryPoint, entry_points
from opd.features.plugins import Plugin
from opd.features.quarantine import described
from opd.features.thread import Budget, HookThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opd.features.declared import Feature

# Features that come with opd's own package: found without looking for others.
BUILTIN: dict[str, str] = {
    "calibrate": "opd.features.calibrate",
    "dto": "opd.features.dto",
    "ibs_fetch": "opd.features.ibs",
    "ibs_op": "opd.features.ibs",
    "pchase": "opd.features.pchase",
    "pft": "opd.features.pft",
    "profile_hash": "opd.features.profile_hash",
}
BUILTIN_PACKAGE = "opd"
LOAD_BUDGET = Budget(seconds=5.0, memory_bytes=256 << 20, addresses=False)


class Registry:
    """The plugins of this process; used by one thread."""

    def __init__(
        self,
        *,
        builtin: dict[str, str] | None = None,
        installed: Callable[[], Iterable[EntryPoint]] = entry_points,
        budget: Budget = LOAD_BUDGET,
    ) -> None:
        builtin = BUILTIN if builtin is None else builtin
        self._builtin = {
            target: Plugin(target.rpartition(".")[2], target, BUILTIN_PACKAGE)
            for target in dict.fromkeys(builtin.values())
        }
        self._home = {name: self._builtin[target] for name, target in builtin.items()}
        self._find_installed = installed
        self._installed: list[Plugin] | None = None
        self._budget = budget

    def find(self, name: str) -> tuple[Plugin, Feature]:
        """Who offers the feature ``name``. Raises ConfigError: nobody, or its plugin is broken.

        A plugin called like the feature is asked first, the rest only when it
        does not offer it.
        """
        if name in self._home:
            plugin = self._load(self._home[name])
            if (feature := _feature(plugin, name)) is not None:
                return plugin, feature
            raise ConfigError(f"feature {name}: plugin {plugin.name} is broken: {plugin.broken}")
        ranked = sorted(self._third_party(), key=lambda plugin: _spelled(plugin.name) != name)
        for plugin in ranked:
            if (feature := _feature(self._load(plugin), name)) is not None:
                return plugin, feature
        broken = [f"{plugin.name} ({plugin.broken})" for plugin in ranked if plugin.broken]
        hint = f"broken plugins, which may offer it: {', '.join(broken)}" if broken else None
        names = self._names()
        raise ConfigError(
            f"no feature {name!r}{did_you_mean(name, names)}; there are: {' '.join(names)}",
            hint=hint,
        )

    def plugins(self) -> list[Plugin]:
        """All plugins, loaded, or broken and saying why; opd's own first."""
        return [self._load(plugin) for plugin in [*self._builtin.values(), *self._third_party()]]

    def _names(self) -> list[str]:
        return sorted({feature.name for plugin in self.plugins() for feature in plugin.features})

    def _third_party(self) -> list[Plugin]:
        if self._installed is None:
            self._installed = [
                Plugin(point.name, point.value, point.package) for point in self._find_installed()
            ]
        return self._installed

    def _load(self, plugin: Plugin) -> Plugin:
        """Load it once, on a thread of its own."""
        if plugin.loaded:
            return plugin
        plugin.loaded = True
        thread = HookThread(f"opd-plugin-{plugin.name}")
        try:
            features = thread.call(lambda: described(plugin.load), self._budget)
        except Exception as error:  # noqa: BLE001 - foreign code
            plugin.broken = str(error)
        else:
            plugin.features = [one for one in features if self._is_free(plugin, one.name)]
        thread.close()
        return plugin

    def _is_free(self, plugin: Plugin, name: str) -> bool:
        """Whether nobody offers the name yet; else the plugin says so."""
        known = [*self._builtin.values(), *(self._installed or [])]
        owner = self._home.get(name) or next(
            (other for other in known if _feature(other, name) is not None), plugin
        )
        if owner is not plugin:
            plugin.broken = f"its feature {name} is already that of plugin {owner.name}"
        return owner is plugin


def _feature(plugin: Plugin, name: str) -> Feature | None:
    return next((one for one in plugin.features if one.name == name), None)


def _spelled(name: str) -> str:
    return name.lower().replace("-", "_")
