"""Readers of a table that wait for its changes: slaves of ours, each with the version it has.

A change is answered when those that wait have it, too, so that what a client was told exists also at the broker that
goes on. Invariant: nobody waits longer than `REACH_SECONDS` for a reader; one that is late is not waited for until it
has caught up. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: How long a change waits for its readers.
REACH_SECONDS: Final = 2.5
#: As many as a master has slaves at most; what more connections ask nobody waits for.
READERS_MAX: Final = 64


class TableReaders:
    """Connections that wait, and what they have."""

    def __init__(self) -> None:
        self._versions: dict[int, DataVersion] = {}
        self._moved = asyncio.Event()

    def has(self, connection: int, version: DataVersion, *, is_newest: bool) -> None:
        """A reader waits for another version than this one, which it has. It begins to count with the newest."""
        if connection in self._versions or (is_newest and len(self._versions) < READERS_MAX):
            self._versions[connection] = version
            self._moved.set()

    def forget(self, connection: int) -> None:
        """A reader is gone."""
        if self._versions.pop(connection, None) is not None:
            self._moved.set()

    async def reached(self, version: DataVersion) -> None:
        """Until the readers there are have this version or a later one."""
        asked = set(self._versions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACH_SECONDS):
                while late := [
                    one for one in asked & self._versions.keys() if not self._is_there(one, version)
                ]:
                    self._moved.clear()
                    await self._moved.wait()
        for connection in late:
            log.warning("a slave has not taken a change over in time; changes do not wait for it now")
            self.forget(connection)

    def _is_there(self, connection: int, version: DataVersion) -> bool:
        has = self._versions[connection]
        return (has.state_version, has.counter) >= (version.state_version, version.counter)
