"""Offsets as JSON: `{"topic": {"broker": {"0": 120}}}`, from the user's options and back.

Pure: neither PySpark nor the network. An offset is the next one to read; -2 stands for the earliest message that a
broker holds and -1 for the place after its latest. Text made here is canonical (keys sorted at every level, no
spaces), because Spark compares offsets as text.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

#: Stand-ins a user may write for an offset.
EARLIEST = -2
LATEST = -1


class Queue(NamedTuple):
    """The name of one queue: picklable, sortable, and without addresses, which executors look up themselves."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class Range(NamedTuple):
    """Messages of one queue from `start` up to, not including, `end`."""

    queue: Queue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets there are; at most so many messages."""
        return self.end - self.start


#: Where reading begins or ends: a stand-in for every queue, or an offset (or stand-in) for each named one.
Bound = int | Mapping[Queue, int]


def parse_bound(text: str) -> Bound:
    """`earliest`, `latest` or offsets by topic, broker and queue id. Raises `ValueError`."""
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    return parse_offsets(text)


def parse_offsets(text: str) -> dict[Queue, int]:
    """The nested JSON form as a flat mapping. Raises `ValueError` naming the place that is wrong."""
    try:
        nested = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"expected earliest, latest or JSON: {error}") from None
    offsets: dict[Queue, int] = {}
    for topic, brokers in _object(nested, "topics").items():
        for broker, queues in _object(brokers, f"brokers of {topic!r}").items():
            for queue_id, offset in _object(queues, f"queues of {topic!r} on {broker!r}").items():
                if not (queue_id.isascii() and queue_id.isdigit() and str(int(queue_id)) == queue_id):
                    raise ValueError(f"queue id {queue_id!r} of {topic!r} on {broker!r} is not a number")
                if type(offset) is not int or offset < EARLIEST:
                    raise ValueError(f"offset {offset!r} of {topic}/{broker}/{queue_id} is not an offset")
                offsets[Queue(topic, broker, int(queue_id))] = offset
    return offsets


def format_offsets(offsets: Mapping[Queue, int]) -> str:
    """The canonical text of `parse_offsets`'s result: equal offsets give equal text."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in offsets.items():
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = offset
    return json.dumps(nested, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def bound_of(bound: Bound, queue: Queue, default: int) -> int:
    """What `bound` says about one queue; queues a mapping leaves out get `default`."""
    return bound if isinstance(bound, int) else bound.get(queue, default)


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object with the {what}, got {value!r}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return result
