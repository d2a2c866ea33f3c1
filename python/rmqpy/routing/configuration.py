"""The name server's settings while it runs.

Owns the current configuration, and the file that online changes go to. A change makes a new value, writes it down
and then publishes it whole; who reads `current` twice may see two values.

Threads: the event loop's; files are written in a worker.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rmqpy.config import files, properties
from rmqpy.config.namesrv import NameServerConfig, served
from rmqpy.errors import ConfigError


class Protected(Exception):
    """The key may not be changed online."""


class Configuration:
    """One configuration and its successors."""

    def __init__(self, config: NameServerConfig) -> None:
        self._current = config
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def current(self) -> NameServerConfig:
        """The configuration as it is now."""
        return self._current

    def text(self) -> str:
        """Every setting as properties text."""
        return properties.written(self._current.write())

    async def change(self, text: str) -> None:
        """Set the keys of a properties text. Nothing has changed when this raises.

        Raises `Protected`, `ConfigError` for an unknown key, a bad value or one that needs a restart, `OSError`.
        """
        try:
            given = properties.parse_request(text)
        except properties.PropertiesError as error:
            raise ConfigError(f"the settings are no properties text: {error}") from None
        known = served()
        async with self._turn:
            for wire in given:
                if self._current.protects(wire):
                    raise Protected(f"Can not update config in black list: {wire}")
                if wire not in known:
                    raise ConfigError(f"{wire} is not a setting of this name server")
            fresh = self._current.change(given)
            if given and fresh.store_path:
                await asyncio.to_thread(_store, Path(fresh.store_path), given)
            self._current = fresh
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float) -> None:
        """Return when a setting has changed, or after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)


def _store(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in the file and leave its other lines as they are."""
    content = path.read_bytes() if path.exists() else b""
    try:
        changed = properties.replace(content, changes)
    except ValueError as error:
        raise ConfigError(f"cannot write {path}: {error}") from None
    files.save_bytes(path, changed, has_backup=True)
