"""Identity file: the id that a controller gave to this broker, in `brokerIdentity` of the store.

Owns that file and `brokerIdentity-temp`, which has an id that was requested but not confirmed yet, with the code of the
request. Both have Apache's format. Invariant: a crash leaves the old or the new content, so that a broker keeps its
id. Threads: the event loop's; files are read and written in a worker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy.config import files
from rmqpy.errors import ConfigError

NAME: Final = "brokerIdentity"
TEMPORARY_NAME: Final = "brokerIdentity-temp"
_SEPARATOR: Final = "#"


class AppliedId(NamedTuple):
    """A requested id, with the code that identifies the request."""

    broker_id: int
    check_code: str


class IdentityFile:
    """The id of one broker."""

    def __init__(self, folder: Path, cluster: str, name: str) -> None:
        self._path = folder / NAME
        self._temporary = folder / TEMPORARY_NAME
        self._cluster = cluster
        self._name = name
        #: `None` until a controller has confirmed an id.
        self.broker_id: int | None = None

    async def load(self) -> None:
        """Read the file. Raises `ConfigError` for the identity of another broker, or an unreadable file."""
        found = await asyncio.to_thread(self._read, self._path, 3)
        if found is None:
            return
        cluster, name, known = found
        if (cluster, name) != (self._cluster, self._name):
            raise ConfigError(
                f"{self._path} is the identity of {name} in cluster {cluster}, not of {self._name} in "
                f"{self._cluster}",
                hint="use the folder of that broker for it, or remove the file if the store is to get a new id",
            )
        self.broker_id = int(known)

    async def applied(self) -> AppliedId | None:
        """Return the id that was requested last and not confirmed."""
        found = await asyncio.to_thread(self._read, self._temporary, 4)
        if found is None or tuple(found[:2]) != (self._cluster, self._name):
            return None
        return AppliedId(int(found[2]), found[3])

    async def note_applied(self, applied: AppliedId) -> None:
        """Store an id before it is requested. Raises `OSError`."""
        line = _SEPARATOR.join((self._cluster, self._name, str(applied.broker_id), applied.check_code))
        await asyncio.to_thread(files.save, self._temporary, line)

    async def forget_applied(self) -> None:
        """Drop a refused id."""
        await asyncio.to_thread(self._temporary.unlink, missing_ok=True)

    async def confirm(self, broker_id: int) -> None:
        """Store the confirmed id. Raises `OSError`."""
        line = _SEPARATOR.join((self._cluster, self._name, str(broker_id)))
        await asyncio.to_thread(files.save, self._path, line)
        await self.forget_applied()
        self.broker_id = broker_id

    @staticmethod
    def _read(path: Path, parts: int) -> list[str] | None:
        try:
            text = path.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from None
        # The address in a check code may contain the separator's neighbours, but never the separator itself.
        found = text.split(_SEPARATOR)
        if len(found) != parts or not found[2].isdecimal():
            raise ConfigError(
                f"{path} is not a broker identity: expected cluster#broker#id",
                hint="restore it from a backup; without it the broker gets a new id",
            )
        return found
