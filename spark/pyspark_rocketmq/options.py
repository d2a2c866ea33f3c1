"""Options of the data source: one table that parses, checks and documents them.

Pure: neither PySpark nor the network. Spark hands over a dictionary whose keys are lower case and whose values are
text; `Options.parse` turns it into checked values or says what is wrong, with the nearest name for a misspelt one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Bound, parse_bound


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that cannot be used."""


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def _flag(value: str) -> bool:
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def _count(minimum: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value) if re.fullmatch(r"\d{1,18}", value.strip()) else -1
        if not number >= minimum:
            raise ValueError(f"expected a whole number, at least {minimum}")
        return number

    return parse


def _topics(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise ValueError("it names no topic")
    return names


def _time_ms(value: str) -> int:
    text = value.strip()
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected milliseconds since 1970 or ISO-8601, as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _starting(value: str) -> Bound:
    bound = parse_bound(value)
    if bound == LATEST:
        raise ValueError("a batch that starts at the latest message reads nothing; expected earliest or JSON")
    return bound


def _ending(value: str) -> Bound:
    bound = parse_bound(value)
    if bound == EARLIEST or (isinstance(bound, Mapping) and EARLIEST in bound.values()):
        raise ValueError("a batch that ends at the earliest message reads nothing; expected latest or JSON")
    return bound


def _option(name: str, parse: Callable[[str], Any], default: Any, meaning: str, *also: str) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse, "meaning": meaning, "also": also})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one `load()` was asked for. Field metadata holds the option's name, other spellings and meaning."""

    namesrv: str = _option(
        "nameserver", _text, "", "Name servers, `host:port;host:port`. Required.", "nameServer", "namesrvAddr"
    )
    topics: tuple[str, ...] = _option(
        "subscribe", _topics, (), "Topics to read, separated by commas. Required.", "topic", "path"
    )
    starting: Bound = _option(
        "startingOffsets",
        _starting,
        EARLIEST,
        "`earliest`, or JSON by topic, broker and queue; -2 is earliest.",
    )
    ending: Bound = _option(
        "endingOffsets",
        _ending,
        LATEST,
        "Exclusive: `latest`, or JSON by topic, broker and queue; -1 is latest.",
    )
    starting_ms: int | None = _option(
        "startingTimestamp",
        _time_ms,
        None,
        "First message stored at or after it; wins over `startingOffsets`.",
    )
    ending_ms: int | None = _option(
        "endingTimestamp", _time_ms, None, "Messages stored before it; wins over `endingOffsets`."
    )
    partitions_min: int = _option(
        "minPartitions", _count(1), 1, "At least so many tasks, if there are as many rows."
    )
    partitions_max: int | None = _option("maxPartitions", _count(1), None, "At most so many tasks.")
    partition_rows_max: int | None = _option(
        "maxRecordsPerPartition", _count(1), None, "Longer ranges of a queue are cut."
    )
    pack_rows: int = _option(
        "packRecords",
        _count(0),
        10_000,
        "Short ranges share a task up to so many rows; 0: one task per range.",
    )
    batch_rows: int = _option("fetchBatchRows", _count(1), 10_000, "Rows of one Arrow batch.")
    batch_bytes: int = _option("fetchBatchBytes", _count(1024), 8 << 20, "Bytes of one Arrow batch, roughly.")
    request_timeout_ms: int = _option(
        "requestTimeoutMs", _count(1), 3000, "Patience with one answer of a server."
    )
    is_loss_fatal: bool = _option(
        "failOnDataLoss",
        _flag,
        True,
        "Fail when offsets to be read are no longer there; false: read what is.",
    )
    with_properties: bool = _option(
        "includeProperties", _flag, True, "Whether the default schema has the `properties` map."
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Check what the user gave. Raises `OptionError` for the first thing that is wrong."""
        values: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        for key, text in given.items():
            if key.lower() not in _BY_NAME:
                raise OptionError(_unknown(key))
            attribute, name, parse = _BY_NAME[key.lower()]
            if attribute in values:
                raise OptionError(f"options {spelt[attribute]!r} and {key!r} mean the same: give one of them")
            try:
                values[attribute] = parse(text)
            except ValueError as error:
                raise OptionError(f"option {name!r}: {error} (got {text[:60]!r})") from None
            spelt[attribute] = key
        for attribute in ("namesrv", "topics"):
            if attribute not in values:
                name = _NAMES[attribute]
                raise OptionError(f"option {name!r} is missing: .option({name!r}, ...)")
        options = cls(**values)
        if options.partitions_max is not None and options.partitions_max < options.partitions_min:
            raise OptionError("option 'maxPartitions' is less than 'minPartitions'")
        return options


_NAMES: dict[str, str] = {each.name: each.metadata["name"] for each in fields(Options)}
_BY_NAME: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    spelling.lower(): (each.name, each.metadata["name"], each.metadata["parse"])
    for each in fields(Options)
    for spelling in (each.metadata["name"], *each.metadata["also"])
}


def _unknown(key: str) -> str:
    spellings = {name.lower(): name for name in _NAMES.values()}
    near = get_close_matches(key.lower(), _BY_NAME, 1, cutoff=0.6)
    if near:
        name = _BY_NAME[near[0]][1]
        return f"unknown option {key!r}: did you mean {name!r}?"
    return f"unknown option {key!r}; known are {', '.join(sorted(spellings.values()))}"


def table() -> str:
    """The options as a Markdown table: what the documentation shows."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for each in fields(Options):
        also = f" (also {', '.join(each.metadata['also'])})" if each.metadata["also"] else ""
        words: dict[object, str] = {EARLIEST: "earliest", LATEST: "latest", None: "", (): ""}
        default = words.get(each.default, str(each.default).lower())
        lines.append(f"| {each.metadata['name']}{also} | {default} | {each.metadata['meaning']} |")
    return "\n".join(lines)
