"""Acting master: the slave with the smallest id serves consumers while its master is unreachable.

Name servers present it to consumers as the master, so they read, commit and lock queues here. Due messages go to other
brokers if so configured (`escape`).

Owns whether this broker acts. Invariants: it acts only while no answering name server knows a master or a slave with a
smaller id, and its log is not connected to the master. When a master announces its return, acting has ended and its
progress is durable before the reply. Threads: the event loop's.
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

#: The time within which an announced master must register at a name server.
HOLD_SECONDS: Final = 15.0


class ActingMaster:
    """The state of a slave that may act for its master."""

    def __init__(
        self,
        broker_id: int,
        role: BrokerRole,
        duties: ActingDuties | None,
        has_log: Callable[[], bool],
        elapsed: Callable[[], float],
        wake_pulls: Callable[[], None],
    ) -> None:
        """Without `duties` due messages wait for the master. `has_log` returns whether the log follows the master's
        now. `elapsed` returns seconds of a monotonic clock. `wake_pulls` redirects waiting pulls to the master."""
        self._broker_id = broker_id
        self._role = role
        self._duties = duties
        self._has_log = has_log
        self._elapsed = elapsed
        self._wake_pulls = wake_pulls
        self._held_until = 0.0
        self._lock = asyncio.Lock()

    async def consider(self, members: Group | None) -> None:
        """Start or stop acting according to current membership; do nothing if it is unknown."""
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
        """Stop acting for a returning master, and do not start again before it had time to register."""
        self._held_until = self._elapsed() + HOLD_SECONDS
        async with self._lock:
            if self._role.is_acting:
                await self._end()

    async def stop(self) -> None:
        """Stop acting, because the broker stops. Idempotent."""
        async with self._lock:
            if self._role.is_acting:
                await self._end()

    async def _begin(self) -> None:
        log.warning("master lost: acting for it")
        self._role.acts(True)
        if self._duties is None:
            return
        try:
            await self._duties.begin()
        except (StoreError, OSError) as error:
            log.error("cannot deliver due messages: %s", error)

    async def _end(self) -> None:
        if self._duties is not None:
            try:
                await self._duties.end()
            except (StoreError, OSError) as error:
                log.error(
                    "cannot save delivery progress, so some messages will be delivered twice: %s", error
                )
        self._role.acts(False)
        self._wake_pulls()
        log.warning("no longer acting for the master")
