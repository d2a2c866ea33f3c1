"""Consumer progress: the ends of queues and the positions of groups, of which every answer about progress is made.

Owns nothing; looks at the store and at the committed offsets. Invariant: what is not known is 0, as tools expect it.
The store may have to read: `time_before` and `of` belong into a worker, the rest anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rmqpy._native import Offsets, Store
from rmqpy.protocol.requests.offsets import ConsumeOffset
from rmqpy.protocol.requests.queues import MessageQueue


def by_queue(positions: Iterable[tuple[str, str, int, int]]) -> dict[tuple[str, str, int], int]:
    """Fetch positions by group, topic and queue."""
    return {(group, topic, queue_id): next_ for group, topic, queue_id, next_ in positions}


class ConsumerProgress:
    """The queues of one broker, and the groups in them."""

    def __init__(
        self,
        broker_name: str,
        queues: Store,
        offsets: Offsets,
        fetch_positions: Callable[[], Iterable[tuple[str, str, int, int]]],
    ) -> None:
        self.queues = queues
        self.offsets = offsets
        self._broker_name = broker_name
        self._fetch_positions = fetch_positions

    def named(self, topic: str, queue_id: int) -> MessageQueue:
        """A queue as bodies name it."""
        return MessageQueue(broker_name=self._broker_name, queue_id=queue_id, topic=topic)

    def end(self, topic: str, queue_id: int) -> int:
        """The position after the last message."""
        return max(0, self.queues.max_offset(topic, queue_id))

    def time_before(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of the message before `offset`, in ms."""
        return max(0, self.queues.store_time(topic, queue_id, offset - 1)) if offset > 0 else 0

    def given(self) -> Mapping[tuple[str, str, int], int]:
        """The offset after the last message that a group was given, by group, topic and queue: of those that take
        messages."""
        return by_queue(self._fetch_positions())

    def of(
        self, group: str, topic: str, queues: int, given: Mapping[tuple[str, str, int], int]
    ) -> dict[MessageQueue, ConsumeOffset]:
        """The progress of a group in the first so many queues of a topic."""
        found = {}
        for queue_id in range(queues):
            position = max(0, self.offsets.query(group, topic, queue_id) or 0)
            end = self.end(topic, queue_id)
            # A group that went back is given again what it had finished.
            found[self.named(topic, queue_id)] = ConsumeOffset(
                broker_offset=end,
                consumer_offset=position,
                pull_offset=max(position, min(end, given.get((group, topic, queue_id), 0))),
                last_timestamp=self.time_before(topic, queue_id, position),
            )
        return found
