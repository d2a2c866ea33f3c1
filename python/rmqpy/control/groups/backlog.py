"""Backlog: the messages that each group was not given yet, or was given and has not finished.

Pure, but for the times of messages, for which the store may have to read: it belongs into a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: The offset of the first message of a queue, and the offset after its last one.
Bounds = tuple[int, int]


class Backlog(NamedTuple):
    """The backlog of one group in one topic."""

    topic: str
    group: str
    #: Messages it has not finished, those a filter will pass over included.
    lag: int
    #: Those of them that it was given.
    in_flight: int
    #: Those of them that it was not given.
    ready: int
    #: Age of the oldest message that is not finished, in ms; 0 where there is none.
    lag_ms: int
    #: The same of the oldest that was not given to it.
    queueing_ms: int


def backlogs(
    committed: Mapping[str, Mapping[int, int]],
    reached: Mapping[tuple[str, str, int], int],
    bounds: Callable[[str], Sequence[Bounds] | None],
    store_time: Callable[[str, int, int], int],
    now_ms: int,
) -> Iterator[Backlog]:
    """The backlog of each group in each topic in which it has committed something, in all queues of the topic: where it
    has committed nothing, every message waits for it.

    `committed` has offsets by `topic@group` and queue, `reached` the offset after the last message that was given to a
    group, by group, topic and queue. `bounds` are those of a topic's queues, None for a topic that is gone.
    """
    for key, positions in committed.items():
        topic, _, group = key.partition("@")
        known = bounds(topic)
        if known is None:
            continue
        lag = ready = 0
        unfinished, ungiven = [], []
        for queue_id, (begin, end) in enumerate(known):
            # Messages that have expired wait no longer.
            finished = max(positions.get(queue_id, begin), begin)
            if finished >= end:
                continue
            # A group that went back is given again what it had finished.
            given = min(max(finished, reached.get((group, topic, queue_id), 0)), end)
            lag += end - finished
            ready += end - given
            unfinished.append((queue_id, finished))
            if given < end:
                ungiven.append((queue_id, given))
        oldest = {at: store_time(topic, *at) for at in {*unfinished, *ungiven}}
        yield Backlog(
            topic,
            group,
            lag,
            lag - ready,
            ready,
            _age(now_ms, [oldest[at] for at in unfinished]),
            _age(now_ms, [oldest[at] for at in ungiven]),
        )


def _age(now_ms: int, stored: Sequence[int]) -> int:
    """Age of the first that was stored; 0 where none is known."""
    return max(0, now_ms - min((time for time in stored if time > 0), default=now_ms))
