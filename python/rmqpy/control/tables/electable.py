"""Electable replicas: the replicas that a controller may elect, and that must have a change before it is acknowledged.

A replica has a table once it asks for the next change of it. It joins the replicas in sync only after that.
Invariant: no change waits longer than `REACH_SECONDS` for a replica. A change that a replica lacks by then is not
acknowledged: it is refused until the replica has it, or is not in sync any more.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rmqpy.control.tables.readers import REACH_SECONDS, READERS_MAX, has_version
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused
from rmqpy.remoting.waiting import wait_at_most

#: The place of replicas that the controller may elect until it has this master's set.
NOT_REPORTED: Final = -1
#: The most earlier versions by which a replica is recognized as a reader of this table.
RECENT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Reader:
    """The connection of a replica, and the version that it has."""

    connection: int
    version: DataVersion


@dataclass(frozen=True, slots=True)
class _Late:
    """The first version that a replica lacks, and since when it is awaited."""

    version: DataVersion
    since: float


class ElectableReplicas:
    """The replicas of one table."""

    def __init__(self, version: Callable[[], DataVersion]) -> None:
        """`version` returns that of the table."""
        self._version = version
        self._ids: frozenset[int] = frozenset()
        self._is_reported = False
        self._readers: dict[int, _Reader] = {}
        self._late: dict[int, _Late] = {}
        #: Versions that changes have waited for.
        self._recent: deque[DataVersion] = deque(maxlen=RECENT_MAX)
        self._moved = asyncio.Event()

    def require(self, ids: Iterable[int], *, is_reported: bool) -> None:
        """Set the replicas that changes wait for. Until the set is reported, the controller may elect others, and no
        change is acknowledged. A replica that is left out and lacks a change counts only once it reads it."""
        before, version = self._ids, self._version()
        self._ids, self._is_reported = frozenset(ids), is_reported
        for gone in [one for one in before - self._ids if self._lacks(one, version)]:
            self._readers.pop(gone, None)
        for gone in self._late.keys() - self._awaited():
            del self._late[gone]
        self._moved.set()

    def has(self, replica: int, connection: int, version: DataVersion) -> None:
        """Note that a replica waits with this version. It counts only once it has one of this table: the copy of an
        earlier master may have others with larger numbers."""
        known = self._readers.get(replica)
        if known is None or known.connection != connection:
            is_own = version == self._version() or version in self._recent
            if not is_own or (known is None and len(self._readers) >= READERS_MAX):
                return
        self._readers[replica] = _Reader(connection, version)
        late = self._late.get(replica)
        if late is not None and has_version(version, late.version):
            del self._late[replica]
        self._moved.set()

    def forget(self, connection: int) -> None:
        """Remove the replica of a closed connection. It is still awaited."""
        for replica in [each for each, reader in self._readers.items() if reader.connection == connection]:
            del self._readers[replica]

    def is_read_by(self, replica: int) -> bool:
        """Return whether a replica waits for changes, or copies one."""
        return replica in self._readers

    def follows(self, replica: int) -> bool:
        """Return whether a replica has the newest version."""
        return not self._lacks(replica, self._version())

    def late_seconds(self, replica: int) -> float:
        """Return for how long a change has waited for a replica."""
        late = self._late.get(replica)
        return 0.0 if late is None else time.monotonic() - late.since

    async def reached(self) -> None:
        """Wait until the replicas have the present version or a later one, without those that are late."""
        await self._wait(self._awaited_version(), lambda: self._ids)

    async def confirm(self) -> None:
        """Wait until the replicas have the present version or a later one.

        Raises `Refused` if one is late, or the controller does not have the set.
        """
        version = self._awaited_version()
        await self._wait(version, self._awaited)
        lacking = sorted(one for one in self._awaited() if self._lacks(one, version))
        if not lacking:
            return
        if NOT_REPORTED in lacking:
            reason = "the controller does not know yet which replicas have it"
        else:
            names = ", ".join(map(str, lacking))
            reason = f"replica {names} may be elected and does not have it yet"
        raise Refused(
            ResponseCode.SYSTEM_BUSY, f"the change is stored here, but {reason}; repeat the request"
        )

    def _awaited_version(self) -> DataVersion:
        version = self._version()
        if version not in self._recent:
            self._recent.append(version)
        return version

    async def _wait(self, version: DataVersion, ids: Callable[[], frozenset[int]]) -> None:
        while (seconds := self._remaining(version, ids())) > 0:
            self._moved.clear()
            await wait_at_most(self._moved, seconds)

    def _remaining(self, version: DataVersion, ids: frozenset[int]) -> float:
        """Return how long to wait for replicas that lack a version; 0 if none does, or they are all late."""
        now, longest = time.monotonic(), 0.0
        for one in ids:
            if self._lacks(one, version):
                late = self._late.setdefault(one, _Late(version, now))
                longest = max(longest, late.since + REACH_SECONDS - now)
        return longest

    def _awaited(self) -> frozenset[int]:
        return self._ids if self._is_reported else self._ids | {NOT_REPORTED}

    def _lacks(self, replica: int, version: DataVersion) -> bool:
        reader = self._readers.get(replica)
        return reader is None or not has_version(reader.version, version)
