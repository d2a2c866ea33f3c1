"""Offsets as JSON, such as `{"topic": {"broker": {"0": 120}}}`, in options and checkpoints.

Pure: imports neither PySpark nor the network. An offset is the next one to read. -2 stands for the earliest message
that a broker holds, and -1 for the end after its latest. Generated text is canonical (keys sorted at every level, no
spaces), because Spark compares offsets as text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

#: Stand-ins for an offset.
EARLIEST = -2
LATEST = -1
#: Stands for the offsets that a group has committed, for all queues together.
GROUP = -3

#: The version of offsets in checkpoints. Newer connectors write a larger one.
VERSION = 1


class Queue(NamedTuple):
    """The name of a queue. Picklable, sortable, and without addresses, which executors look up."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class Range(NamedTuple):
    """Messages of a queue from `start` up to, not including, `end`."""

    queue: Queue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The number of offsets, which is the maximum number of messages."""
        return self.end - self.start


#: The start or end of a read: a stand-in for every queue, or an offset or stand-in for each named queue.
Bound = int | Mapping[Queue, int]


def parse_bound(text: str) -> Bound:
    """Parse `earliest` or `begin`, `latest` or `end`, or offsets by topic, broker and queue id. Raises `ValueError`."""
    match text.strip().lower():
        case "earliest" | "begin":
            return EARLIEST
        case "latest" | "end":
            return LATEST
    return parse_offsets(text)


def parse_offsets(text: str) -> dict[Queue, int]:
    """Parse nested JSON into a flat mapping. Raises `ValueError` that names the invalid part."""
    return flatten(loads(text), _offset)


def loads(text: str) -> Mapping[str, Any]:
    """Parse a JSON object by topic. Raises `ValueError`."""
    try:
        nested = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON or a word such as latest: {error}") from None
    return _object(nested, "topics")


def flatten(nested: Mapping[str, Any], value_of: Callable[[Any], int]) -> dict[Queue, int]:
    """Join topic, broker and queue id into one key. Raises `ValueError` that names the invalid part."""
    flat: dict[Queue, int] = {}
    for topic, brokers in nested.items():
        for broker, queues in _object(brokers, f"brokers of {topic!r}").items():
            for queue_id, value in _object(queues, f"queues of {topic!r} on {broker!r}").items():
                if not (queue_id.isascii() and queue_id.isdigit() and str(int(queue_id)) == queue_id):
                    raise ValueError(f"queue id {queue_id!r} of {topic!r} on {broker!r} is not a number")
                try:
                    flat[Queue(topic, broker, int(queue_id))] = value_of(value)
                except ValueError as error:
                    raise ValueError(f"{topic}/{broker}/{queue_id}: {error}") from None
    return flat


def nest(offsets: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return the nested form in a fixed order, so that equal offsets are equal text."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    # Ids are sorted as text, like `sort_keys` does.
    for queue in sorted(offsets, key=lambda each: (each.topic, each.broker, str(each.queue_id))):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def format_offsets(offsets: Mapping[Queue, int]) -> str:
    """Format offsets as the canonical text that `parse_offsets` reads."""
    return json.dumps(nest(offsets), separators=(",", ":"), ensure_ascii=False)


class Begin(NamedTuple):
    """The state in which a stream began. It distinguishes new queues from those whose broker was missing then."""

    #: The brokers that listed their queues. Their later queues are new, and read from their beginning.
    brokers: tuple[str, ...]
    #: The store time in milliseconds from which queues of other brokers are read. `None`: the start in the options.
    since_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form in a checkpoint."""
        since = {} if self.since_ms is None else {"ms": self.since_ms}
        return {"brokers": sorted(self.brokers), **since}

    @classmethod
    def of_json(cls, value: object) -> "Begin":
        """Parse the form in a checkpoint. Raises `ValueError`."""
        fields = _object(value, "start of the query")
        brokers, since_ms = fields.get("brokers"), fields.get("ms")
        if not isinstance(brokers, list) or not (since_ms is None or type(since_ms) is int):
            raise ValueError(f"{json.dumps(value)[:200]} is not the start of a query")
        return cls(tuple(map(str, brokers)), since_ms)


class Position(NamedTuple):
    """The position of a stream in a checkpoint.

    The end of a query's first batch includes its start. After a crash in that batch Spark computes the start again, and
    `latest` has moved by then. The same holds for a batch that adds queues which are not read from their beginning.
    """

    queues: Mapping[Queue, int]
    is_first: bool = False
    begun_at: Mapping[Queue, int] | None = None
    #: `None` for a query that an older connector began.
    begin: Begin | None = None
    #: The ends of the topics, for lag, if messages remain and Spark's progress has no room for them.
    ends: Mapping[Queue, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores. Equal positions become equal text."""
        value: dict[str, Any] = {"v": VERSION, "queues": nest(self.queues)}
        if self.is_first:
            value["first"] = True
        if self.begun_at is not None:
            value["from"] = nest(self.begun_at)
        if self.begin is not None:
            value["begin"] = self.begin.to_json()
        if self.ends is not None:
            value["ends"] = nest(self.ends)
        return value

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> "Position":
        """Parse a position. Raises `ValueError` if a newer connector or another source wrote it."""
        version = value.get("v")
        if type(version) is not int:
            raise ValueError(f"not an offset of the rocketmq source: {json.dumps(value)[:200]}")
        if version > VERSION:
            raise ValueError(
                f"a newer pyspark-rocketmq wrote this checkpoint (offsets of version {version}): "
                "upgrade pyspark-rocketmq"
            )
        begun_at, begin, ends = value.get("from"), value.get("begin"), value.get("ends")
        return cls(
            flatten(_object(value.get("queues"), "topics"), _offset),
            value.get("first") is True,
            None if begun_at is None else flatten(_object(begun_at, "topics"), _offset),
            None if begin is None else Begin.of_json(begin),
            None if ends is None else flatten(_object(ends, "topics"), _offset),
        )


def bound_of(bound: Bound, queue: Queue, default: int) -> int:
    """Return the bound of a queue. Queues that a mapping leaves out have `default`."""
    return bound if isinstance(bound, int) else bound.get(queue, default)


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object with the {what}, got {value!r}")
    return value


def _offset(value: Any) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice in one object")
    return result
