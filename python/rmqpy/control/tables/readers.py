"""Readers of table changes: our slaves without a controller, each with its version.

A change is acknowledged when the waiting readers have it, so that a successor of this broker has it, too.
Invariant: no change waits for a reader longer than `REACH_SECONDS`; a late reader is skipped until it has caught up.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: The longest time that a change waits for its readers.
REACH_SECONDS: Final = 2.5
#: The most readers, as many as a master's slaves; further ones are ignored.
READERS_MAX: Final = 64


class TableReaders:
    """The waiting connections with their versions."""

    def __init__(self) -> None:
        self._versions: dict[int, DataVersion] = {}
        self._moved = asyncio.Event()

    def has(self, connection: int, version: DataVersion, *, is_newest: bool) -> None:
        """Note that a reader waits with this version. It counts only once it has the newest one."""
        if connection in self._versions or (is_newest and len(self._versions) < READERS_MAX):
            self._versions[connection] = version
            self._moved.set()

    def forget(self, connection: int) -> None:
        """Remove a reader."""
        if self._versions.pop(connection, None) is not None:
            self._moved.set()

    async def reached(self, version: DataVersion) -> None:
        """Wait until all counting readers have this version or a later one."""
        asked = set(self._versions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACH_SECONDS):
                while late := [
                    one
                    for one in asked & self._versions.keys()
                    if not has_version(self._versions[one], version)
                ]:
                    self._moved.clear()
                    await self._moved.wait()
        for connection in late:
            log.warning("a slave is slow to copy a change; changes no longer wait for it")
            self.forget(connection)


def has_version(has: DataVersion, version: DataVersion) -> bool:
    """Return whether a table of the first version has the changes of the second one."""
    return (has.state_version, has.counter) >= (version.state_version, version.counter)
