"""Hand-over: what a master takes over from the slave that acted for it, before it serves.

The slaves that live are told where their master is, so that the one that acts ends, and the log follows; then the
offsets that were committed there, and how far it has delivered, are taken where they are further than what is known
here. A group that was set back in the last seconds before the master went may be where it was before.

Invariants: a start comes to an end, whatever the slaves do; what could not be taken over is said, and happens twice
then; nothing is taken over that speaks of messages which this log does not have.
Threads: the event loop's; files are written in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy._native import Offsets
from rmqpy.control.identity import Identity
from rmqpy.control.replicas.log_position import log_end_of
from rmqpy.control.replicas.members import Members
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.timer_progress import delivered_ms, read_progress, write_progress
from rmqpy.errors import BrokerError, RocketMQError, Unsupported
from rmqpy.protocol.requests.replicas import (
    ExchangeBrokerHaInfo,
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetTimerCheckPoint,
)
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: How long a slave has to end what it does for its master, and to answer.
ANSWER_SECONDS: Final = 10.0
#: How long a start waits for the log to follow.
FOLLOW_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.05


class HandOver:
    """The hand-over to a master."""

    def __init__(
        self,
        identity: Identity,
        members: Members,
        peer: Callable[[str], Peer],
        slaves: Callable[[], int],
        log_end: Callable[[], int],
    ) -> None:
        """`slaves`: how many follow the log now. `log_end`: of this broker's log."""
        self._identity = identity
        self._members = members
        self._peer = peer
        self._slaves = slaves
        self._log_end = log_end

    async def run(self, offsets: Offsets, delay_file: DelayFile, timer_file: Path) -> None:
        """Take over what there is. Raises `StoreError`."""
        members = await self._members.ask() or {}
        own = self._identity
        others = {
            known: where
            for known, where in sorted(members.items())
            if known != own.broker_id and where != own.address
        }
        told = [where for known, where in others.items() if await self._tell(known, where)]
        if not told:
            return
        await self._wait_for_log()
        source = self._peer(told[0])
        try:
            # It takes no messages, so that its log does not grow beyond what this one has.
            if (theirs := await log_end_of(source)) > self._log_end():
                log.warning(
                    "the log of the slave at %s ends at %d, this one at %d: what it did for this master is not taken "
                    "over, and some happens twice",
                    *(told[0], theirs, self._log_end()),
                )
                return
            moved = await _take_offsets(source, offsets)
            await _take_delays(source, delay_file)
            await _take_timers(source, timer_file)
        except (RocketMQError, OSError) as error:
            log.warning("the slave at %s does not hand over, and some happens twice: %s", told[0], error)
            return
        log.info("the slave at %s has handed over; %d offsets were further there", told[0], moved)

    async def _tell(self, known: int, where: str) -> bool:
        """Whether this slave knows now where its master is, and does not act for it."""
        ask = ExchangeBrokerHaInfo(
            master_ha_address=self._identity.replica_address,
            master_flush_offset=self._log_end(),
            master_address=self._identity.address,
        )
        try:
            await self._peer(where).call(ask, timeout=ANSWER_SECONDS)
        except (RocketMQError, OSError) as error:
            log.warning("slave %d at %s cannot be told of its master: %s", known, where, error)
            return False
        return True

    async def _wait_for_log(self) -> None:
        try:
            async with asyncio.timeout(FOLLOW_SECONDS):
                while not self._slaves():  # noqa: ASYNC110 - the native half has no event for it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            log.warning("no slave follows the log yet, and this master serves without")


async def _take_offsets(source: Peer, offsets: Offsets) -> int:
    """How many were taken over."""
    theirs = (await source.call(GetAllConsumerOffset(), timeout=ANSWER_SECONDS)).body.offset_table
    return await asyncio.to_thread(_commit_further, offsets, theirs)


def _commit_further(offsets: Offsets, theirs: Mapping[str, Mapping[int, int]]) -> int:
    moved = 0
    for key, queues in theirs.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items():
            if offset <= (offsets.query(group, topic, queue_id) or 0):
                continue
            try:
                offsets.take_over(group, topic, queue_id, offset)
            except BrokerError:
                # Of a topic that is not here.
                continue
            moved += 1
    return moved


async def _take_delays(source: Peer, delay_file: DelayFile) -> None:
    told = await source.call(GetAllDelayOffset(), timeout=ANSWER_SECONDS)
    await delay_file.copy(told.offset_table, told.data_version)


async def _take_timers(source: Peer, timer_file: Path) -> None:
    try:
        theirs = await source.call(GetTimerCheckPoint(), timeout=ANSWER_SECONDS)
    except Unsupported:
        # It is of a release before 5.0.
        return
    own = await asyncio.to_thread(read_progress, timer_file)
    if delivered_ms(theirs) > delivered_ms(own):
        await asyncio.to_thread(write_progress, timer_file, theirs)
