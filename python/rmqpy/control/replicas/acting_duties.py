"""Duties of an acting slave: due messages and open transactions go to other brokers.

Owns the tasks that take them from the data plane. Invariant: after `end` no message is in flight, and the progress of
delivery is durable, so that the master can continue there. Threads: the event loop's; what may block on the disk runs
in a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rmqpy._native import DueMessages, EscapedMessage, Transactions
from rmqpy.control.replicas.escape_bridge import EscapeBridge
from rmqpy.control.store.delay_offsets import DelayFile

log = logging.getLogger(__name__)

#: The most messages in flight, and the pause if none are due.
BATCH: Final = 64
IDLE_SECONDS: Final = 0.05
#: Intervals of the transaction round and of saving progress, and the pause before an open transaction is sent again.
ROUND_SECONDS: Final = 1.0
RETRY_MS: Final = 5_000
SAVE_SECONDS: Final = 3.0
#: The longest time that an end waits for sent messages to be noted as delivered.
NOTE_SECONDS: Final = 2.0


class ActingDuties:
    """The work of an acting slave."""

    def __init__(
        self,
        due: DueMessages,
        transactions: Transactions,
        delay_file: DelayFile,
        bridge: EscapeBridge,
        offsets_save: Callable[[], Awaitable[None]],
    ) -> None:
        """`offsets_save` writes the offset file, which contains the progress of transactions."""
        self._due = due
        self._transactions = transactions
        self._delay_file = delay_file
        self._bridge = bridge
        self._offsets_save = offsets_save
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    async def begin(self) -> None:
        """Find due messages and open transactions, and start to deliver. Raises `StoreError`."""
        self._ending.clear()
        await asyncio.to_thread(self._transactions.recover, [])
        await asyncio.to_thread(self._due.begin, self._delay_file.offsets, acts=True)
        self._delay_file.follow(self._due)
        work = (self._forward(), self._leave_transactions(), self._save())
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]

    async def end(self) -> None:
        """Wait for messages in flight, and save all progress. Raises `StoreError`."""
        self._due.close()
        self._ending.set()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(NOTE_SECONDS):
                # Accepted messages are skipped when delivery reaches them again.
                while self._due.close():  # noqa: ASYNC110 - the native module has no event for it
                    await asyncio.sleep(IDLE_SECONDS)
        except TimeoutError:
            log.info("the master will deliver some messages again that other brokers have stored")
        offsets = await asyncio.to_thread(self._due.end)
        await self._delay_file.end(offsets)
        # The first call determines the progress, the second one writes it.
        for _ in range(2):
            await asyncio.to_thread(self._transactions.save)
        self._transactions.forget()
        self._bridge.forget()
        await self._offsets_save()

    async def _forward(self) -> None:
        """Send due messages until the end."""
        while not self._ending.is_set():
            messages = self._due.take(BATCH)
            await asyncio.gather(*(self._forward_one(message) for message in messages))
            if not messages:
                await self._pause(IDLE_SECONDS)

    async def _forward_one(self, message: EscapedMessage) -> None:
        is_accepted = False
        try:
            is_accepted = await self._bridge.send(message)
        except Exception:
            log.exception("cannot send the message at %d, retrying", message.position)
        finally:
            self._due.decide(message.position, is_accepted)

    async def _leave_transactions(self) -> None:
        """Send half messages whose producers did not decide in time, until the end: other brokers check them."""
        while not self._ending.is_set():
            try:
                found = await asyncio.to_thread(self._transactions.take, BATCH, RETRY_MS)
                await asyncio.gather(*(self._leave(offset, half) for offset, half in found))
            except Exception:
                log.exception("cannot send open transactions, retrying")
                found = []
            if len(found) < BATCH:
                await self._pause(ROUND_SECONDS)

    async def _leave(self, offset: int, half: EscapedMessage) -> None:
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
                log.exception("cannot save delivery progress, retrying")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
