"""Beginnings: the place where a group begins in a queue in which it has no progress.

Owns a member's first view of each topic. Invariant: `start_from` decides about the queues of that view, and only where
the group has no progress in the topic. Every other queue begins at its earliest offset: it appeared after the group
joined, so that all its messages are for the group.

`see` may run in another thread than `place`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from rmqpy.client.group.offsets import StartFrom
from rmqpy.message import MessageQueue
from rmqpy.protocol import names

log = logging.getLogger(__name__)

#: True when the group has progress in one of these queues.
HasProgress = Callable[[Collection[MessageQueue]], Awaitable[bool]]


class Beginnings:
    """The beginnings of one member."""

    def __init__(self, start_from: StartFrom, has_progress: HasProgress) -> None:
        self.start_from = start_from
        self._has_progress = has_progress
        #: Topic → its queues when this member first saw it. Replaced, never changed.
        self._first: Mapping[str, frozenset[MessageQueue]] = {}
        #: Topic → the group had progress in it when the first queue without progress was begun.
        self._progress: dict[str, bool] = {}

    def see(self, readable: Mapping[str, Collection[MessageQueue]]) -> None:
        """Note the queues of topics; none, of a topic that does not exist. The first time decides."""
        fresh = {topic: frozenset(queues) for topic, queues in readable.items() if topic not in self._first}
        if fresh:
            self._first = {**self._first, **fresh}

    def keep(self, topics: Collection[str]) -> None:
        """Forget all topics but these: the next view of another one is its first."""
        if gone := self._first.keys() - set(topics):
            self._first = {topic: queues for topic, queues in self._first.items() if topic not in gone}
            for topic in gone:
                self._progress.pop(topic, None)

    async def place(self, queue: MessageQueue) -> StartFrom:
        """The place at which to begin with a queue in which the group has no progress."""
        topic = queue.topic
        # Retries are for the group, whenever they came.
        if self.start_from == "earliest" or topic.startswith(names.RETRY_PREFIX):
            return "earliest"
        first = self._first.get(topic, frozenset())
        if queue not in first:
            log.info("%s appeared after this member had joined: it begins at its earliest offset", queue)
            return "earliest"
        if topic not in self._progress:
            self._progress[topic] = await self._has_progress(sorted(first))
        if self._progress[topic]:
            log.info(
                "%s begins at its earliest offset: the group has progress in other queues of the topic", queue
            )
            return "earliest"
        return self.start_from
