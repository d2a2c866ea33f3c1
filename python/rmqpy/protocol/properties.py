"""Properties of a message as requests carry them: one text, each `name 0x01 value 0x02`."""

from __future__ import annotations

from collections.abc import Mapping

_VALUE = "\x01"
_END = "\x02"


def encode(properties: Mapping[str, str]) -> str:
    """The text of properties. Neither names nor values have the two separators."""
    return "".join(f"{name}{_VALUE}{value}{_END}" for name, value in properties.items())


def decode(text: str) -> dict[str, str]:
    """The properties of a text; what is no name with a value is left out."""
    entries = (entry.partition(_VALUE) for entry in text.split(_END) if not entry.isspace())
    return {name: value for name, separator, value in entries if name and separator and value}
