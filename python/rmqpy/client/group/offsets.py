"""Progress of a group in its queues, kept by brokers for all members, or in a file for each member.

Owns how progress is read and written, not when. Two stores have one interface: `BrokerOffsets` for groups that share
queues, `LocalOffsets` for broadcasting, with the file and format of Apache's client. For its caller's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from rmqpy import errors
from rmqpy._native import Call, Namespace
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.reports import outages
from rmqpy.config import files, home
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare, fastjson, namespaces
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests import queues
from rmqpy.protocol.requests.clients import ConsumeFromWhere
from rmqpy.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    ResetOffsets,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from rmqpy.remoting.client import Caller, check_transport

log = logging.getLogger(__name__)

#: The most queries of progress in flight.
QUERIES_MAX: Final = 64

R = TypeVar("R")

StartFrom = Literal["latest", "earliest"] | datetime


class Offsets(ABC):
    """The progress of one group."""

    async def open(self) -> None:  # noqa: B027 - most have nothing to do
        """Prepare the store before any other call."""

    @abstractmethod
    async def load(self, queue: MessageQueue) -> int | None:
        """Return the group's progress, or `None` if it has never committed."""

    @abstractmethod
    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Write progress. Returns the queues whose write failed; the reason is logged."""

    async def has_any(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether the group has progress in one of these queues."""
        for queue in queues:
            if await self.load(queue) is not None:
                return True
        return False


class Places:
    """Queries of brokers for the start and end of a queue and the offset of a time, for threads and event loops."""

    def __init__(self, cluster: ClusterConnection, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller

    async def find(self, queue: MessageQueue, place: StartFrom) -> int:
        """Return the offset of a place: after the last message, at the first, or at the first stored at that time."""
        return (await self.ask(queue, place_query(queue, place))).offset

    async def ask(self, queue: MessageQueue, ask: declare.Request[R]) -> R:
        """Query the broker of the queue. If it is unreachable it may have moved, so its route is refreshed."""
        routes = self._cluster.routes
        route = await routes.subscribe(queue.topic, self._caller)
        address = route.reader(route.home(queue))
        try:
            return await self._caller.ask(address, ask, timeout=self._cluster.config.request_timeout)
        except (errors.ConnectError, errors.TopicNotFound) as error:
            routes.doubt(queue.topic, is_gone=isinstance(error, errors.TopicNotFound))
            raise

    async def has_progress(self, group: str, queues: Collection[MessageQueue]) -> bool:
        """Return whether the group has progress in one of these queues. An unreachable broker counts as having none, so
        that a new group can start at the others."""
        waiting, in_flight = deque(queues), deque[tuple[QueryConsumerOffset, MessageQueue, str, Call]]()
        silent: set[str] = set()
        while waiting or in_flight:
            while waiting and len(in_flight) < QUERIES_MAX:
                queue = waiting.popleft()
                if queue.broker in silent:
                    continue
                route = await self._cluster.routes.subscribe(queue.topic, self._caller)
                address, ask = route.reader(route.home(queue)), progress_query(group, queue)
                timeout = self._cluster.config.request_timeout
                in_flight.append((ask, queue, address, self._caller.begin(address, ask, timeout=timeout)))
            if not in_flight:
                break
            ask, queue, address, call = in_flight.popleft()
            await self._caller.wait(call)
            try:
                check_transport(call, address)
                self._caller.read(ask, call, address)
                return True
            except errors.RocketMQError as error:
                if isinstance(error, errors.BrokerError) and error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                if queue.broker not in silent:
                    outages.warn(log, error, "cannot read the progress of group %s from %s", group, address)
                silent.add(queue.broker)
        return False


class BrokerOffsets(Offsets):
    """Progress that brokers keep."""

    def __init__(self, places: Places, group: str) -> None:
        self._places = places
        self._group = group

    async def load(self, queue: MessageQueue) -> int | None:
        try:
            return (await self._places.ask(queue, progress_query(self._group, queue))).offset
        except errors.BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def has_any(self, queues: Collection[MessageQueue]) -> bool:
        return await self._places.has_progress(self._group, queues)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        done = await asyncio.gather(*(self._is_saved(*one) for one in offsets.items()))
        return {queue for queue, is_saved in zip(offsets, done, strict=True) if not is_saved}

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Write the progress in one queue. Raises if the write fails."""
        await self._places.ask(queue, commitment(self._group, queue, offset))

    async def _is_saved(self, queue: MessageQueue, offset: int) -> bool:
        try:
            await self.commit(queue, offset)
        except errors.TopicNotFound:
            log.info("dropping the progress in %s: the topic was deleted", queue)
        except errors.RocketMQError as error:
            outages.warn(log, error, "commit of %s failed, retrying", queue)
            return False
        return True


class LocalOffsets(Offsets):
    """Progress in a file of this member: `<folder>/<client id>/<group>/offsets.json`, with the previous version in
    `.bak`. Groups and topics have the names that brokers know."""

    def __init__(self, folder: Path, client_id: str, group: str, namespace: Namespace | None = None) -> None:
        group = group if namespace is None else namespace.wrap(group)
        self._file = folder / client_id / group / "offsets.json"
        self._namespace = namespace
        self._table = _read(self._file, namespace)
        #: Held by the thread that writes, which continues after its waiter is cancelled.
        self._writing = threading.Lock()

    async def load(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        self._table.update(offsets)
        try:
            await asyncio.to_thread(self._write)
        except OSError as error:
            log.warning("cannot write the progress to %s: %s", self._file, error)
            return set(offsets)
        return set()

    def _write(self) -> None:
        with self._writing:
            # Writes the newest table, so the order of concurrent writers does not matter.
            _write(self._file, dict(self._table), self._namespace)


def place_query(queue: MessageQueue, place: StartFrom) -> declare.Request[OffsetReply]:
    """Return the request for the offset of a place in a queue."""
    topic, number = queue.topic, queue.queue_id
    if place == "earliest":
        return GetMinOffset(topic=topic, queue_id=number)
    if place == "latest":
        return GetMaxOffset(topic=topic, queue_id=number)
    return SearchOffsetByTimestamp(topic=topic, queue_id=number, timestamp=round(place.timestamp() * 1000))


def progress_query(group: str, queue: MessageQueue) -> QueryConsumerOffset:
    """Return the request for a group's progress; brokers refuse it with `QUERY_NOT_FOUND` if there is none."""
    return QueryConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )


def commitment(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    """Return the request that writes a group's progress."""
    return UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )


def begins(start_from: StartFrom) -> ConsumeFromWhere:
    """Return the start of a group as heartbeats encode it."""
    if start_from == "latest":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    if start_from == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


def default_folder() -> Path:
    """Return the folder in which Apache's client keeps the files of broadcast consumers."""
    return home.folder("the folder of broadcast offsets") / ".rocketmq_offsets"


def _read(file: Path, namespace: Namespace | None) -> dict[MessageQueue, int]:
    for candidate in (file, _backup(file)):
        try:
            found = declare.read_json(ResetOffsets, candidate.read_bytes())
            return (found if namespace is None else namespaces.inward(namespace, found)).by_queue()
        except FileNotFoundError:
            continue
        except (OSError, errors.DecodeError) as error:
            log.warning("cannot read %s, trying its backup: %s", candidate, error)
    return {}


def _write(file: Path, table: Mapping[MessageQueue, int], namespace: Namespace | None) -> None:
    content = ResetOffsets(
        offset_table={queues.named(queue): offset for queue, offset in sorted(table.items())}
    )
    if namespace is not None:
        content = namespaces.outward(namespace, content)
    files.save(file, fastjson.dumps(declare.json_tree(content)))


def _backup(file: Path) -> Path:
    return file.with_name(f"{file.name}.bak")
