"""Cursor: positions, commits and places in a queue, for consumers in threads and in event loops.

Owns the progress of the queues a user assigned; `fetcher` reads ahead. Written once, as coroutines over a `Caller`.
Invariant: a commit never passes what the caller has received.
"""

# ruff: noqa: ASYNC109 - nothing is cancelled when a timeout passes
from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from rmqpy import errors
from rmqpy._native import ArrowBatch, Call, Columns, ReceivedMessage
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.fetcher import Fetcher
from rmqpy.client.group.follower import LOOK_S, Follower
from rmqpy.client.group.offsets import BrokerOffsets, Places, StartFrom, commitment
from rmqpy.config.client import seconds
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.remoting.client import Caller, check_transport, read

log = logging.getLogger(__name__)

MAX_BATCH: Final = 256
AUTO_COMMIT_S: Final = 5.0

Place = int | Literal["begin", "end"] | datetime


class Cursor:
    """One consumer over one caller. For one thread, or one task, at a time."""

    def __init__(
        self,
        cluster: ClusterConnection,
        caller: Caller,
        group: str,
        auto_commit: bool | float,
        start_from: StartFrom,
        max_batch: int,
    ) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._start_from = start_from
        self._max_batch = max_batch
        self._commit_every = AUTO_COMMIT_S if auto_commit is True else float(auto_commit)
        self._commit_at = time.monotonic() + self._commit_every
        self._committed: dict[MessageQueue, int] = {}
        self._commits: list[tuple[MessageQueue, UpdateConsumerOffset, str, Call]] = []
        self._places = Places(cluster, caller)
        self._stored = BrokerOffsets(self._places, group)
        self._fetcher = Fetcher(caller, cluster.routes, group)
        #: Present where the queues come from a group, not from the user.
        self._follower: Follower | None = None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read, sorted. Raises `TopicNotFound`."""
        return list((await self._cluster.routes.subscribe(topic, self._caller)).readable)

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """Read these queues and no others; those assigned before go on where they are.

        `tags`: only messages with one of these tags, `"paid || refunded"`.
        """
        if self._follower is not None:
            raise RuntimeError("a consumer that shares the queues of a group is not assigned others")
        chosen = list(queues)
        await self.share(chosen, {queue.topic: tags for queue in chosen})

    def follow(self, follower: Follower) -> None:
        """Read what the group leaves to this member from now on."""
        self._follower = follower

    async def share(self, queues: Iterable[MessageQueue], tags: Mapping[str, str]) -> None:
        known = self._fetcher.positions()
        positions = {
            queue: known[queue] if queue in known else await self._first_position(queue) for queue in queues
        }
        self._fetcher.assign(positions, tags)

    async def commit_these(self, queues: frozenset[MessageQueue]) -> None:
        await self.commit({queue: at for queue, at in self._fetcher.positions().items() if queue in queues})

    async def sleep(self, seconds: float) -> None:
        await self._caller.sleep(seconds)

    async def poll(
        self, timeout: float | timedelta = 1.0, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Messages that lie ready, or the first to arrive within `timeout` seconds; an empty list otherwise.

        Transient failures are retried and logged; what persists is raised. Cancelling it loses no message.
        """
        deadline = time.monotonic() + seconds(timeout)
        while True:
            slice_s = await self._look(deadline)
            messages = await self._fetcher.next(max_messages or self._max_batch, slice_s)
            if messages or time.monotonic() >= deadline:
                return messages

    async def arrow(self, timeout: float | timedelta = 1.0, columns: Columns | None = None) -> ArrowBatch:
        """The same as columns: everything that lies ready, as Arrow data. Empty when nothing came in time."""
        columns = columns or Columns()
        deadline = time.monotonic() + seconds(timeout)
        while True:
            slice_s = await self._look(deadline)
            await self._fetcher.next_columns(columns, slice_s)
            if columns.num_rows or time.monotonic() >= deadline:
                return columns.take()

    async def _look(self, deadline: float) -> float:
        """Do what is due before reading. Returns how long to read then, before looking again."""
        # What an earlier call returned counts as processed now.
        self._commit_if_due()
        left = max(0.0, deadline - time.monotonic())
        if self._follower is None:
            return left
        await self._follower.follow()
        return min(left, LOOK_S)

    async def seek(self, queue: MessageQueue, offset: Place) -> None:
        """Read an assigned queue from an offset, from its begin or end, or from the first message stored at a time."""
        if isinstance(offset, datetime):
            at = await self.offset_at(queue, offset)
        elif offset == "begin":
            at = await self._places.find(queue, "earliest")
        elif offset == "end":
            at = await self._places.find(queue, "latest")
        elif isinstance(offset, int) and offset >= 0:
            at = offset
        else:
            raise ValueError(f"seek to an offset, 'begin', 'end' or a datetime, not to {offset!r}")
        self._fetcher.seek(queue, at)

    def position(self, queue: MessageQueue) -> int:
        return self._fetcher.position(queue)

    def positions(self) -> dict[MessageQueue, int]:
        return self._fetcher.positions()

    def assignment(self) -> frozenset[MessageQueue]:
        return frozenset(self._fetcher.positions())

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        self._fetcher.pause(queues, is_paused)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, `None` when it has none."""
        return await self._stored.load(queue)

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The offsets the broker holds: the first, and the one after the last."""
        return await self._places.find(queue, "earliest"), await self._places.find(queue, "latest")

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at or after a time."""
        return await self._places.find(queue, when)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what has been received, or these offsets, as the group's progress. Returns when brokers have it.

        Raises `QueueLost` when another member owns some of the queues by now; the others are committed.
        """
        wanted = offsets
        if wanted is None:
            received = self._fetcher.positions()
            wanted = {queue: at for queue, at in received.items() if self._committed.get(queue) != at}
        lost = self._follower.lost(wanted) if self._follower is not None else []
        for queue, offset in wanted.items():
            if queue not in lost:
                await self._stored.commit(queue, offset)
                self._committed[queue] = offset
        if lost:
            raise errors.QueueLost(
                f"{', '.join(map(str, lost))} belongs to another member of the group now",
                topic=lost[0].topic,
                hint="what was not committed is delivered to it",
            )

    async def close(self) -> None:
        try:
            if self._commit_every:
                await self.commit()
        except errors.QueueLost as error:
            # The member that has it now began where we committed last.
            log.warning("closing without a last commit: %s", error)
        finally:
            if self._follower is not None:
                self._follower.subscriber.close()
            self._fetcher.close()
            self._cluster.release()

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _first_position(self, queue: MessageQueue) -> int:
        committed = await self.committed(queue)
        if committed is not None:
            self._committed[queue] = committed
            return committed
        # Not `first`: a queue of retries that was assigned by hand is like any other.
        return await self._places.find(queue, self._start_from)

    def _commit_if_due(self) -> None:
        """Start commits without waiting for them; the outcome of the last ones is looked at the next time."""
        if not self._commit_every or time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + self._commit_every
        for queue, ask, address, call in self._commits:
            try:
                check_transport(call, address)
                if call.done():
                    read(ask, call, address)
            except errors.RocketMQError as error:
                self._committed.pop(queue, None)
                log.warning("a commit of %s failed and is repeated: %s", queue, error)
        self._commits.clear()
        for queue, offset in self._fetcher.positions().items():
            if self._committed.get(queue) == offset:
                continue
            route = self._cluster.routes.cached(queue.topic, self._caller)
            if route is None:
                continue
            ask = commitment(self._group, queue, offset)
            sent = declare.encode(ask)
            address = route.reader(queue.broker)
            timeout_ms = round(self._cluster.config.request_timeout * 1000)
            call = self._cluster.client.call(address, ask.code, sent.ext, sent.body, timeout_ms=timeout_ms)
            self._commits.append((queue, ask, address, call))
            self._committed[queue] = offset
