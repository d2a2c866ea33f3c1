"""Plug-ins of one start of a broker: opened after recovery, closed before the store.

Without a plug-in named, this is empty: no thread, no file, no metric. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rmqpy._native import Offsets, Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.plugins.following import Follower
from rmqpy.control.plugins.guard import Guard
from rmqpy.control.plugins.observing import ObserverPart
from rmqpy.control.plugins.policies import Policies, PolicyPart
from rmqpy.errors import StoreError
from rmqpy.findings import Trouble
from rmqpy.plugins import Context, LogFollower, Observer, Policy
from rmqpy.plugins.loading import LoadedPlugin
from rmqpy.protocol.plugin_report import PluginState


class _Part(Protocol):
    def start(self) -> None: ...
    async def stop(self) -> None: ...


class _Reader(_Part, Protocol):
    def behind_bytes(self) -> int: ...
    def prepare(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A plug-in as metrics and reports show it."""

    guard: Guard
    #: Returns the bytes of the log that it has to read; `None` for a policy.
    behind: Callable[[], int] | None


class Plugins:
    """All plug-ins of a broker."""

    def __init__(self, loaded: Sequence[LoadedPlugin], config: BrokerConfig, folder: Path) -> None:
        """`folder` is that of the tables."""
        self._config = config
        self._folder = folder / "plugins"
        self._guards = [Guard(each, self._context(each)) for each in loaded]
        self._policies = [
            PolicyPart(guard, guard.loaded.plugin)
            for guard in self._guards
            if isinstance(guard.loaded.plugin, Policy)
        ]
        self.policies = Policies(self._policies)
        self._readers: dict[str, _Reader] = {}

    def _context(self, loaded: LoadedPlugin) -> Context:
        config = self._config
        return Context(
            name=loaded.name,
            cluster=config.cluster,
            broker=config.name,
            broker_id=config.replication.broker_id,
            folder=self._folder / loaded.name,
            options=loaded.options,
        )

    async def start(self, store: Store, offsets: Offsets) -> None:
        """Start all, after recovery and before clients connect. Raises `ConfigError` for a damaged position, and
        `StoreError` for a folder that cannot be made."""
        if not self._guards:
            return
        for guard in self._guards:
            plugin = guard.loaded.plugin
            if isinstance(plugin, LogFollower):
                self._readers[guard.name] = Follower(guard, plugin, store, self._folder)
            elif isinstance(plugin, Observer):
                self._readers[guard.name] = ObserverPart(guard, plugin, store, offsets)
        await asyncio.to_thread(self._prepare)
        for part in self._parts():
            part.start()

    def _parts(self) -> list[_Part]:
        return [*self._readers.values(), *self._policies]

    def _prepare(self) -> None:
        for guard in self._guards:
            folder = guard.context.folder
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot create {folder}: {error}", path=str(folder)) from error
        for reader in self._readers.values():
            reader.prepare()

    async def stop(self) -> None:
        """Close all, but wait for none that blocks. Idempotent."""
        parts = self._parts()
        self._readers, self._policies = {}, []
        await asyncio.gather(*(part.stop() for part in parts))

    def watched(self) -> Iterator[Watched]:
        """Yield every plug-in."""
        for guard in self._guards:
            reader = self._readers.get(guard.name)
            yield Watched(guard, None if reader is None else reader.behind_bytes)

    def troubles(self) -> Iterator[Trouble]:
        """Yield the current problems."""
        for guard in self._guards:
            if (trouble := guard.trouble(f"plug-in {guard.name} of {self._config.name}")) is not None:
                yield trouble

    def states(self) -> list[PluginState]:
        """Return the state of every plug-in, for tools."""
        return [_state(each) for each in self.watched()]


def _state(each: Watched) -> PluginState:
    guard, counts = each.guard, each.guard.counts
    facts = [f"{guard.kind} of {guard.loaded.source}"]
    if not guard.is_open:
        facts.append("not open")
    if guard.kind == "policy":
        facts.append(f"{counts.calls} calls, {counts.refusals} refusals")
    else:
        facts.append(f"{counts.messages} messages")
    if counts.skipped:
        facts.append(f"{counts.skipped} skipped")
    if each.behind is not None and (behind := each.behind()):
        facts.append(f"{behind} bytes behind")
    if counts.failures:
        facts.append(f"{counts.failures} failures")
    return PluginState(guard.name, ", ".join(facts))
