"""Parsers of option values: one for each kind.

Pure: imports neither PySpark nor the network. Only `descriptors` reads a file. A parser converts text to a value, or
raises `ValueError` with what it expected. The caller adds the name of the option.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyspark_rocketmq.offsets import EARLIEST, GROUP, LATEST, Bound, Queue, flatten, loads, parse_bound

#: Bytes of a descriptor set.
_DESCRIPTORS_MAX = 16 << 20


def text(value: str) -> str:
    """Parse text that is not empty."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def flag(value: str) -> bool:
    """Parse `true` or `false`."""
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def count(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that are not less than `minimum`."""

    def parse(value: str) -> int:
        number = int(value) if re.fullmatch(r"\d{1,18}", value.strip()) else -1
        if not number >= minimum:
            raise ValueError(f"expected a whole number, at least {minimum}")
        return number

    return parse


def choice(*words: str) -> Callable[[str], str]:
    """Return a parser of one of these words that ignores case."""

    def parse(value: str) -> str:
        for word in words:
            if value.strip().lower() == word.lower():
                return word
        raise ValueError(f"expected {' or '.join(words)}")

    return parse


def engine(value: str) -> str:
    """Parse `python`. Spark does not let a source in Python hand a query to one in the JVM."""
    if value.strip().lower() == "jvm":
        raise ValueError(
            "use format('rocketmq-jvm') without this option, with pyspark_rocketmq.jar() in 'spark.jars'"
        )
    return choice("python")(value)


def character(value: str) -> str:
    """Parse one character, or `\\t` for a tab."""
    found = "\t" if value == "\\t" else value
    if len(found) != 1 or found in '"\r\n':
        raise ValueError("expected one character")
    return found


def descriptors(value: str) -> bytes:
    """Read a descriptor set of Protobuf from a file."""
    try:
        with open(text(value), "rb") as file:
            found = file.read(_DESCRIPTORS_MAX + 1)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    if not found or len(found) > _DESCRIPTORS_MAX:
        raise ValueError(f"the file is {'empty' if not found else 'too large for a descriptor set'}")
    return found


def names(value: str) -> tuple[str, ...]:
    """Parse names separated by commas, and drop repetitions."""
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise ValueError("it has no name in it")
    return found


def pattern(value: str) -> str:
    """Parse a regular expression."""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return text(value)


def queues(value: str) -> tuple[Queue, ...]:
    """Parse queues, such as `{"topic":{"broker":[0,1]}}`."""
    found = []
    for topic, brokers in loads(value).items():
        if not isinstance(brokers, Mapping):
            raise ValueError(f"expected an object with the brokers of {topic!r}")
        for broker, ids in brokers.items():
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise ValueError(f"expected a list of queue ids for {topic!r} on {broker!r}")
            found += [Queue(topic, broker, each) for each in ids]
    if not found:
        raise ValueError("it has no queue in it")
    return tuple(sorted(set(found)))


def time_ms(value: str) -> int:
    """Parse milliseconds since 1970, or ISO-8601, which is UTC unless it has a time zone."""
    if re.fullmatch(r"\d{1,18}", value.strip()):
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(
            "expected milliseconds since 1970 or ISO-8601, such as 2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def times_ms(value: str) -> Mapping[Queue, int]:
    """Parse times by topic, broker and queue, each in a format of `time_ms`."""
    found = flatten(loads(value), lambda each: time_ms(str(each)))
    if not found:
        raise ValueError("it has no queue in it")
    return found


def starting(value: str) -> Bound:
    """Parse the start of a read."""
    return GROUP if value.strip().lower() == "group" else parse_bound(value)


def ending(value: str) -> Bound:
    """Parse the end of a read."""
    bound = parse_bound(value)
    if bound == EARLIEST or (isinstance(bound, Mapping) and EARLIEST in bound.values()):
        raise ValueError("a batch read that ends at the earliest message is empty; expected latest or JSON")
    return bound


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_s(value: str) -> float:
    """Parse a duration, such as `500ms`, `30s`, `15m` or `2h`."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|m|h)", value.strip().lower())
    if match is None:
        raise ValueError("expected a duration, such as 500ms, 30s, 15m or 2h")
    return int(match[1]) * _UNITS_S[match[2]]


def shown(value: object) -> str:
    """Format a default for the documentation."""
    if isinstance(value, float):
        return f"{value / 60:g}m" if value % 60 == 0 else f"{value:g}s"
    words: dict[object, str] = {EARLIEST: "earliest", LATEST: "latest", None: "", (): "", b"": ""}
    if value in words:
        return words[value]
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
