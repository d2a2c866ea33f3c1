"""The user's handlers, called safely and counted.

Owns the table of handlers by topic and the figures of `ConsumerStats`. Whatever a handler raises means that its
messages are to be delivered again. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
        self._crew = crew
        self._table: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self.consumed = self.failed = self.discarded = 0

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
        first = messages[0]
        handler = self._table.get(first.topic)
        try:
            if handler is None:
                # Given up a moment ago, or a retry of such a topic: for a member that still reads it.
                verdict = Verdict(messages)
            else:
                argument = list(messages) if self.batch_size > 1 else first
                verdict = judge(await self._crew.invoke(handler, argument), messages)
        except (Exception, SystemExit):
            log.exception(
                "a handler failed with message %s of %s and will get it again", first.message_id, first.topic
            )
            verdict = Verdict(messages)
        with self._lock:
            self.failed += len(verdict.failed)
            if verdict.is_discarded:
                self.discarded += len(messages)
            else:
                self.consumed += len(messages) - len(verdict.failed)
        return verdict

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
