"""Consumer progress: the ends of queues and the positions of groups, for every query about progress.

Owns nothing; reads the store and the committed offsets. Invariant: an unknown value is 0, as tools expect.
`time_before` and `of` may read from the disk: call them in a worker, the rest anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqpy._native import Offsets
from rmqpy.control.groups.queues import Queues
from rmqpy.protocol.requests.offsets import ConsumeOffset
from rmqpy.protocol.requests.queues import MessageQueue


class Given(NamedTuple):
    """Messages that were sent to groups, by group, topic and queue."""

    #: The offset after the last one.
    next: Mapping[tuple[str, str, int], int]
    #: Popped messages that are not finished.
    in_flight: Mapping[tuple[str, str, int], int]


class ConsumerProgress:
    """The queues of one broker, and the progress of groups in them."""

    def __init__(
        self,
        broker_name: str,
        queues: Queues,
        offsets: Offsets,
        fetch_positions: Callable[[], Mapping[tuple[str, str, int], int]],
        in_flight: Callable[[], Mapping[tuple[str, str, int], int]],
    ) -> None:
        """`in_flight` returns popped messages that are not finished, by group, topic and queue."""
        self.queues = queues
        self.offsets = offsets
        self._broker_name = broker_name
        self._fetch_positions = fetch_positions
        self._in_flight = in_flight

    def named(self, topic: str, queue_id: int) -> MessageQueue:
        """Return a queue in the form of reply bodies."""
        return MessageQueue(broker_name=self._broker_name, queue_id=queue_id, topic=topic)

    def end(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message."""
        return max(0, self.queues.max_offset(topic, queue_id))

    def time_before(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of the message before `offset`, in ms."""
        return max(0, self.queues.store_time(topic, queue_id, offset - 1)) if offset > 0 else 0

    def given(self) -> Given:
        """Return what the groups that consume have received."""
        return Given(self._fetch_positions(), self._in_flight())

    def of(self, group: str, topic: str, queues: int, given: Given) -> dict[MessageQueue, ConsumeOffset]:
        """Return the progress of a group in the first queues of a topic."""
        found = {}
        for queue_id in range(queues):
            position = max(0, self.offsets.query(group, topic, queue_id) or 0)
            end = self.end(topic, queue_id)
            at = (group, topic, queue_id)
            # A group that was reset receives finished messages again.
            pulled = max(position, min(end, given.next.get(at, 0)))
            found[self.named(topic, queue_id)] = ConsumeOffset(
                broker_offset=end,
                consumer_offset=position,
                # The committed offset of a group that pops is ahead of its messages in flight.
                pull_offset=pulled + given.in_flight.get(at, 0),
                last_timestamp=self.time_before(topic, queue_id, position),
            )
        return found
