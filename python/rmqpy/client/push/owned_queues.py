"""Owned queues of a consumer: taken, read, committed, released.

Owns each queue while it belongs to this member. Invariant: a queue is released with its progress committed and, if it
is locked, after the last handler has returned. For its caller's event loop; one `take` or `give` at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rmqpy import errors
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.offsets import Offsets, Places
from rmqpy.client.push.locks import Locks
from rmqpy.client.push.process_queue import Limits, ProcessQueue
from rmqpy.client.push.queue_reader import Moved, QueueReader
from rmqpy.client.reports import outages
from rmqpy.clock import running
from rmqpy.message import MessageQueue

log = logging.getLogger(__name__)

#: Delay before starting a queue of another owner, which commits when it learns of the change.
TAKE_OVER_S: Final = 0.5
#: Time for running handlers to finish before a queue without a lock is handed over.
HAND_OVER_S: Final = 0.3
#: The same with a lock: no other member gets it before this one releases it or dies.
HAND_OVER_LOCKED_S: Final = 30.0


class _Unknown:
    """Progress that a broker did not report."""


@dataclass(slots=True, eq=False)
class OwnedQueue:
    """One owned queue and the task that reads it."""

    process_queue: ProcessQueue
    #: Set when the queue's state has changed.
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
        """`revive` is called when a queue can be worked on again, `fail` when a queue cannot be read permanently."""
        #: Set before the first queue is taken.
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
        #: Offsets that brokers have acknowledged, and offsets last sent to them.
        self._committed: dict[MessageQueue, int] = {}
        self._asked: dict[MessageQueue, int] = {}
        #: Queues whose progress another member may have moved. They are not committed until that is known.
        self._doubtful: set[MessageQueue] = set()
        self._paused: set[MessageQueue] = set()

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The owned queues."""
        return frozenset(self._owned)

    @property
    def process_queues(self) -> list[ProcessQueue]:
        """The process queues of the owned queues."""
        # A copy, because any thread may call this.
        return [one.process_queue for one in list(self._owned.values())]

    async def take(self, queues: Collection[MessageQueue], *, is_alone: bool) -> frozenset[MessageQueue]:
        """Start reading these queues; return those that could be taken."""
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
            # Release locks that were granted but will not be used.
            await self._locks.give(queue for queue in wanted if queue not in self._owned)
            raise
        if unused := granted.keys() - self._owned:
            await self._locks.give(unused)
        return frozenset(granted) & self.queues

    async def give(self, queues: Iterable[MessageQueue], until: float) -> frozenset[MessageQueue]:
        """Hand these queues over; return those that were handed over in time. Returns when the progress of queues with
        short handlers is committed. No other member starts a queue without a lock before `until`, on the running
        clock."""
        tasks = {}
        for queue in queues:
            owned = self._owned.pop(queue)
            self._leaving[queue] = task = asyncio.create_task(self._hand_over(owned, until))
            task.add_done_callback(lambda _, queue=queue: self._leaving.pop(queue))  # type: ignore[misc]
            tasks[queue] = task
        if tasks:
            await asyncio.wait(tasks.values(), timeout=2 * HAND_OVER_S)
        # While a handler still runs, its lock keeps other members away.
        return frozenset(queue for queue, task in tasks.items() if not task.done() or task.result())

    async def compare(self, queues: Collection[MessageQueue] | None = None) -> frozenset[MessageQueue]:
        """Restart these queues, by default all, where another member moved the progress during an unseen change of the
        group; return them. A broker that does not answer is queried again before the next commit."""
        chosen = [queue for queue in self._owned if queues is None or queue in queues]
        self._doubtful = (self._doubtful & (self._owned.keys() | self._leaving.keys())) | set(chosen)
        moved = await self._ask(chosen)
        for queue, found in moved.items():
            log.warning("another member moved the progress of %s: resuming at %d", queue, found)
            self._committed[queue] = found
            self.restart(queue, found)
        return frozenset(moved)

    def restart(self, queue: MessageQueue, position: int) -> None:
        """Read a queue from `position`; fetched messages that no handler has begun are dropped."""
        owned = self._owned.pop(queue, None)
        if owned is not None:
            owned.process_queue.drop()
            owned.task.cancel()
            self._open(queue, position, owned.process_queue.locked_until, owned)

    def reread(self, topic: str) -> None:
        """Restart the pulls of a topic whose filter has changed."""
        for queue, owned in self._owned.items():
            if queue.topic == topic:
                owned.task.cancel()
                owned.task = self._read(owned.process_queue, owned.change)

    def pause(self, queues: Collection[MessageQueue], is_paused: bool) -> None:
        """Stop or resume reading these queues; all of them if empty."""
        chosen = set(queues) or set(self._owned)
        self._paused = self._paused | chosen if is_paused else (self._paused - chosen if queues else set())
        for queue, owned in self._owned.items():
            owned.process_queue.is_paused = queue in self._paused
            owned.change.set()

    async def commit(self) -> frozenset[MessageQueue]:
        """Store the progress that brokers do not have yet, after `compare` for doubtful queues."""
        moved = await self.compare(self._doubtful) if self._doubtful else frozenset[MessageQueue]()
        await self._commit(self.process_queues)
        return moved

    async def renew(self) -> frozenset[MessageQueue]:
        """Renew the locks, and `compare` queues whose lock had expired: another member may have owned them in
        between."""
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
                    "cannot renew the lock of %s: pausing the queue until it is renewed",
                    queue,
                )
                continue
            owned.process_queue.locked_until = until
            owned.change.set()
            self._revive(owned.process_queue)
        return moved

    async def stop(self, timeout_s: float) -> None:
        """Stop reading, start no more handlers, and wait for running ones for `timeout_s`."""
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
        """Commit, and release the locks. Called after `stop`."""
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
        """Own the queues whose start offset is known. The values are the ends of the locks."""
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
                # The last handler of the previous process queue has returned.
                self._revive(owned.process_queue)

        def wake(of: ProcessQueue) -> None:
            # The loop is closed if a handler returns after the end of the consumer.
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
            # Uncommitted so far, so that the next commit stores the start offset as the group's progress.
            self._committed.pop(queue, None)
            return await self._places.find(queue, await self._beginnings.place(queue))
        except errors.RocketMQError as error:
            outages.warn(log, error, "cannot start %s, retrying", queue)
            return None

    async def _ask(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Read the progress of these queues; return the offsets that another member has moved. Queues with an answer
        stop being doubtful."""
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
            outages.warn(log, error, "cannot read the progress of %s", queue)
            return _Unknown()

    def _is_ours(self, process_queue: ProcessQueue, until: float) -> bool:
        """Return whether no other member can have started a released queue."""
        return process_queue.is_locked if self._locks is not None else running() < until

    async def _hand_over(self, owned: OwnedQueue, until: float) -> bool:
        """Commit and release the lock; return False if the commit was too late or failed."""
        process_queue = owned.process_queue
        process_queue.stop()
        owned.task.cancel()
        if self._is_ours(process_queue, until):
            # Commit before waiting, so that finished work is safe.
            await self._commit_last(process_queue, until)
        try:
            await self._until_idle(owned, HAND_OVER_S if self._locks is None else HAND_OVER_LOCKED_S)
        finally:
            # Also runs when the consumer ends: commit finished messages, and release an unused lock.
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
            log.warning("releasing %s while a handler is still running", owned.process_queue.queue)

    async def _settle(self, queues: Iterable[MessageQueue]) -> None:
        """Check doubtful queues before their last commit. Queues whose progress is unknown or moved stay doubtful."""
        for queue, found in (await self._ask(self._doubtful.intersection(queues))).items():
            log.info("keeping the progress of %s at %d, where another member moved it", queue, found)
            self._doubtful.add(queue)

    async def _commit_last(self, process_queue: ProcessQueue, until: float) -> bool:
        """Store the progress of a released queue; return False if that was too late or failed. Doubtful progress is
        checked first; otherwise the next owner would repeat finished messages."""
        queue = process_queue.queue
        await self._settle([queue])
        if not self._is_ours(process_queue, until):
            log.info("releasing %s without a final commit: another member may have started it", queue)
            return False
        return queue not in self._doubtful and await self._commit([process_queue])

    async def _commit(self, process_queues: Collection[ProcessQueue]) -> bool:
        """Store progress; return False if a write failed."""
        changed = {
            one.queue: progress
            for one in process_queues
            # After the lock expired, another member may own the queue.
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
