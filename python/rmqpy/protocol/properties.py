"""Message properties in requests: one text, each `name 0x01 value 0x02`."""

from __future__ import annotations

from collections.abc import Mapping

_VALUE = "\x01"
_END = "\x02"


def encode(properties: Mapping[str, str]) -> str:
    """Format properties. Neither names nor values contain the two separators."""
    return "".join(f"{name}{_VALUE}{value}{_END}" for name, value in properties.items())


def decode(text: str) -> dict[str, str]:
    """Parse properties; entries without a name and value are skipped."""
    entries = (entry.partition(_VALUE) for entry in text.split(_END) if not entry.isspace())
    return {name: value for name, separator, value in entries if name and separator and value}
