"""Cursor: positions, commits and seeks, for consumers in threads and in event loops.

Owns the progress of the assigned queues; `fetcher` reads ahead. The coroutines wait through a `Caller`.
Invariant: a commit never passes what the caller has received, and never touches another member's queue.
"""

# ruff: noqa: ASYNC109 - nothing is cancelled when a timeout passes
from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import ArrowBatch, Call, Columns, ReceivedMessage
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.checks import check_filter
from rmqpy.client.group.follower import LOOK_S, Follower
from rmqpy.client.group.offsets import BrokerOffsets, Places, StartFrom, commitment
from rmqpy.client.observers import ReceiveObserver, tell_received
from rmqpy.client.pull.fetcher import Fetcher
from rmqpy.client.pull.first_positions import FirstPosition, FirstPositions
from rmqpy.client.reports import outages
from rmqpy.client.routes import Route
from rmqpy.config.arguments import RANGES, check_types
from rmqpy.config.client import seconds
from rmqpy.config.ends import End, end_of
from rmqpy.message import Filter, MessageQueue
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.remoting.client import Caller, check_transport

log = logging.getLogger(__name__)

MAX_BATCH: Final = 256
AUTO_COMMIT_S: Final = 5.0

Place = int | End | datetime


class _Commit(NamedTuple):
    """A commit in flight, checked later."""

    ask: UpdateConsumerOffset
    address: str
    call: Call


class Cursor:
    """One consumer's position over one caller. For one thread, or one task, at a time."""

    def __init__(
        self,
        cluster: ClusterConnection,
        caller: Caller,
        group: str,
        auto_commit: bool | float,
        start_from: StartFrom,
        max_batch: int,
        observers: Sequence[ReceiveObserver] = (),
    ) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._max_batch = max_batch
        self._observers = observers
        self._commit_every = AUTO_COMMIT_S if auto_commit is True else float(auto_commit)
        self._commit_at = time.monotonic() + self._commit_every
        #: Offsets that brokers have acknowledged.
        self._committed: dict[MessageQueue, int] = {}
        self._commits: dict[MessageQueue, _Commit] = {}
        #: Offsets last sent to brokers.
        self._asked: dict[MessageQueue, int] = {}
        #: The messages of the last batch that an iteration has not yielded yet.
        self._left: deque[ReceivedMessage] = deque()
        self._places = Places(cluster, caller)
        self._stored = BrokerOffsets(self._places, group)
        self.beginnings = Beginnings(start_from, self._stored.has_any)
        self._first = FirstPositions(cluster, caller, group, self.beginnings)
        # Only committed progress is compared, so the start of a queue without progress does not matter.
        self._compared = FirstPositions(cluster, caller, group, Beginnings("earliest", self._stored.has_any))
        self._fetcher = Fetcher(caller, cluster.routes, group)
        #: Set if a group assigns the queues.
        self._follower: Follower | None = None
        self._has_let_go = False
        self._left_group: Future[None] = Future()
        self._left_group.set_result(None)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted. Raises `TopicNotFound`."""
        return list(await self._see(topic))

    async def assign(self, queues: Iterable[MessageQueue], tags: Filter = "*") -> None:
        """Read exactly these queues; queues assigned before keep their position.

        `tags`: only messages with one of these tags, `"paid || refunded"`, or `rmqpy.sql(…)`.
        """
        if self._follower is not None:
            raise RuntimeError("assign() cannot follow subscribe(): use another consumer")
        check_types(tags=(tags, Filter))
        check_filter(tags)
        check_types(queues=(queues, Iterable))
        chosen, known = list(queues), self.positions()
        for queue in chosen:
            check_types(queues=(queue, MessageQueue))
        for topic in {queue.topic for queue in chosen}:
            await self._see(topic)
        begun = self._begun(await self._first.find([one for one in chosen if one not in known], None))
        positions = {queue: known[queue] if queue in known else begun[queue] for queue in chosen}
        self._fetcher.assign(positions, {queue.topic: tags for queue in chosen})

    def follow(self, follower: Follower) -> None:
        """Read the queues that the group assigns to this member."""
        self._follower = follower
        self._fetcher.follow(follower.subscriber.doubt)

    async def take(
        self, queues: Collection[MessageQueue], filters: Mapping[str, Filter]
    ) -> frozenset[MessageQueue]:
        """Read these queues as well; return those that can be started now."""
        begun = self._begun(await self._first.find(sorted(queues), LOOK_S))
        self._fetcher.assign({**self.positions(), **begun}, filters)
        return frozenset(begun)

    def keep(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading all queues but these."""
        self._fetcher.keep(queues)

    async def commit_these(self, queues: frozenset[MessageQueue]) -> frozenset[MessageQueue]:
        """Commit these queues; return those that brokers have acknowledged."""
        await self._settle()
        wanted = {queue: at for queue, at in self.positions().items() if queue in queues}
        try:
            await self._commit(wanted)
        except errors.RocketMQError as error:
            log.warning("releasing queues without a final commit: %s", error)
        return frozenset(queue for queue, at in wanted.items() if self._committed.get(queue) == at)

    async def compare(
        self, queues: Collection[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], frozenset[MessageQueue]]:
        """Split queues by whether their progress is still this consumer's commit. A broker that does not answer is
        queried again at the next call."""
        found = await self._compared.find(sorted(queues), LOOK_S)
        same = frozenset(
            queue
            for queue, first in found.items()
            if (first.offset if first.is_committed else None)
            in (self._committed.get(queue), self._asked.get(queue))
        )
        return same, frozenset(found) - same

    async def sleep(self, seconds: float) -> None:
        await self._caller.sleep(seconds)

    async def until(self, done: Future[None], seconds: float) -> bool:
        return await self._caller.until(done, seconds)

    async def poll(
        self, timeout: float | timedelta = 1.0, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return buffered messages, or the first to arrive within `timeout` seconds; otherwise an empty list.

        Transient failures are retried and logged; persistent ones are raised. Cancelling the call loses no message.
        Raises `RuntimeError` if nothing is subscribed or assigned.
        """
        check_types(max_messages=(max_messages, int | None))
        self._take_back()
        deadline = time.monotonic() + seconds(timeout)
        began = time.time() if self._observers else 0.0
        while True:
            slice_s = await self._look(deadline)
            messages = await self._fetcher.next(max_messages or self._max_batch, slice_s)
            if messages or time.monotonic() >= deadline:
                if messages and self._observers:
                    tell_received(self._observers, messages, began)
                return messages

    async def arrow(self, timeout: float | timedelta = 1.0, columns: Columns | None = None) -> ArrowBatch:
        """Return all buffered messages as Arrow data. Empty if none arrived in time."""
        self._take_back()
        columns = columns or Columns()
        deadline = time.monotonic() + seconds(timeout)
        while True:
            slice_s = await self._look(deadline)
            await self._fetcher.next_columns(columns, slice_s)
            if columns.num_rows or time.monotonic() >= deadline:
                return columns.take()

    async def _look(self, deadline: float) -> float:
        """Do periodic work before reading. Returns how long to read before the next call."""
        # Messages of earlier calls count as processed now.
        await self._commit_if_due()
        left = max(0.0, deadline - time.monotonic())
        if self._follower is None:
            if not self._fetcher.positions():
                raise RuntimeError("no queues to read: call subscribe(topic) or assign(queues) first")
            return left
        await self._follower.follow()
        return min(left, LOOK_S)

    async def seek(self, queue: MessageQueue, offset: Place) -> None:
        """Continue an assigned queue at an offset, at its start or end, or at the first message stored at a time."""
        check_types(queue=(queue, MessageQueue))
        if isinstance(offset, datetime):
            at = await self.offset_at(queue, offset)
        elif (end := end_of(offset)) is not None:
            at = await self._places.find(queue, "earliest" if end == "begin" else "latest")
        elif isinstance(offset, int) and RANGES["offset"].fault(offset) is None:
            at = offset
        else:
            raise ValueError(f"seek to an offset, 'begin', 'end' or a datetime, not to {offset!r}")
        self._take_back()
        self._fetcher.seek(queue, at)

    def position(self, queue: MessageQueue) -> int:
        self._fetcher.position(queue)
        return self.positions()[queue]

    def positions(self) -> dict[MessageQueue, int]:
        """Return the offset after the last message received, for all queues. Any thread."""
        return {**self._fetcher.positions(), **_begins(self._left.copy())}

    def one_by_one(self, messages: Iterable[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        """Yield the messages of a poll; each counts as received when it is yielded."""
        self._left = left = deque(messages)
        while left:
            yield left.popleft()

    def assignment(self) -> frozenset[MessageQueue]:
        return frozenset(self._fetcher.positions())

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        chosen = frozenset(queues)
        self._fetcher.pause(chosen, is_paused)
        if is_paused:
            # Includes messages that an iteration has not yielded yet.
            self._take_back(chosen)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset, or `None` if there is none."""
        return await self._stored.load(queue)

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the broker's first offset, and the offset after its last message."""
        return await self._places.find(queue, "earliest"), await self._places.find(queue, "latest")

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Return the offset of the first message stored at or after a time."""
        return await self._places.find(queue, when)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store the received offsets, or these offsets, as the group's progress. Returns when brokers have them.

        Raises `QueueLost` if another member owns some of the queues now; the other queues are committed.
        """
        check_types(offsets=(offsets, Mapping | None))
        for at in (offsets or {}).values():
            check_types(offset=(at, int))
        await self._settle()
        await self._commit(self._uncommitted() if offsets is None else offsets, is_asked=offsets is not None)

    async def _commit(self, wanted: Mapping[MessageQueue, int], *, is_asked: bool = False) -> None:
        """Commit concurrently. `is_asked`: the user named the offsets, so a deleted topic is an error."""
        lost = await self._lost(wanted)
        failure: errors.RocketMQError | None = None
        sent: dict[MessageQueue, _Commit] = {}
        for queue in (queue for queue in wanted if queue not in lost):
            try:
                route = await self._cluster.routes.subscribe(queue.topic, self._caller)
                sent[queue] = self._send_commit(route, queue, wanted[queue])
            except errors.RocketMQError as error:
                # The other queues are committed anyway.
                if is_asked or not isinstance(error, errors.TopicNotFound):
                    failure = failure or error
        for queue, commit in sent.items():
            await self._caller.wait(commit.call)
            refusal = self._failure(queue, commit)
            if isinstance(refusal, errors.GroupNotFound) and self._follower is not None:
                refusal = await self._commit_again(self._follower, queue, commit)
            if is_asked or not isinstance(refusal, errors.TopicNotFound):
                failure = failure or refusal
        if failure is not None:
            raise failure
        if lost:
            raise errors.QueueLost(
                f"{', '.join(map(str, lost))} belongs to another member of the group now",
                topic=lost[0].topic,
                hint="what was not committed is delivered to it",
            )

    async def _commit_again(
        self, follower: Follower, queue: MessageQueue, commit: _Commit
    ) -> errors.RocketMQError | None:
        """Retry a commit whose broker did not know the group: it was unreachable when the member joined, and is
        notified now."""
        await follower.announce()
        route = await self._cluster.routes.subscribe(queue.topic, self._caller)
        again = self._send_commit(route, queue, commit.ask.commit_offset)
        await self._caller.wait(again.call)
        return self._failure(queue, again)

    async def close(self, *, is_committing: bool = True) -> None:
        try:
            if self._commit_every and is_committing:
                await self.commit()
            else:
                await self._settle()
        except errors.QueueLost as error:
            # The member that owns the queue now began at our last commit.
            log.warning("closing without a final commit: %s", error)
        finally:
            left = self.let_go()
        await self._caller.until(left, 2 * self._cluster.config.request_timeout)

    def let_go(self) -> Future[None]:
        """Release everything without a final commit; the future is done when brokers know that the member has left.
        Does not wait. Idempotent."""
        if not self._has_let_go:
            self._has_let_go = True
            self._fetcher.close()
            self._first.close()
            self._compared.close()
            self._cluster.release()
            if self._follower is not None:
                self._left_group = self._follower.subscriber.leave()
        return self._left_group

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _see(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic, and note them as seen by this consumer."""
        try:
            readable = (await self._cluster.routes.subscribe(topic, self._caller)).readable
        except errors.TopicNotFound:
            self.beginnings.see({topic: ()})
            raise
        self.beginnings.see({topic: readable})
        return readable

    def _begun(self, found: Mapping[MessageQueue, FirstPosition]) -> dict[MessageQueue, int]:
        """Return the offsets to begin at."""
        self._committed.update((queue, first.offset) for queue, first in found.items() if first.is_committed)
        return {queue: first.offset for queue, first in found.items()}

    def _take_back(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Read messages of the last batch again that were not yielded; only those of `queues`, if given."""
        kept = [] if queues is None else [one for one in self._left if one.queue not in queues]
        for queue, offset in _begins(self._left).items():
            if queue in self._fetcher.positions() and (queues is None or queue in queues):
                self._fetcher.seek(queue, offset)
        # Cleared in place, because an iteration reads from it.
        self._left.clear()
        self._left.extend(kept)

    def _uncommitted(self) -> dict[MessageQueue, int]:
        return {queue: at for queue, at in self.positions().items() if self._committed.get(queue) != at}

    async def _lost(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Return the queues that another member owns now."""
        return [] if self._follower is None else await self._follower.lost(queues)

    async def _commit_if_due(self) -> None:
        """Start commits without waiting; the next call checks their outcome."""
        if not self._commit_every or time.monotonic() < self._commit_at:
            return
        if self._follower is not None and not self._follower.subscriber.is_fresh:
            # The subscriber's thread queries the group; commit at a later call.
            return
        self._commit_at = time.monotonic() + self._commit_every
        for queue in [queue for queue, commit in self._commits.items() if commit.call.done()]:
            self._note(queue, self._commits.pop(queue))
        wanted = self._uncommitted()
        lost = await self._lost(wanted)
        for queue, offset in wanted.items():
            if queue in lost or queue in self._commits:
                continue
            route = self._cluster.routes.cached(queue.topic, self._caller)
            if route is None:
                continue
            try:
                self._commits[queue] = self._send_commit(route, queue, offset)
            except errors.ConnectError as error:
                outages.warn(log, error, "commit of %s failed, retrying", queue)

    def _send_commit(self, route: Route, queue: MessageQueue, offset: int) -> _Commit:
        self._asked[queue] = offset
        ask = commitment(self._group, queue, offset)
        address = route.reader(route.home(queue))
        timeout = self._cluster.config.request_timeout
        return _Commit(ask, address, self._caller.begin(address, ask, timeout=timeout))

    async def _settle(self) -> None:
        """Wait until every commit in flight has ended."""
        while self._commits:
            queue, commit = self._commits.popitem()
            await self._caller.wait(commit.call)
            self._note(queue, commit)

    def _note(self, queue: MessageQueue, commit: _Commit) -> None:
        error = self._failure(queue, commit)
        if error is not None and not isinstance(error, errors.TopicNotFound):
            outages.warn(log, error, "commit of %s failed, retrying", queue)

    def _failure(self, queue: MessageQueue, commit: _Commit) -> errors.RocketMQError | None:
        """Return the failure of a finished commit, or note its success. A commit in a deleted topic counts as success,
        because no progress is kept there."""
        ask, address, call = commit
        failure = None
        try:
            check_transport(call, address)
            self._caller.read(ask, call, address)
        except errors.TopicNotFound as error:
            log.info("dropping the progress in %s: the topic was deleted", queue)
            self._cluster.routes.doubt(queue.topic, is_gone=True)
            failure = error
        except errors.RocketMQError as error:
            self._cluster.routes.doubt(queue.topic)
            # The offset stays uncommitted.
            return error
        self._committed[queue] = ask.commit_offset
        return failure


def _begins(messages: Iterable[ReceivedMessage]) -> dict[MessageQueue, int]:
    """Return the first offset of each queue."""
    found: dict[MessageQueue, int] = {}
    for message in messages:
        found.setdefault(message.queue, message.queue_offset)
    return found
