"""The user's handlers, called safely and counted.

Owns the table of handlers by topic. Whatever a handler raises means that its messages are to be delivered again. Any
thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rmqpy.client.push.meter import Meter
from rmqpy.client.push.verdict import Verdict, judge
from rmqpy.client.push.workers import Crew
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: Gets a message, or a list of them where `batch_size` is more than 1.
Handler = Callable[[Any], Any]


class ConsumerStats(NamedTuple):
    """What a consumer has done since it began. Numbers of messages."""

    consumed: int
    failed: int
    discarded: int
    #: Fetched and not finished.
    waiting: int
    #: Queues owned now.
    queues: int


class Handlers:
    """Handlers by topic."""

    def __init__(self, crew: Crew[Any], batch_size: int) -> None:
        self.batch_size = batch_size
        self.meter = Meter()
        self._crew = crew
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

    async def handle(self, messages: Sequence[ReceivedMessage]) -> Verdict:
        """Call the handler. Raises only what no handler may raise, such as `SystemExit`."""
        topic = messages[0].topic
        handler = self._table.get(topic)
        began_at = time.monotonic()
        try:
            if handler is None:
                # Given up a moment ago, or a retry of such a topic: for a member that still reads it.
                verdict = Verdict(messages)
            else:
                verdict = judge(await self._crew.invoke(handler, self._argument(messages)), messages)
        except (Exception, SystemExit):
            log.exception(
                "a handler failed with message %s of %s and will get it again", messages[0].message_id, topic
            )
            verdict = Verdict(messages)
        self.meter.handled(
            topic, time.monotonic() - began_at, len(messages), len(verdict.failed), verdict.is_discarded
        )
        return verdict

    async def try_out(self, message: ReceivedMessage) -> Verdict:
        """Call the handler of a topic that has one, without counting. Raises what it raises."""
        messages = (message,)
        return judge(await self._crew.invoke(self._table[message.topic], self._argument(messages)), messages)

    def _argument(self, messages: Sequence[ReceivedMessage]) -> Any:
        return list(messages) if self.batch_size > 1 else messages[0]

    def cut(self, messages: Sequence[ReceivedMessage]) -> list[Sequence[ReceivedMessage]]:
        """Batches for `handle`: each of one topic, in order, none too long."""
        if self.batch_size == 1:
            return [(message,) for message in messages]
        batches: list[list[ReceivedMessage]] = []
        for message in messages:
            if batches and len(batches[-1]) < self.batch_size and batches[-1][0].topic == message.topic:
                batches[-1].append(message)
            else:
                batches.append([message])
        return list(batches)
