"""Configuration: the settings of a running name server or controller.

Owns the current configuration, and the file for online changes. A change creates a new value, writes it to the file,
then publishes it; two reads of `current` may return different values.

Threads: the event loop's; files are written in a worker.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from rmqpy.config import files, properties
from rmqpy.config.keys import ProtectedKey
from rmqpy.config.servers import ChangeableConfig
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.server import Refused
from rmqpy.remoting.waiting import wait_at_most

C = TypeVar("C", bound=ChangeableConfig)


class Configuration(Generic[C]):
    """One configuration and its successors; `published` is called with each of them."""

    def __init__(self, config: C, published: Callable[[C], None] = lambda config: None) -> None:
        self._current = config
        self._published = published
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def current(self) -> C:
        """The current configuration."""
        return self._current

    def text(self) -> str:
        """Return every setting as properties text."""
        return properties.written(self._current.write())

    async def change(self, text: str) -> None:
        """Set the keys of a properties text, for a request. Nothing has changed if this raises.

        Raises `Refused` for a protected or unknown key, a bad value, or a key that needs a restart, and `OSError`.
        """
        try:
            given = properties.parse_request(text)
            async with self._turn:
                fresh = self._current.change(given)
                if given and fresh.store_path:
                    await asyncio.to_thread(_store, Path(fresh.store_path), given)
                self._current = fresh
                self._published(fresh)
        except properties.PropertiesError as error:
            remark = f"the settings are not valid properties text: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        except ProtectedKey as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float) -> None:
        """Return when a setting has changed, or after this many seconds."""
        await wait_at_most(self._changed, seconds)


def _store(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in the file and keep its other lines."""
    content = path.read_bytes() if path.exists() else b""
    try:
        changed = properties.replace(content, changes)
    except ValueError as error:
        raise ConfigError(f"cannot write {path}: {error}") from None
    files.save_bytes(path, changed, has_backup=True)
