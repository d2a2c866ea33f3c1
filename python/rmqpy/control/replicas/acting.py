"""Acting master: what the slave with the smallest id does while its master is gone.

Consumers are shown it as their master by the name servers, and read, commit and lock queues here. What is due goes to
other brokers where that is wanted (`escape`).

Owns whether this broker acts. Invariants: it acts only while no name server that answers knows a master or a slave
with a smaller id, and its log has no connection to the master; when a master says that it comes, acting has ended,
and how far it has got is on the disk, before that is answered. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqpy.control.replicas.acting_duties import ActingDuties
from rmqpy.control.replicas.members import Group
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.errors import StoreError
from rmqpy.protocol.requests.routes import MASTER_ID

log = logging.getLogger(__name__)

#: A master that has said that it comes has so long until a name server knows it.
HOLD_SECONDS: Final = 15.0


class ActingMaster:
    """Whether a slave acts for its master."""

    def __init__(
        self,
        broker_id: int,
        role: BrokerRole,
        duties: ActingDuties | None,
        has_log: Callable[[], bool],
        elapsed: Callable[[], float],
    ) -> None:
        """Without `duties` what is due waits for the master. `has_log`: whether the log follows the master's now.
        `elapsed`: seconds on a clock that nobody sets."""
        self._broker_id = broker_id
        self._role = role
        self._duties = duties
        self._has_log = has_log
        self._elapsed = elapsed
        self._held_until = 0.0
        self._lock = asyncio.Lock()

    async def consider(self, members: Group | None) -> None:
        """Begin or end, by who lives now; nothing where nobody knows."""
        if members is None:
            return
        acts = (
            min(members, default=MASTER_ID) == self._broker_id
            and not self._has_log()
            and self._elapsed() >= self._held_until
        )
        async with self._lock:
            if acts and not self._role.is_acting:
                await self._begin()
            elif not acts and self._role.is_acting:
                await self._end()

    async def master_comes(self) -> None:
        """End for the master, and do not begin again until it had time to come."""
        self._held_until = self._elapsed() + HOLD_SECONDS
        async with self._lock:
            if self._role.is_acting:
                await self._end()

    async def stop(self) -> None:
        """End where it acts: the broker stops. Idempotent."""
        async with self._lock:
            if self._role.is_acting:
                await self._end()

    async def _begin(self) -> None:
        log.warning("the master is gone: this broker acts for it")
        self._role.acts(True)
        if self._duties is None:
            return
        try:
            await self._duties.begin()
        except (StoreError, OSError) as error:
            log.error("what is due is not delivered: %s", error)

    async def _end(self) -> None:
        if self._duties is not None:
            try:
                await self._duties.end()
            except (StoreError, OSError) as error:
                log.error("how far deliveries have got is not saved, and some will be made twice: %s", error)
        self._role.acts(False)
        log.warning("this broker does not act for its master any more")
