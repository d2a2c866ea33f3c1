"""Duties of an acting slave: messages that are due, and transactions that are open, go to other brokers.

Owns the tasks that take them from the data plane. Invariant: after `end` no message is on its way, and how far
delivery has got is on the disk, for the master to go on there. Threads: the event loop's; what may wait for the
disk is done in a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rmqpy._native import DueMessages, Transactions
from rmqpy.control.replicas.escape_bridge import EscapeBridge, Escaped
from rmqpy.control.store.delay_offsets import DelayFile

log = logging.getLogger(__name__)

#: Messages on their way together, and the pause where there are none.
BATCH: Final = 64
IDLE_SECONDS: Final = 0.05
#: How often transactions are looked at; one that no other broker has taken, and how often progress is saved.
ROUND_SECONDS: Final = 1.0
RETRY_MS: Final = 5_000
SAVE_SECONDS: Final = 3.0
#: How long an end waits for what is on its way to be noted as delivered.
NOTE_SECONDS: Final = 2.0


class ActingDuties:
    """What begins when a slave begins to act."""

    def __init__(
        self,
        due: DueMessages,
        transactions: Transactions,
        delay_file: DelayFile,
        bridge: EscapeBridge,
        offsets_save: Callable[[], Awaitable[None]],
    ) -> None:
        """`offsets_save` writes the file of the offsets, in which the progress of transactions is."""
        self._due = due
        self._transactions = transactions
        self._delay_file = delay_file
        self._bridge = bridge
        self._offsets_save = offsets_save
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    async def begin(self) -> None:
        """Find what is open, and deliver. Raises `StoreError`."""
        self._ending.clear()
        await asyncio.to_thread(self._transactions.recover, [])
        await asyncio.to_thread(self._due.begin, self._delay_file.offsets, acts=True)
        self._delay_file.follow(self._due)
        work = (self._forward(), self._leave_transactions(), self._save())
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]

    async def end(self) -> None:
        """Wait for what is on its way, and save how far all has got. Raises `StoreError`."""
        self._due.close()
        self._ending.set()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(NOTE_SECONDS):
                # What was accepted is passed when delivery comes to it again.
                while self._due.close():  # noqa: ASYNC110 - the native half has no event for it
                    await asyncio.sleep(IDLE_SECONDS)
        except TimeoutError:
            log.info("some messages that other brokers have are delivered once more by the master")
        offsets = await asyncio.to_thread(self._due.end)
        await self._delay_file.end(offsets)
        # The first finds out how far it has got, the second notes it.
        for _ in range(2):
            await asyncio.to_thread(self._transactions.save)
        self._transactions.forget()
        self._bridge.forget()
        await self._offsets_save()

    async def _forward(self) -> None:
        """Send what is due, until the end."""
        while not self._ending.is_set():
            rows = [Escaped(*row) for row in self._due.take(BATCH)]
            await asyncio.gather(*(self._forward_one(message) for message in rows))
            if not rows:
                await self._pause(IDLE_SECONDS)

    async def _forward_one(self, message: Escaped) -> None:
        is_accepted = False
        try:
            is_accepted = await self._bridge.send(message)
        except Exception:
            log.exception("the message at %d cannot be sent and will be tried again", message.position)
        finally:
            self._due.decide(message.position, is_accepted)

    async def _leave_transactions(self) -> None:
        """Send halves whose producers had their time, until the end: other brokers ask about them."""
        while not self._ending.is_set():
            try:
                found = await asyncio.to_thread(self._transactions.take, BATCH, RETRY_MS)
                await asyncio.gather(*(self._leave(offset, Escaped(*row)) for offset, row in found))
            except Exception:
                log.exception("open transactions cannot be sent and will be tried again")
                found = []
            if len(found) < BATCH:
                await self._pause(ROUND_SECONDS)

    async def _leave(self, offset: int, half: Escaped) -> None:
        if await self._bridge.send(half, is_half=True):
            self._transactions.leave(offset, half.position)

    async def _save(self) -> None:
        while not self._ending.is_set():
            await self._pause(SAVE_SECONDS)
            try:
                await self._delay_file.save()
                await asyncio.to_thread(self._due.save)
                await asyncio.to_thread(self._transactions.save)
            except Exception:
                log.exception("how far deliveries have got is not saved, which is tried again")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
