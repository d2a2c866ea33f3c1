"""Parsers of option values: one for each kind.

Pure: neither PySpark nor the network. A parser takes text and returns a value, or raises `ValueError` with what was
expected; the caller adds the option's name.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyspark_rocketmq.offsets import EARLIEST, GROUP, LATEST, Bound, Queue, flatten, loads, parse_bound


def text(value: str) -> str:
    """Anything but nothing."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def flag(value: str) -> bool:
    """`true` or `false`."""
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def count(minimum: int) -> Callable[[str], int]:
    """A whole number of at least `minimum`."""

    def parse(value: str) -> int:
        number = int(value) if re.fullmatch(r"\d{1,18}", value.strip()) else -1
        if not number >= minimum:
            raise ValueError(f"expected a whole number, at least {minimum}")
        return number

    return parse


def choice(*words: str) -> Callable[[str], str]:
    """One of some words, in their own spelling."""

    def parse(value: str) -> str:
        for word in words:
            if value.strip().lower() == word.lower():
                return word
        raise ValueError(f"expected {' or '.join(words)}")

    return parse


def names(value: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise ValueError("it names nothing")
    return found


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return text(value)


def queues(value: str) -> tuple[Queue, ...]:
    """`{"topic":{"broker":[0,1]}}`."""
    found = []
    for topic, brokers in loads(value).items():
        if not isinstance(brokers, Mapping):
            raise ValueError(f"expected an object with the brokers of {topic!r}")
        for broker, ids in brokers.items():
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise ValueError(f"expected a list of queue ids for {topic!r} on {broker!r}")
            found += [Queue(topic, broker, each) for each in ids]
    if not found:
        raise ValueError("it names no queue")
    return tuple(sorted(set(found)))


def time_ms(value: str) -> int:
    """Milliseconds since 1970, or ISO-8601; UTC where it names no zone."""
    if re.fullmatch(r"\d{1,18}", value.strip()):
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("expected milliseconds since 1970 or ISO-8601, as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def times_ms(value: str) -> Mapping[Queue, int]:
    """Times by topic, broker and queue, each as `time_ms` takes it."""
    found = flatten(loads(value), lambda each: time_ms(str(each)))
    if not found:
        raise ValueError("it names no queue")
    return found


def starting(value: str) -> Bound:
    """A place to begin reading at."""
    return GROUP if value.strip().lower() == "group" else parse_bound(value)


def ending(value: str) -> Bound:
    """A place to end reading at."""
    bound = parse_bound(value)
    if bound == EARLIEST or (isinstance(bound, Mapping) and EARLIEST in bound.values()):
        raise ValueError("a batch that ends at the earliest message reads nothing; expected latest or JSON")
    return bound


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_s(value: str) -> float:
    """`500ms`, `30s`, `15m`, `2h`."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|m|h)", value.strip().lower())
    if match is None:
        raise ValueError("expected a duration, as 500ms, 30s, 15m or 2h")
    return int(match[1]) * _UNITS_S[match[2]]


def shown(value: object) -> str:
    """A default as the documentation shows it."""
    if isinstance(value, float):
        return f"{value / 60:g}m" if value % 60 == 0 else f"{value:g}s"
    words: dict[object, str] = {EARLIEST: "earliest", LATEST: "latest", None: "", (): ""}
    if value in words:
        return words[value]
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
