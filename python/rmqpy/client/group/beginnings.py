"""Beginnings: the offset at which a group starts in a queue without progress.

Owns a member's first view of each topic. Invariant: `start_from` applies only to the queues of that view, and only when
the group has no progress in the topic. Any other queue starts at its earliest offset: it appeared after the group
joined, so the group must receive all its messages.

`see` may run in another thread than `place`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from rmqpy.client.group.offsets import StartFrom
from rmqpy.message import MessageQueue
from rmqpy.protocol import names

log = logging.getLogger(__name__)

#: Return whether the group has progress in one of these queues.
HasProgress = Callable[[Collection[MessageQueue]], Awaitable[bool]]


class Beginnings:
    """The start offsets of one member."""

    def __init__(self, start_from: StartFrom, has_progress: HasProgress) -> None:
        self.start_from = start_from
        self._has_progress = has_progress
        #: Topic → its queues in the member's first view. Replaced, never changed.
        self._first: Mapping[str, frozenset[MessageQueue]] = {}
        #: Topic → whether the group had progress in it when this member started its first queue without progress.
        self._progress: dict[str, bool] = {}

    def see(self, readable: Mapping[str, Collection[MessageQueue]]) -> None:
        """Note the queues of topics; an absent topic has none. Only the first view of a topic counts."""
        fresh = {topic: frozenset(queues) for topic, queues in readable.items() if topic not in self._first}
        if fresh:
            self._first = {**self._first, **fresh}

    def keep(self, topics: Collection[str]) -> None:
        """Forget the other topics, so that their next view counts as the first one."""
        if gone := self._first.keys() - set(topics):
            self._first = {topic: queues for topic, queues in self._first.items() if topic not in gone}
            for topic in gone:
                self._progress.pop(topic, None)

    async def place(self, queue: MessageQueue) -> StartFrom:
        """Return the start of a queue without progress."""
        topic = queue.topic
        # A retry topic holds failed messages of this group, so none may be skipped.
        if self.start_from == "earliest" or topic.startswith(names.RETRY_PREFIX):
            return "earliest"
        first = self._first.get(topic, frozenset())
        if queue not in first:
            log.info("%s appeared after this member joined: starting at its earliest offset", queue)
            return "earliest"
        if topic not in self._progress:
            self._progress[topic] = await self._has_progress(sorted(first))
        if self._progress[topic]:
            log.info(
                "%s: starting at its earliest offset, because the group has progress in other queues of the topic",
                queue,
            )
            return "earliest"
        return self.start_from
