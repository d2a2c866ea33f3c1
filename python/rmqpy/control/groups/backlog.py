"""Backlog: the messages of each group that are not received yet, or received and not finished.

Pure, except for timestamps, which may be read from the store: call it in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: The first offset of a queue, and the offset after its last message.
Bounds = tuple[int, int]


class Backlog(NamedTuple):
    """The backlog of one group in one topic."""

    topic: str
    group: str
    #: Unfinished messages, including those that a filter will skip.
    lag: int
    #: Unfinished messages that the group has received.
    in_flight: int
    #: Unfinished messages that the group has not received.
    ready: int
    #: The age of the oldest unfinished message in ms, or 0.
    lag_ms: int
    #: The age of the oldest message that was not received in ms, or 0.
    queueing_ms: int


def backlogs(
    committed: Mapping[str, Mapping[int, int]],
    reached: Mapping[tuple[str, str, int], int],
    popped: Mapping[tuple[str, str, int], int],
    bounds: Callable[[str], Sequence[Bounds] | None],
    store_time: Callable[[str, int, int], int],
    now_ms: int,
) -> Iterator[Backlog]:
    """Return the backlog of each group in each topic with a commit. It covers all queues of the topic: in a queue
    without a commit all messages count.

    `committed` has offsets by `topic@group` and queue; `reached` has the offset after the last message sent to a group,
    by group, topic and queue; `popped` has the number of popped messages that are not finished, which are behind the
    committed offset; `bounds` are those of a topic's queues, `None` for a deleted topic.
    """
    for key, positions in committed.items():
        topic, _, group = key.partition("@")
        known = bounds(topic)
        if known is None:
            continue
        in_flight = ready = 0
        unfinished, ungiven = [], []
        for queue_id, (begin, end) in enumerate(known):
            # Expired messages are not part of the backlog.
            finished = max(positions.get(queue_id, begin), begin)
            in_flight += popped.get((group, topic, queue_id), 0)
            if finished >= end:
                continue
            # A group that was reset receives finished messages again.
            given = min(max(finished, reached.get((group, topic, queue_id), 0)), end)
            in_flight += given - finished
            ready += end - given
            unfinished.append((queue_id, finished))
            if given < end:
                ungiven.append((queue_id, given))
        oldest = {at: store_time(topic, *at) for at in {*unfinished, *ungiven}}
        yield Backlog(
            topic,
            group,
            in_flight + ready,
            in_flight,
            ready,
            _age(now_ms, [oldest[at] for at in unfinished]),
            _age(now_ms, [oldest[at] for at in ungiven]),
        )


def _age(now_ms: int, stored: Sequence[int]) -> int:
    """Return the age of the oldest stored message, or 0 if none is known."""
    return max(0, now_ms - min((time for time in stored if time > 0), default=now_ms))
