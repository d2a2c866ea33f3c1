"""Hand-over: a master takes over progress from the slave that acted for it, before it serves.

It notifies live slaves of its address, so that the acting slave stops and follows the log. Then it takes the offsets
committed there and the delivery progress, where they are ahead of its own. A group whose offsets were reset in the last
seconds before the master was lost may be back at the older position.

Invariants: the start is bounded, whatever the slaves do; what cannot be taken over is logged, and is delivered twice;
progress is taken over only if this log has the messages it refers to.
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

#: The time in which a slave has to stop acting and answer.
ANSWER_SECONDS: Final = 10.0
#: The longest time that a start waits for a slave to follow the log.
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
        """`slaves` returns the number of slaves that follow the log, `log_end` the end of this broker's log."""
        self._identity = identity
        self._members = members
        self._peer = peer
        self._slaves = slaves
        self._log_end = log_end

    async def run(self, offsets: Offsets, delay_file: DelayFile, timer_file: Path) -> None:
        """Take over the progress of an acting slave. Raises `StoreError`."""
        members = await self._members.ask() or {}
        own = self._identity
        others = {
            known: where
            for known, where in sorted(members.items())
            if known != own.broker_id and where != own.address
        }
        notified = [where for known, where in others.items() if await self._notify(known, where)]
        if not notified:
            return
        await self._wait_for_log()
        source = self._peer(notified[0])
        try:
            # It accepts no messages, so its log cannot grow beyond this one.
            if (theirs := await log_end_of(source)) > self._log_end():
                log.warning(
                    "cannot take over from the slave at %s, whose log ends at %d and not at %d: some messages will "
                    "be delivered twice",
                    *(notified[0], theirs, self._log_end()),
                )
                return
            moved = await _take_offsets(source, offsets)
            await _take_delays(source, delay_file)
            await _take_timers(source, timer_file)
        except (RocketMQError, OSError) as error:
            log.warning(
                "the slave at %s did not hand over, so some messages will be delivered twice: %s",
                notified[0],
                error,
            )
            return
        log.info("the slave at %s handed over; took %d newer offsets", notified[0], moved)

    async def _notify(self, known: int, where: str) -> bool:
        """Notify a slave of its master; return whether it knows the address and has stopped acting."""
        ask = ExchangeBrokerHaInfo(
            master_ha_address=self._identity.replica_address,
            master_flush_offset=self._log_end(),
            master_address=self._identity.address,
        )
        try:
            await self._peer(where).call(ask, timeout=ANSWER_SECONDS)
        except (RocketMQError, OSError) as error:
            log.warning("cannot notify slave %d at %s of its master: %s", known, where, error)
            return False
        return True

    async def _wait_for_log(self) -> None:
        try:
            async with asyncio.timeout(FOLLOW_SECONDS):
                while not self._slaves():  # noqa: ASYNC110 - the native module has no event for it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            log.warning("no slave follows the log yet, serving without one")


async def _take_offsets(source: Peer, offsets: Offsets) -> int:
    """Take over offsets; return how many."""
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
                # The topic does not exist here.
                continue
            moved += 1
    return moved


async def _take_delays(source: Peer, delay_file: DelayFile) -> None:
    delays = await source.call(GetAllDelayOffset(), timeout=ANSWER_SECONDS)
    await delay_file.copy(delays.offset_table, delays.data_version)


async def _take_timers(source: Peer, timer_file: Path) -> None:
    try:
        theirs = await source.call(GetTimerCheckPoint(), timeout=ANSWER_SECONDS)
    except Unsupported:
        # A release before 5.0.
        return
    own = await asyncio.to_thread(read_progress, timer_file)
    if delivered_ms(theirs) > delivered_ms(own):
        await asyncio.to_thread(write_progress, timer_file, theirs)
