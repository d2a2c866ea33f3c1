"""Ends of a queue by their names: RocketMQ's tools say begin and end, Kafka's earliest and latest, and each is taken
wherever an end is named. Pure."""

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
    """The end that a word names, `None` for anything else.

    >>> end_of("earliest"), end_of("end"), end_of("first")
    ('begin', 'end', None)
    """
    return _ENDS.get(word) if isinstance(word, str) else None
