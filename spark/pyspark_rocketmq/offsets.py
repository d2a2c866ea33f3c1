"""Offsets as JSON: `{"topic": {"broker": {"0": 120}}}`, from options, into checkpoints and back.

Pure: neither PySpark nor the network. An offset is the next one to read; -2 stands for the earliest message that a
broker holds and -1 for the place after its latest. Text made here is canonical (keys sorted at every level, no
spaces), because Spark compares offsets as text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

#: Stand-ins a user may write for an offset.
EARLIEST = -2
LATEST = -1
#: Stands for what a group has committed; only for all queues together.
GROUP = -3

#: Of the offsets in a checkpoint. A larger one was written by a newer connector.
VERSION = 1


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
        """Number of offsets; at most so many messages."""
        return self.end - self.start


#: Where reading begins or ends: a stand-in for every queue, or an offset (or stand-in) for each named one.
Bound = int | Mapping[Queue, int]


def parse_bound(text: str) -> Bound:
    """`earliest` or `begin`, `latest` or `end`, or offsets by topic, broker and queue id. Raises `ValueError`."""
    match text.strip().lower():
        case "earliest" | "begin":
            return EARLIEST
        case "latest" | "end":
            return LATEST
    return parse_offsets(text)


def parse_offsets(text: str) -> dict[Queue, int]:
    """The nested JSON form as a flat mapping. Raises `ValueError` naming the place that is wrong."""
    return flatten(loads(text), _offset)


def loads(text: str) -> Mapping[str, Any]:
    """A JSON object by topic. Raises `ValueError`."""
    try:
        nested = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON or a word that stands for it: {error}") from None
    return _object(nested, "topics")


def flatten(nested: Mapping[str, Any], value_of: Callable[[Any], int]) -> dict[Queue, int]:
    """Topic, broker and queue id as one key. Raises `ValueError` naming the place that is wrong."""
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
    """The nested form, in one order whatever the mapping's: equal offsets give equal text."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    # Ids are sorted as text, as `sort_keys` would.
    for queue in sorted(offsets, key=lambda each: (each.topic, each.broker, str(each.queue_id))):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def format_offsets(offsets: Mapping[Queue, int]) -> str:
    """The canonical text of `parse_offsets`'s result."""
    return json.dumps(nest(offsets), separators=(",", ":"), ensure_ascii=False)


class Begin(NamedTuple):
    """The circumstances a stream began in: what tells a queue that is new from one whose broker was missing then."""

    #: Names of the brokers that were asked for their queues: what they get later is new, and read from its beginning.
    brokers: tuple[str, ...]
    #: Queues of other brokers are read from the first message stored at that time, in milliseconds; `None`: from where
    #: the options have a queue begin.
    since_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The form in a checkpoint."""
        since = {} if self.since_ms is None else {"ms": self.since_ms}
        return {"brokers": sorted(self.brokers), **since}

    @classmethod
    def of_json(cls, value: object) -> "Begin":
        """Raises `ValueError`."""
        fields = _object(value, "begin of the query")
        brokers, since_ms = fields.get("brokers"), fields.get("ms")
        if not isinstance(brokers, list) or not (since_ms is None or type(since_ms) is int):
            raise ValueError(f"{json.dumps(value)[:200]} does not tell how a query began")
        return cls(tuple(map(str, brokers)), since_ms)


class Position(NamedTuple):
    """Position of a stream, as a checkpoint keeps it.

    The first batch of a query carries the place it was planned from: after a crash in it, Spark computes the first
    offset again, and with `latest` that lies further on by then. So does a batch in which queues join that are not read
    from their beginning.
    """

    queues: Mapping[Queue, int]
    is_first: bool = False
    begun_at: Mapping[Queue, int] | None = None
    #: Not known of a query that an older connector began.
    begin: Begin | None = None

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it: equal positions become equal text."""
        value: dict[str, Any] = {"v": VERSION, "queues": nest(self.queues)}
        if self.is_first:
            value["first"] = True
        if self.begun_at is not None:
            value["from"] = nest(self.begun_at)
        if self.begin is not None:
            value["begin"] = self.begin.to_json()
        return value

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> "Position":
        """Position from a checkpoint. Raises `ValueError` for one of a newer connector, and for any other text."""
        version = value.get("v")
        if type(version) is not int:
            raise ValueError(f"this is no offset of the rocketmq source: {json.dumps(value)[:200]}")
        if version > VERSION:
            raise ValueError(
                f"the checkpoint was written by a newer pyspark-rocketmq, offsets of version {version}: "
                "upgrade this one"
            )
        begun_at, begin = value.get("from"), value.get("begin")
        return cls(
            flatten(_object(value.get("queues"), "topics"), _offset),
            value.get("first") is True,
            None if begun_at is None else flatten(_object(begun_at, "topics"), _offset),
            None if begin is None else Begin.of_json(begin),
        )


def bound_of(bound: Bound, queue: Queue, default: int) -> int:
    """The part of `bound` for one queue; queues a mapping leaves out get `default`."""
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
        raise ValueError("a name stands twice in one object")
    return result
