"""Following: gives the assigned master to the parts of a broker that does not lead.

Owns the task that asks the master for its port for slaves. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqpy.control.election.assignment import Assignment
from rmqpy.control.election.running_broker import RunningBroker
from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo

log = logging.getLogger(__name__)

MASTER_ANSWER_SECONDS: Final = 1.0
#: The interval of asking a master that does not lead yet.
RETRY_SECONDS: Final = 0.1


class Following:
    """The master that this broker follows."""

    def __init__(self, is_current: Callable[[RunningBroker, int], bool]) -> None:
        """`is_current` returns whether these parts still run, and this epoch is still the assigned one."""
        self._is_current = is_current
        #: The parts that follow a master, with its epoch.
        self._followed: tuple[RunningBroker, int] | None = None
        #: The search for the port of the master; `None` before the first one.
        self.search: asyncio.Task[None] | None = None

    def follow(self, running: RunningBroker, assignment: Assignment) -> None:
        """Let the parts follow this master. Idempotent."""
        if self._followed == (running, assignment.epoch):
            return
        self._followed = (running, assignment.epoch)
        running.master.assign(assignment.master_address, assignment.epoch)
        if self.search is not None:
            self.search.cancel()
        self.search = asyncio.get_running_loop().create_task(self._find_replica_address(running, assignment))

    async def _find_replica_address(self, running: RunningBroker, assignment: Assignment) -> None:
        """Ask the master for its port for slaves, until it leads."""
        while self._is_current(running, assignment.epoch):
            try:
                peer = running.peer(assignment.master_address)
                answer = await peer.call(ExchangeBrokerHaInfo(), timeout=MASTER_ANSWER_SECONDS)
            except (RocketMQError, OSError) as error:
                log.debug("the master at %s does not answer yet: %s", assignment.master_address, error)
            else:
                if answer.master_ha_address:
                    running.master.assign_replicas(answer.master_ha_address)
                    return
            await asyncio.sleep(RETRY_SECONDS)
