"""Text files: their bytes as UTF-8, and a sentence with the place of whatever is something else.

A file in another encoding must never be read as an empty one, or its settings would silently be the defaults. Pure
functions, callable from any thread.
"""

from __future__ import annotations

import codecs
from typing import Final

#: What an editor puts in front of UTF-8; it is no part of the text.
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_WIDE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
#: Control characters that no editor writes into a text; tabs, line ends and form feeds are left out.
_FOREIGN: Final = frozenset(range(0x20)) - frozenset(b"\t\n\r\f")


def decode(content: bytes) -> str:
    """The text of a file, without its byte-order mark. Raises `ValueError` where it is not UTF-8."""
    check(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _line(content, error.start)
        raise ValueError(
            f"line {where}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def check(content: bytes) -> None:
    """Raise `ValueError` for bytes that are not text in any encoding that extends ASCII."""
    for mark, name in _WIDE_MARKS:
        if content.startswith(mark):
            raise ValueError(f"it is {name} text; save the file as UTF-8")
    if foreign := _FOREIGN.intersection(content):
        at = min(content.index(byte) for byte in foreign)
        reason = "UTF-16, or not text" if content[at] == 0 else "not text"
        raise ValueError(
            f"line {_line(content, at)}: byte 0x{content[at]:02x} is {reason}; save the file as UTF-8"
        )


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1
