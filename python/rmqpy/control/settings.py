"""The configuration in force, and its change while the broker runs.

Owns the current `BrokerConfig`. A change is an allow-list of typed, bounded keys; it makes a new value, which is
published whole, and is written into the file the broker was started with, whose other lines stay as they are.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from rmqpy.clock import Clock
from rmqpy.config import files, properties
from rmqpy.config.broker import BrokerConfig
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)


class LiveConfig:
    """The configuration every part asks for when it needs a value that may change."""

    def __init__(self, config: BrokerConfig, clock: Clock, path: Path | None = None) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._now = config
        self._path = path
        self._version = DataVersion(timestamp=clock.wall_ms())
        #: Called with the old and the new value.
        self.on_change: Callable[[BrokerConfig, BrokerConfig], None] = lambda before, after: None

    @property
    def now(self) -> BrokerConfig:
        """The value in force."""
        return self._now

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._version

    def assume(self, config: BrokerConfig) -> None:
        """Have another value from now on: the broker starts again in another role."""
        self._now = config

    async def change(self, given: Mapping[str, str]) -> None:
        """Set keys. Raises `ConfigError` for a key or value that is not allowed, `StoreError` for the file."""
        async with self._turn:
            before = self._now
            after = before.change(given)
            if after == before:
                return
            if self._path is not None:
                await asyncio.to_thread(_write, self._path, given)
            self._now = after
        self._version = self._version.next(self._clock.wall_ms())
        log.info("settings changed: %s", ", ".join(f"{key}={value}" for key, value in given.items()))
        self.on_change(before, after)


def _write(path: Path, given: Mapping[str, str]) -> None:
    try:
        files.save_bytes(path, properties.replace(path.read_bytes(), given), has_backup=True)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"cannot write {path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(path)
        ) from error
