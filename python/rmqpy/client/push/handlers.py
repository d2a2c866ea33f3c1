"""Handlers of the user, called safely and counted.

Owns the table of handlers by topic. Whatever a handler raises means that its messages are to be delivered again. Any
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from rmqpy.client.push.consume_result import DONE, HandlerResult, interpret
from rmqpy.client.push.statistics import ConsumeStatistics, TopicCounts
from rmqpy.client.push.worker_pool import Worker, WorkerPool
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: Gets a message, or a list of them where `batch_size` is more than 1.
Handler = Callable[[Any], Any]


class ConsumerStats(NamedTuple):
    """Totals of a consumer since it began. Numbers of messages."""

    consumed: int
    failed: int
    discarded: int
    #: Fetched and not finished.
    waiting: int
    #: Queues owned now.
    queues: int


class Handlers:
    """Handlers by topic."""

    def __init__(self, pool: WorkerPool[Any], batch_size: int) -> None:
        self.batch_size = batch_size
        self.statistics = ConsumeStatistics()
        self._pool = pool
        self._tables = {worker: self.statistics.table() for worker in pool.workers}
        self._table: dict[str, Handler] = {}

    @property
    def topics(self) -> frozenset[str]:
        """Topics that have a handler."""
        return frozenset(self._table)

    def put(self, topic: str, handler: Handler) -> None:
        """Call `handler` for messages of `topic`."""
        self._table = {**self._table, topic: handler}

    def remove(self, topic: str) -> None:
        """Forget the handler of a topic."""
        self._table = {name: handler for name, handler in self._table.items() if name != topic}

    async def handle(
        self, worker: Worker[Any], topic: str, messages: Sequence[ReceivedMessage]
    ) -> HandlerResult:
        """Call the handler of `topic`; count what the worker has done since it began with these messages. Raises only
        what no handler may raise, such as `KeyboardInterrupt`."""
        handler = self._table.get(topic)
        try:
            if handler is None:
                # Given up a moment ago, or a retry of such a topic: for a member that still reads it.
                result = HandlerResult(messages)
            else:
                answer = handler(messages[0] if self.batch_size == 1 else list(messages))
                result = DONE if answer is None else interpret(await self._pool.settle(answer), messages)
        except (Exception, SystemExit):
            log.exception(
                "a handler failed with message %s of %s and will get it again", messages[0].message_id, topic
            )
            result = HandlerResult(messages)
        counts = self._tables[worker].get(topic) or self._open(worker, topic)
        counts.calls += 1
        counts.call_s += monotonic() - worker.began_at
        if result is DONE:
            counts.consumed += len(messages)
        else:
            self._count(counts, len(messages), result)
        return result

    async def try_out(self, message: ReceivedMessage) -> HandlerResult:
        """Call the handler of a topic that has one, without counting. Raises what it raises."""
        messages = (message,)
        argument = message if self.batch_size == 1 else [message]
        answer = self._table[message.topic](argument)
        return interpret(await self._pool.settle(answer), messages)

    def cut(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """As many from the beginning as have one topic."""
        topic = messages[0].topic
        return messages[: next((at for at, one in enumerate(messages) if one.topic != topic), None)]

    def _open(self, worker: Worker[Any], topic: str) -> TopicCounts:
        counts = self._tables[worker][topic] = TopicCounts()
        return counts

    def _count(self, counts: TopicCounts, count: int, result: HandlerResult) -> None:
        if result.is_discarded:
            counts.discarded += count
        else:
            counts.consumed += count - len(result.failed)
            counts.failed += len(result.failed)
