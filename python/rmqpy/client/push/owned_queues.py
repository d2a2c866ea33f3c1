"""Owned queues of a consumer: taken, read, committed, handed over.

Owns each queue from the moment it is this member's to the moment it is another one's. Invariant: a queue is given
back with its progress committed, and, where it is locked, after the last handler has returned. For the event loop
its caller belongs to; one `take` or `give` at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rmqpy import errors
from rmqpy.client.group.offsets import Offsets, Places, StartFrom
from rmqpy.client.push.locks import Locks
from rmqpy.client.push.process_queue import Limits, ProcessQueue
from rmqpy.client.push.queue_reader import Moved, QueueReader
from rmqpy.message import MessageQueue

log = logging.getLogger(__name__)

#: A queue that had another owner is begun so much later: the owner hears of the change when we do, and commits.
TAKE_OVER_S: Final = 0.5
#: Time for handlers at work to finish before a queue without lock is handed over.
HAND_OVER_S: Final = 0.3
#: The same with a lock, which no other member gets before we give it back or it dies.
HAND_OVER_LOCKED_S: Final = 30.0


@dataclass(slots=True, eq=False)
class OwnedQueue:
    """One owned queue and the task that reads it."""

    process_queue: ProcessQueue
    #: Set when something about the queue has changed.
    change: asyncio.Event
    task: asyncio.Task[None]


class OwnedQueues:
    """The owned queues of one consumer."""

    def __init__(
        self,
        offsets: Offsets,
        places: Places,
        locks: Locks | None,
        limits: Limits,
        start_from: StartFrom,
        *,
        revive: Callable[[ProcessQueue], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`revive`: a queue may be worked on again. `fail`: a queue cannot be read, nor will it be."""
        #: Set once, before the first queue is taken.
        self.reader: QueueReader
        self._loop = asyncio.get_running_loop()
        self._offsets = offsets
        self._places = places
        self._locks = locks
        self._limits = limits
        self._start_from = start_from
        self._revive = revive
        self._fail = fail
        self._owned: dict[MessageQueue, OwnedQueue] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._paused: set[MessageQueue] = set()

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Owned now."""
        return frozenset(self._owned)

    @property
    def process_queues(self) -> list[ProcessQueue]:
        """Their process queues."""
        # A copy: asked from any thread.
        return [one.process_queue for one in list(self._owned.values())]

    async def take(self, queues: Collection[MessageQueue], *, is_alone: bool) -> frozenset[MessageQueue]:
        """Begin with these queues; those that could be had."""
        wanted = [queue for queue in queues if queue not in self._leaving]
        if not wanted:
            return frozenset()
        until: Mapping[MessageQueue, float]
        if self._locks is not None:
            until = await self._locks.take(wanted)
        else:
            until = dict.fromkeys(wanted, float("inf"))
            if not is_alone:
                await asyncio.sleep(TAKE_OVER_S)
        positions = await asyncio.gather(*(self._position(queue) for queue in until))
        for (queue, locked_until), position in zip(until.items(), positions, strict=True):
            if position is not None:
                self._open(queue, position, locked_until)
        return frozenset(until) & self.queues

    async def give(self, queues: Iterable[MessageQueue]) -> None:
        """Hand these queues over. Returns when brokers have the progress of those whose handlers are done soon."""
        tasks = []
        for queue in queues:
            owned = self._owned.pop(queue)
            self._leaving[queue] = task = asyncio.create_task(self._hand_over(owned))
            task.add_done_callback(lambda _, queue=queue: self._leaving.pop(queue))  # type: ignore[misc]
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * HAND_OVER_S)

    def restart(self, queue: MessageQueue, position: int) -> None:
        """Read a queue from elsewhere; what was fetched and not begun is forgotten."""
        owned = self._owned.pop(queue, None)
        if owned is not None:
            owned.process_queue.drop()
            owned.task.cancel()
            self._open(queue, position, owned.process_queue.locked_until)

    def reread(self, topic: str) -> None:
        """The tags of a topic have changed: ask anew."""
        for queue, owned in self._owned.items():
            if queue.topic == topic:
                owned.task.cancel()
                owned.task = self._read(owned.process_queue, owned.change)

    def pause(self, queues: Collection[MessageQueue], is_paused: bool) -> None:
        """Read no more of these queues, or go on; of all, when none is named."""
        chosen = set(queues) or set(self._owned)
        self._paused = self._paused | chosen if is_paused else (self._paused - chosen if queues else set())
        for queue, owned in self._owned.items():
            owned.process_queue.is_paused = queue in self._paused
            owned.change.set()

    async def commit(self) -> None:
        """Store the progress that brokers do not have yet."""
        await self._commit(self.process_queues)

    async def renew(self) -> None:
        """Keep the locks."""
        if self._locks is None or not self._owned:
            return
        granted = await self._locks.take(list(self._owned))
        for queue, owned in self._owned.items():
            until = granted.get(queue)
            if until is None:
                log.warning("the lock of %s could not be renewed: it is left alone until it is", queue)
                continue
            owned.process_queue.locked_until = until
            owned.change.set()
            self._revive(owned.process_queue)

    async def stop(self, timeout_s: float) -> None:
        """Stop reading, begin nothing more, and let handlers at work finish for so long."""
        for owned in self._owned.values():
            owned.process_queue.stop()
            owned.task.cancel()
        waits = [asyncio.create_task(self._until_idle(owned, timeout_s)) for owned in self._owned.values()]
        if waits or self._leaving:
            await asyncio.wait([*waits, *self._leaving.values()], timeout=timeout_s)

    async def close(self) -> None:
        """Commit and give locks back. After `stop`."""
        every = list(self._owned.values())
        self._owned.clear()
        await self._commit([owned.process_queue for owned in every])
        if self._locks is not None:
            await self._locks.give(
                owned.process_queue.queue for owned in every if not owned.process_queue.is_busy
            )
        for owned in every:
            owned.process_queue.drop()

    # ---- pieces ----------------------------------------------------------------------------------------

    def _open(self, queue: MessageQueue, position: int, locked_until: float) -> None:
        change = asyncio.Event()

        def wake(_: ProcessQueue) -> None:
            # A handler that returns after the end of the consumer finds the loop closed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(change.set)

        process_queue = ProcessQueue(queue, position, self._limits, wake)
        process_queue.locked_until = locked_until
        process_queue.is_paused = queue in self._paused
        self._owned[queue] = OwnedQueue(process_queue, change, self._read(process_queue, change))

    def _read(self, process_queue: ProcessQueue, change: asyncio.Event) -> asyncio.Task[None]:
        async def read() -> None:
            try:
                await self.reader.read(process_queue, change)
            except Moved as moved:
                self.restart(process_queue.queue, moved.position)
            except Exception as error:
                self._fail(error)

        return asyncio.create_task(read())

    async def _position(self, queue: MessageQueue) -> int | None:
        try:
            committed = await self._offsets.load(queue)
            if committed is not None:
                self._committed[queue] = committed
                return committed
            # Not committed yet: the next commit makes it the group's beginning for good.
            self._committed.pop(queue, None)
            return await self._places.first(queue, self._start_from)
        except errors.RocketMQError as error:
            log.warning("%s cannot be begun and is tried again: %s", queue, error)
            return None

    async def _hand_over(self, owned: OwnedQueue) -> None:
        process_queue = owned.process_queue
        process_queue.stop()
        owned.task.cancel()
        await self._until_idle(owned, HAND_OVER_S if self._locks is None else HAND_OVER_LOCKED_S)
        is_done = not process_queue.is_busy
        await self._commit([process_queue])
        process_queue.drop()
        if self._locks is not None and is_done:
            await self._locks.give([process_queue.queue])

    async def _until_idle(self, owned: OwnedQueue, timeout_s: float) -> None:
        async def idle() -> None:
            while True:
                owned.change.clear()
                if not owned.process_queue.is_busy:
                    return
                await owned.change.wait()

        try:
            await asyncio.wait_for(idle(), timeout_s)
        except TimeoutError:
            log.warning(
                "a handler is still at work on %s, which is given up without it", owned.process_queue.queue
            )

    async def _commit(self, process_queues: Collection[ProcessQueue]) -> None:
        changed = {
            one.queue: progress
            for one in process_queues
            if (progress := one.progress) != self._committed.get(one.queue)
        }
        if changed:
            failed = await self._offsets.save(changed)
            self._committed.update((queue, at) for queue, at in changed.items() if queue not in failed)
