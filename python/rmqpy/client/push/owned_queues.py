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
from rmqpy.client import outages
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.offsets import Offsets, Places
from rmqpy.client.push.locks import Locks
from rmqpy.client.push.process_queue import Limits, ProcessQueue
from rmqpy.client.push.queue_reader import Moved, QueueReader
from rmqpy.clock import running
from rmqpy.message import MessageQueue

log = logging.getLogger(__name__)

#: A queue that had another owner is begun so much later: the owner hears of the change when we do, and commits.
TAKE_OVER_S: Final = 0.5
#: Time for handlers at work to finish before a queue without lock is handed over.
HAND_OVER_S: Final = 0.3
#: The same with a lock, which no other member gets before we give it back or it dies.
HAND_OVER_LOCKED_S: Final = 30.0


class _Unknown:
    """What a broker did not tell."""


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
        beginnings: Beginnings,
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
        self._beginnings = beginnings
        self._revive = revive
        self._fail = fail
        self._owned: dict[MessageQueue, OwnedQueue] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[bool]] = {}
        #: What brokers have acknowledged, and what was last asked of them.
        self._committed: dict[MessageQueue, int] = {}
        self._asked: dict[MessageQueue, int] = {}
        #: Others may have moved the progress of these: none of it is committed before that is known.
        self._doubtful: set[MessageQueue] = set()
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
        if self._locks is None:
            if not is_alone:
                await asyncio.sleep(TAKE_OVER_S)
            await self._begin(dict.fromkeys(wanted, float("inf")))
            return frozenset(wanted) & self.queues
        try:
            granted = await self._locks.take(wanted)
            await self._begin(granted)
        except asyncio.CancelledError:
            # A broker may have granted what nobody is going to use.
            await self._locks.give(queue for queue in wanted if queue not in self._owned)
            raise
        if unused := granted.keys() - self._owned:
            await self._locks.give(unused)
        return frozenset(granted) & self.queues

    async def give(self, queues: Iterable[MessageQueue], until: float) -> frozenset[MessageQueue]:
        """Hand these queues over; those that were handed over in time. Returns when brokers have the progress of those
        whose handlers are done soon. `until`, on the running clock, nobody else begins with one without a lock."""
        tasks = {}
        for queue in queues:
            owned = self._owned.pop(queue)
            self._leaving[queue] = task = asyncio.create_task(self._hand_over(owned, until))
            task.add_done_callback(lambda _, queue=queue: self._leaving.pop(queue))  # type: ignore[misc]
            tasks[queue] = task
        if tasks:
            await asyncio.wait(tasks.values(), timeout=2 * HAND_OVER_S)
        # Where a handler is still at work, its lock keeps the others away.
        return frozenset(queue for queue, task in tasks.items() if not task.done() or task.result())

    async def compare(self, queues: Collection[MessageQueue] | None = None) -> frozenset[MessageQueue]:
        """Begin again where another member has moved the progress, for the group has changed unseen; these queues. Of
        all, when none is named. Where a broker does not tell, it is asked again before the next commit."""
        chosen = [queue for queue in self._owned if queues is None or queue in queues]
        self._doubtful = (self._doubtful & (self._owned.keys() | self._leaving.keys())) | set(chosen)
        moved = await self._ask(chosen)
        for queue, found in moved.items():
            log.warning("another member moved the progress of %s to %d: going on there", queue, found)
            self._committed[queue] = found
            self.restart(queue, found)
        return frozenset(moved)

    def restart(self, queue: MessageQueue, position: int) -> None:
        """Read a queue from elsewhere; what was fetched and not begun is forgotten."""
        owned = self._owned.pop(queue, None)
        if owned is not None:
            owned.process_queue.drop()
            owned.task.cancel()
            self._open(queue, position, owned.process_queue.locked_until, owned)

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

    async def commit(self) -> frozenset[MessageQueue]:
        """Store the progress that brokers do not have yet. As `compare` for queues that are in doubt."""
        moved = await self.compare(self._doubtful) if self._doubtful else frozenset[MessageQueue]()
        await self._commit(self.process_queues)
        return moved

    async def renew(self) -> frozenset[MessageQueue]:
        """Keep the locks. As `compare` for queues whose lock had run out: others may have had them in between."""
        if self._locks is None or not self._owned:
            return frozenset()
        granted = await self._locks.take(list(self._owned))
        lapsed = {queue for queue, owned in self._owned.items() if not owned.process_queue.is_locked}
        moved = await self.compare(lapsed & granted.keys())
        for queue, owned in self._owned.items():
            until = granted.get(queue)
            if until is None or queue in lapsed & self._doubtful:
                outages.warn_of(
                    log,
                    queue.broker,
                    "the lock of %s could not be renewed: it is left alone until it is",
                    queue,
                )
                continue
            owned.process_queue.locked_until = until
            owned.change.set()
            self._revive(owned.process_queue)
        return moved

    async def stop(self, timeout_s: float) -> None:
        """Stop reading, begin nothing more, and let handlers at work finish for so long."""
        for owned in self._owned.values():
            owned.process_queue.stop()
            owned.task.cancel()
        waits = [asyncio.create_task(self._until_idle(owned, timeout_s)) for owned in self._owned.values()]
        try:
            if waits or self._leaving:
                await asyncio.wait([*waits, *self._leaving.values()], timeout=timeout_s)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self, *, is_committing: bool) -> None:
        """Commit and give locks back. After `stop`."""
        leaving = list(self._leaving.values())
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        every = list(self._owned.values())
        self._owned.clear()
        if is_committing:
            await self._settle(owned.process_queue.queue for owned in every)
            await self._commit([owned.process_queue for owned in every])
        if self._locks is not None:
            await self._locks.give(
                owned.process_queue.queue for owned in every if not owned.process_queue.is_busy
            )
        for owned in every:
            owned.process_queue.drop()

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _begin(self, queues: Mapping[MessageQueue, float]) -> None:
        """Own those of which it can be told where to begin; to each, until when it is locked."""
        positions = await asyncio.gather(*map(self._position, queues))
        for (queue, locked_until), position in zip(queues.items(), positions, strict=True):
            if position is not None:
                self._open(queue, position, locked_until)

    def _open(
        self, queue: MessageQueue, position: int, locked_until: float, before: OwnedQueue | None = None
    ) -> None:
        change = asyncio.Event() if before is None else before.change

        def changed(of: ProcessQueue) -> None:
            change.set()
            owned = self._owned.get(queue)
            if owned is not None and owned.process_queue is not of:
                # The last handler of the one before has returned.
                self._revive(owned.process_queue)

        def wake(of: ProcessQueue) -> None:
            # A handler that returns after the end of the consumer finds the loop closed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(changed, of)

        process_queue = ProcessQueue(
            queue, position, self._limits, wake, None if before is None else before.process_queue.at_work
        )
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
            self._doubtful.discard(queue)
            if committed is not None:
                self._committed[queue] = committed
                return committed
            # Not committed yet: the next commit makes it the group's beginning for good.
            self._committed.pop(queue, None)
            return await self._places.find(queue, await self._beginnings.place(queue))
        except errors.RocketMQError as error:
            outages.warn(log, error, "%s cannot be begun and is tried again", queue)
            return None

    async def _ask(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Look at the progress of these: where another member has moved it, and to where. Of what a broker tells nobody
        is in doubt any more."""
        moved = {}
        for queue, found in zip(queues, await asyncio.gather(*map(self._progress, queues)), strict=True):
            if isinstance(found, _Unknown):
                continue
            self._doubtful.discard(queue)
            if found is not None and found not in (self._committed.get(queue), self._asked.get(queue)):
                moved[queue] = found
        return moved

    async def _progress(self, queue: MessageQueue) -> int | _Unknown | None:
        try:
            return await self._offsets.load(queue)
        except errors.RocketMQError as error:
            outages.warn(log, error, "the progress of %s is not known", queue)
            return _Unknown()

    def _is_ours(self, process_queue: ProcessQueue, until: float) -> bool:
        """Nobody else can have begun with a queue that is given up."""
        return process_queue.is_locked if self._locks is not None else running() < until

    async def _hand_over(self, owned: OwnedQueue, until: float) -> bool:
        """Commit and give the lock back; False when it was too late to commit, or did not work."""
        process_queue = owned.process_queue
        process_queue.stop()
        owned.task.cancel()
        if self._is_ours(process_queue, until):
            # What is done is safe, however long the rest takes.
            await self._commit_last(process_queue, until)
        try:
            await self._until_idle(owned, HAND_OVER_S if self._locks is None else HAND_OVER_LOCKED_S)
        finally:
            # At the end of the consumer, too: what is finished is committed, a lock that nobody needs is given back.
            is_done = not process_queue.is_busy
            is_committed = await self._commit_last(process_queue, until)
            process_queue.drop()
            if self._locks is not None and is_done:
                await self._locks.give([process_queue.queue])
        return is_committed

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

    async def _settle(self, queues: Iterable[MessageQueue]) -> None:
        """Before the last commit of these: those of which it is not known whose progress it is, or it is known to be
        another member's, stay in doubt."""
        for queue, found in (await self._ask(self._doubtful.intersection(queues))).items():
            log.info("another member moved the progress of %s to %d: it stays there", queue, found)
            self._doubtful.add(queue)

    async def _commit_last(self, process_queue: ProcessQueue, until: float) -> bool:
        """Store the progress of a queue that is given up; False where that was too late, or did not work. What is in
        doubt is settled first, else the next owner would begin with what this member has finished."""
        queue = process_queue.queue
        await self._settle([queue])
        if not self._is_ours(process_queue, until):
            log.info("%s is given up without a last commit: another member may have begun with it", queue)
            return False
        return queue not in self._doubtful and await self._commit([process_queue])

    async def _commit(self, process_queues: Collection[ProcessQueue]) -> bool:
        """Store progress; False where some could not be written."""
        changed = {
            one.queue: progress
            for one in process_queues
            # Without a lock nobody keeps it for this member.
            if one.is_locked
            and one.queue not in self._doubtful
            and (progress := one.progress) != self._committed.get(one.queue)
        }
        if not changed:
            return True
        self._asked.update(changed)
        failed = await self._offsets.save(changed)
        self._committed.update((queue, at) for queue, at in changed.items() if queue not in failed)
        return not failed
