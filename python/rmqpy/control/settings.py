"""The configuration in force, and its changes while the broker runs.

Owns the current `BrokerConfig`. An allow-list of typed, bounded keys may change. A change creates and publishes a new
value, and is written to the broker's configuration file without touching other lines. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from rmqpy.clock import Clock
from rmqpy.config import files, properties
from rmqpy.config.broker import BrokerConfig
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)


class LiveConfig:
    """The current configuration, for parts that need changeable values."""

    def __init__(self, config: BrokerConfig, clock: Clock, path: Path | None = None) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._now = config
        self._path = path
        self._version = DataVersion(timestamp=clock.wall_ms())

    @property
    def now(self) -> BrokerConfig:
        """The configuration in force."""
        return self._now

    @property
    def version(self) -> DataVersion:
        """The version, which grows with every change."""
        return self._version

    def assume(self, config: BrokerConfig) -> None:
        """Replace the configuration, because the broker restarts in another role."""
        self._now = config

    async def change(self, given: Mapping[str, str]) -> BrokerConfig | None:
        """Change keys; return the configuration before, or `None` if it is the same. Raises `ConfigError` for a key or
        value that is not allowed, `StoreError` for the file."""
        async with self._turn:
            before = self._now
            after = before.change(given)
            if after == before:
                return None
            if self._path is not None:
                await asyncio.to_thread(_write, self._path, given)
            self._now = after
        self._version = self._version.next(self._clock.wall_ms())
        log.info("settings changed: %s", ", ".join(f"{key}={value}" for key, value in given.items()))
        return before


def _write(path: Path, given: Mapping[str, str]) -> None:
    try:
        files.save_bytes(path, properties.replace(path.read_bytes(), given), has_backup=True)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"cannot write {path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(path)
        ) from error
