"""First positions: the offsets at which a group's reader starts new queues, from the group's progress or
`Beginnings`.

Owns the queries in flight. All queues are queried at the same time. A broker that does not answer delays only its own
queues, which are retried in the background. Waits through a `Caller`. For one thread, or one task, at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import NamedTuple

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.offsets import place_query, progress_query
from rmqpy.client.reports import outages
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import OffsetReply, QueryConsumerOffset
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.client import Caller, check_transport

log = logging.getLogger(__name__)


class FirstPosition(NamedTuple):
    """The offset to start a queue at, and whether it is the group's progress."""

    offset: int
    is_committed: bool


class _Question:
    """The next query of a queue, or the one in flight."""

    __slots__ = ("address", "answer", "ask", "failures", "has_no_progress", "not_before", "queue", "token")

    def __init__(self, group: str, queue: MessageQueue) -> None:
        self.queue = queue
        self.ask: declare.Request[OffsetReply] = progress_query(group, queue)
        self.address = ""
        #: The request in flight, or 0.
        self.token = 0
        self.failures = 0
        self.not_before = 0.0
        self.answer: FirstPosition | None = None
        #: The group has no progress here, so the start offset is queried next.
        self.has_no_progress = False


class FirstPositions:
    """The first positions of one reader."""

    def __init__(
        self, cluster: ClusterConnection, caller: Caller, group: str, beginnings: Beginnings
    ) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._beginnings = beginnings
        self._inbox = caller.inbox()
        self._questions: dict[MessageQueue, _Question] = {}
        self._token = 0

    async def find(
        self, queues: Collection[MessageQueue], wait_s: float | None
    ) -> dict[MessageQueue, FirstPosition]:
        """Return the first positions that are known. Waits for the current queries, for at most `wait_s`.
        Queries of the other `queues` continue until a later call; queries of queues not listed are dropped.

        `None` waits for all queues and raises the first failure. Otherwise only errors that a user must fix are raised.
        """
        known = self._questions
        self._questions = {queue: known.get(queue) or _Question(self._group, queue) for queue in queues}
        await self._collect(is_strict=wait_s is None)
        asked = [
            one
            for one in self._questions.values()
            # A cancelled call may have left requests in flight.
            if await self._is_started(one, wait_s is None) or (wait_s is None and one.token)
        ]
        until = float("inf") if wait_s is None else time.monotonic() + wait_s
        while any(one.token for one in asked) and (left := until - time.monotonic()) > 0:
            # Each request has its own timeout.
            await self._inbox.wait(min(left, self._cluster.config.request_timeout))
            await self._collect(is_strict=wait_s is None)
        return {
            queue: self._questions.pop(queue).answer  # type: ignore[misc]
            for queue, one in list(self._questions.items())
            if one.answer is not None
        }

    def close(self) -> None:
        """Drop all queries. Idempotent."""
        self._questions.clear()
        self._inbox.close()

    async def _is_started(self, question: _Question, is_strict: bool) -> bool:
        """Start a query, unless one is in flight or answered, or the pause is not over."""
        if question.token or question.answer is not None or question.has_no_progress:
            return False
        if time.monotonic() < question.not_before:
            return False
        try:
            route = await self._cluster.routes.subscribe(question.queue.topic, self._caller)
            question.address = route.reader(route.home(question.queue))
        except errors.RocketMQError as error:
            self._failed(question, error, is_strict)
            return False
        self._start(question)
        return True

    def _start(self, question: _Question) -> None:
        self._token += 1
        question.token = self._token
        sent = self._caller.encode(question.ask)
        self._caller.client.call(
            question.address,
            question.ask.code,
            sent.ext,
            sent.body,
            timeout_ms=round(self._cluster.config.request_timeout * 1000),
            completions=self._inbox.completions,
            token=question.token,
        )

    async def _collect(self, *, is_strict: bool) -> None:
        if self._inbox.completions.is_closed():
            raise errors.ClosedError("the consumer was closed")
        questions = {one.token: one for one in self._questions.values() if one.token}
        for token, call in self._inbox.take():
            question = questions.get(token)
            if question is None:
                continue  # The query was dropped.
            question.token = 0
            try:
                self._read(question, call)
            except errors.RocketMQError as error:
                self._failed(question, error, is_strict)
        for question in list(self._questions.values()):
            if question.has_no_progress:
                await self._ask_place(question, is_strict)

    async def _ask_place(self, question: _Question, is_strict: bool) -> None:
        try:
            place = await self._beginnings.place(question.queue)
        except errors.RocketMQError as error:
            question.has_no_progress = False
            self._failed(question, error, is_strict)
            return
        # Kept until the start offset is known, because a cancelled call must not lose it.
        question.has_no_progress = False
        question.ask = place_query(question.queue, place)
        self._start(question)

    def _read(self, question: _Question, call: Call) -> None:
        check_transport(call, question.address)
        is_progress = isinstance(question.ask, QueryConsumerOffset)
        if is_progress and call.code == ResponseCode.QUERY_NOT_FOUND:
            question.has_no_progress = True
        else:
            offset = self._caller.read(question.ask, call, question.address).offset
            question.answer = FirstPosition(offset, is_progress)

    def _failed(self, question: _Question, error: errors.RocketMQError, is_strict: bool) -> None:
        is_gone = isinstance(error, errors.TopicNotFound)
        self._cluster.routes.doubt(question.queue.topic, is_gone=is_gone)
        if is_strict or not (error.retriable or is_gone):
            self._questions.clear()
            raise error
        outages.warn(log, error, "cannot find the start offset of %s, retrying", question.queue)
        # The group may have committed progress meanwhile.
        question.ask = progress_query(self._group, question.queue)
        question.failures += 1
        question.not_before = time.monotonic() + FAILING.pause_s(question.failures)
