"""Settings of a running controller.

Owns the current configuration, and the file for online changes. A change is written to the file, then published.
Threads: the event loop's; files are written in a worker.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from rmqpy.config import files, properties
from rmqpy.config.controller import ControllerConfig, served
from rmqpy.errors import ConfigError


class Protected(Exception):
    """A change of a key that cannot be changed online."""


class Configuration:
    """One configuration and its successors; `published` is called with each of them."""

    def __init__(
        self, config: ControllerConfig, published: Callable[[ControllerConfig], None] = lambda config: None
    ) -> None:
        self._current = config
        self._published = published
        self._turn = asyncio.Lock()

    @property
    def current(self) -> ControllerConfig:
        """The current configuration."""
        return self._current

    def text(self) -> str:
        """Return every setting as properties text."""
        return properties.written(self._current.write())

    async def change(self, text: str) -> None:
        """Set the keys of a properties text. Nothing has changed if this raises.

        Raises `Protected`, `ConfigError` for an unknown key, a bad value or a key that needs a restart, `OSError`.
        """
        try:
            given = properties.parse_request(text)
        except properties.PropertiesError as error:
            raise ConfigError(f"the settings are not valid properties text: {error}") from None
        known = served()
        async with self._turn:
            for wire in given:
                if self._current.protects(wire):
                    raise Protected("Can not update config in black list.")
                if wire not in known:
                    raise ConfigError(f"{wire} is not a setting of this controller")
            fresh = self._current.change(given)
            if given and fresh.store_path:
                await asyncio.to_thread(_store, Path(fresh.store_path), given)
            self._current = fresh
            self._published(fresh)


def _store(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in the file and keep its other lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    try:
        changed = properties.replace(content, changes)
    except ValueError as error:
        raise ConfigError(f"cannot write {path}: {error}") from None
    files.save_bytes(path, changed, has_backup=True)
