"""Names of the ends of a queue: begin and end as in RocketMQ's tools, earliest and latest as in Kafka's. Both are
accepted everywhere. Pure."""

from collections.abc import Mapping
from typing import Final, Literal

End = Literal["begin", "end", "earliest", "latest"]

_ENDS: Final[Mapping[str, Literal["begin", "end"]]] = {
    "begin": "begin",
    "earliest": "begin",
    "end": "end",
    "latest": "end",
}


def end_of(word: object) -> Literal["begin", "end"] | None:
    """Return the end that a word names, or `None`.

    >>> end_of("earliest"), end_of("end"), end_of("first")
    ('begin', 'end', None)
    """
    return _ENDS.get(word) if isinstance(word, str) else None
