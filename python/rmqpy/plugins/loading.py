"""Loading of plug-ins: names, entry points, checks of the interface.

A plug-in that cannot be loaded fails the start, before the broker opens its store: half of the wanted plug-ins would be
a surprise later. Imports the named plug-ins only. Blocks; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqpy.config import home
from rmqpy.config.plugins import PluginsConfig
from rmqpy.errors import ConfigError
from rmqpy.plugins import API_VERSION, LogFollower, Observer, Plugin, Policy

#: The group of entry points.
ENTRY_POINTS: Final = "rmqpy.plugins"
#: The most seconds that one policy, and all policies together, may take: parked requests end after 3 s.
_LIMIT_SECONDS_MAX: Final = 2.0
_LIMITS_SECONDS_MAX: Final = 2.5
_BEHIND_BYTES: Final = range(1 << 20, (1 << 30) + 1)
_BATCH: Final = range(1, 10_001)
_TOPICS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A plug-in that can be opened."""

    name: str
    plugin: Plugin
    #: The distribution that has it, with its version.
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`observer`, `follower` or `policy`."""
        return next(name for name, kind in _KINDS.items() if isinstance(self.plugin, kind))


_KINDS: Final[Mapping[str, type[Plugin]]] = {"observer": Observer, "follower": LogFollower, "policy": Policy}


def load(config: PluginsConfig) -> list[LoadedPlugin]:
    """Load the plug-ins of a configuration, in its order. Raises `ConfigError` naming the plug-in and the reason."""
    if not config.names:
        return []
    options = _options(config)
    loaded = [_load(name, options.get(name, {})) for name in config.names]
    limits = sum(each.plugin.time_limit for each in loaded if isinstance(each.plugin, Policy))
    if limits > _LIMITS_SECONDS_MAX:
        raise ConfigError(
            f"plugins: the time limits of the policies add up to {limits:g} s, and clients wait for "
            f"{_LIMITS_SECONDS_MAX:g} s",
            hint="load fewer policies, or lower their time_limit",
        )
    return loaded


def _options(config: PluginsConfig) -> Mapping[str, Mapping[str, Any]]:
    if not config.file:
        return {}
    import tomllib

    path = Path(home.expand(config.file))
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"pluginsFile={path}: {error}", hint="correct it, or remove the setting") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"pluginsFile={path}: {name} is not in a table; begin it with [PLUGIN]")
    return tables


def _load(name: str, options: Mapping[str, Any]) -> LoadedPlugin:
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINTS)
    matching = [each for each in found if each.name == name]
    if not matching:
        installed = ", ".join(sorted({each.name for each in found})) or "none"
        raise ConfigError(
            f"plugins: no installed distribution has a plug-in {name!r}; installed plug-ins: {installed}",
            hint=f"install it into the environment of the broker, or remove {name} from the setting plugins",
        )
    if len(matching) > 1:
        sources = " and ".join(sorted(each.dist.name if each.dist else each.value for each in matching))
        raise ConfigError(f"plugins: {sources} both have a plug-in {name!r}", hint="uninstall one of them")
    entry = matching[0]
    source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
    try:
        kind = entry.load()
    # A module may raise anything when it is imported.
    except Exception as error:
        raise ConfigError(
            f"plug-in {name} of {source} cannot be imported: {type(error).__name__}: {error}",
            hint=f"correct {entry.value}, or remove {name} from the setting plugins",
        ) from error
    _check(name, source, kind)
    try:
        plugin = kind()
    except Exception as error:
        raise ConfigError(f"plug-in {name} of {source}: {type(error).__name__}: {error}") from error
    return LoadedPlugin(name, plugin, source, options)


def _check(name: str, source: str, kind: Any) -> None:
    """Raise `ConfigError` for a class that is not a plug-in of this interface."""
    if not (isinstance(kind, type) and issubclass(kind, Plugin)):
        raise ConfigError(
            f"plug-in {name} of {source} is not a class derived from Observer, LogFollower or Policy of rmqpy.plugins"
        )
    version = getattr(kind, "api_version", None)
    if version != API_VERSION:
        needs = (
            "does not set api_version"
            if version is None
            else f"needs version {version} of the plug-in interface"
        )
        raise ConfigError(
            f"plug-in {name} of {source} {needs}, and this broker has version {API_VERSION}",
            hint=f"install a release of {source.partition(' ')[0]} for version {API_VERSION}, or another rmqpy",
        )
    kinds = [each for each in _KINDS.values() if issubclass(kind, each)]
    if len(kinds) != 1:
        raise ConfigError(
            f"plug-in {name} of {source} must derive from exactly one of Observer, LogFollower and Policy; use an "
            "entry point for each"
        )
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise ConfigError(f"plug-in {name} of {source} does not define {' and '.join(missing)}")
    if reason := _fault(kind):
        raise ConfigError(f"plug-in {name} of {source}: {reason}")


def _fault(kind: type[Plugin]) -> str | None:
    """Return the first wrong declaration of a plug-in, or `None`."""
    if issubclass(kind, Observer | LogFollower):
        topics: Any = kind.topics
        if topics is not None and (isinstance(topics, str) or not 0 < len(topics) <= _TOPICS_MAX):
            return f"topics must be None, or a collection of 1 to {_TOPICS_MAX} names"
    if issubclass(kind, Observer) and kind.behind_bytes not in _BEHIND_BYTES:
        return f"behind_bytes={kind.behind_bytes}: must be from {_BEHIND_BYTES[0]} to {_BEHIND_BYTES[-1]}"
    if issubclass(kind, LogFollower):
        if kind.begins not in ("oldest", "newest"):
            return f"begins={kind.begins!r}: must be 'oldest' or 'newest'"
        if kind.batch not in _BATCH:
            return f"batch={kind.batch}: must be from {_BATCH[0]} to {_BATCH[-1]}"
    if issubclass(kind, Policy):
        if getattr(kind, "on_failure", None) not in ("refuse", "allow"):
            return "on_failure must be 'refuse' or 'allow'"
        if not 0 < kind.time_limit <= _LIMIT_SECONDS_MAX:
            return (
                f"time_limit={kind.time_limit:g}: must be above 0, and at most {_LIMIT_SECONDS_MAX:g} seconds"
            )
    return None
