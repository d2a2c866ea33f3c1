"""The queues a consumer owns: taken, read, committed, handed over.

Owns each queue from the moment it is this member's to the moment it is somebody else's. Invariant: a queue is given
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
from rmqpy.client.push.owned import Limits, Owned
from rmqpy.client.push.reader import Moved, Reader
from rmqpy.message import MessageQueue

log = logging.getLogger(__name__)

#: A queue that had another owner is begun so much later: the owner hears of the change when we do, and commits.
TAKE_OVER_S: Final = 0.5
#: What handlers at work get to finish before a queue without lock is handed over.
HAND_OVER_S: Final = 0.3
#: The same with a lock, which nobody else gets before we give it back or it dies.
HAND_OVER_LOCKED_S: Final = 30.0


@dataclass(slots=True, eq=False)
class Lane:
    """One owned queue and who reads it."""

    owned: Owned
    #: Set when something about the queue has changed.
    change: asyncio.Event
    task: asyncio.Task[None]


class Lanes:
    """The owned queues of one consumer."""

    def __init__(
        self,
        offsets: Offsets,
        places: Places,
        locks: Locks | None,
        limits: Limits,
        start_from: StartFrom,
        *,
        revive: Callable[[Owned], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`revive`: a queue may be worked on again. `fail`: a queue cannot be read, nor will it be."""
        #: Set once, before the first queue is taken.
        self.reader: Reader
        self._loop = asyncio.get_running_loop()
        self._offsets = offsets
        self._places = places
        self._locks = locks
        self._limits = limits
        self._start_from = start_from
        self._revive = revive
        self._fail = fail
        self._lanes: dict[MessageQueue, Lane] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._paused: set[MessageQueue] = set()

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Owned now."""
        return frozenset(self._lanes)

    @property
    def owned(self) -> list[Owned]:
        """The same with what is known of them."""
        # A copy: asked from any thread.
        return [lane.owned for lane in list(self._lanes.values())]

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
            lane = self._lanes.pop(queue)
            self._leaving[queue] = task = asyncio.create_task(self._hand_over(lane))
            task.add_done_callback(lambda _, queue=queue: self._leaving.pop(queue))  # type: ignore[misc]
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * HAND_OVER_S)

    def restart(self, queue: MessageQueue, position: int) -> None:
        """Read a queue from elsewhere; what was fetched and not begun is forgotten."""
        lane = self._lanes.pop(queue, None)
        if lane is not None:
            lane.owned.drop()
            lane.task.cancel()
            self._open(queue, position, lane.owned.locked_until)

    def reread(self, topic: str) -> None:
        """The tags of a topic have changed: ask anew."""
        for queue, lane in self._lanes.items():
            if queue.topic == topic:
                lane.task.cancel()
                lane.task = self._read(lane.owned, lane.change)

    def pause(self, queues: Collection[MessageQueue], is_paused: bool) -> None:
        """Read no more of these queues, or go on; of all, when none is named."""
        chosen = set(queues) or set(self._lanes)
        self._paused = self._paused | chosen if is_paused else (self._paused - chosen if queues else set())
        for queue, lane in self._lanes.items():
            lane.owned.is_paused = queue in self._paused
            lane.change.set()

    async def commit(self) -> None:
        """Store the progress that brokers do not have yet."""
        await self._commit(self.owned)

    async def renew(self) -> None:
        """Keep the locks."""
        if self._locks is None or not self._lanes:
            return
        granted = await self._locks.take(list(self._lanes))
        for queue, lane in self._lanes.items():
            until = granted.get(queue)
            if until is None:
                log.warning("the lock of %s could not be renewed: it is left alone until it is", queue)
                continue
            lane.owned.locked_until = until
            lane.change.set()
            self._revive(lane.owned)

    async def halt(self, timeout_s: float) -> None:
        """Stop reading, begin nothing more, and let handlers at work finish for so long."""
        for lane in self._lanes.values():
            lane.owned.halt()
            lane.task.cancel()
        waits = [asyncio.create_task(self._until_idle(lane, timeout_s)) for lane in self._lanes.values()]
        if waits or self._leaving:
            await asyncio.wait([*waits, *self._leaving.values()], timeout=timeout_s)

    async def close(self) -> None:
        """Commit and give locks back. After `halt`."""
        lanes = list(self._lanes.values())
        self._lanes.clear()
        await self._commit([lane.owned for lane in lanes])
        if self._locks is not None:
            await self._locks.give(lane.owned.queue for lane in lanes if not lane.owned.is_busy)
        for lane in lanes:
            lane.owned.drop()

    # ---- pieces ----------------------------------------------------------------------------------------

    def _open(self, queue: MessageQueue, position: int, locked_until: float) -> None:
        change = asyncio.Event()

        def wake(_: Owned) -> None:
            # A handler that returns after the end of the consumer finds the loop closed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(change.set)

        owned = Owned(queue, position, self._limits, wake)
        owned.locked_until = locked_until
        owned.is_paused = queue in self._paused
        self._lanes[queue] = Lane(owned, change, self._read(owned, change))

    def _read(self, owned: Owned, change: asyncio.Event) -> asyncio.Task[None]:
        async def read() -> None:
            try:
                await self.reader.read(owned, change)
            except Moved as moved:
                self.restart(owned.queue, moved.position)
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

    async def _hand_over(self, lane: Lane) -> None:
        owned = lane.owned
        owned.halt()
        lane.task.cancel()
        await self._until_idle(lane, HAND_OVER_S if self._locks is None else HAND_OVER_LOCKED_S)
        is_done = not owned.is_busy
        await self._commit([owned])
        owned.drop()
        if self._locks is not None and is_done:
            await self._locks.give([owned.queue])

    async def _until_idle(self, lane: Lane, timeout_s: float) -> None:
        async def idle() -> None:
            while True:
                lane.change.clear()
                if not lane.owned.is_busy:
                    return
                await lane.change.wait()

        try:
            await asyncio.wait_for(idle(), timeout_s)
        except TimeoutError:
            log.warning("a handler is still at work on %s, which is given up without it", lane.owned.queue)

    async def _commit(self, owned: Collection[Owned]) -> None:
        changed = {
            one.queue: progress
            for one in owned
            if (progress := one.progress) != self._committed.get(one.queue)
        }
        if changed:
            failed = await self._offsets.save(changed)
            self._committed.update((queue, at) for queue, at in changed.items() if queue not in failed)
