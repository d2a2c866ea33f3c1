"""Text files: UTF-8 decoding with errors that name the line.

A file in another encoding must never read as empty, or its settings would silently be defaults. Pure; any thread.
"""

from __future__ import annotations

import codecs
from typing import Final

#: The mark that editors put in front of UTF-8, not part of the text.
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_WIDE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
#: Control characters that do not occur in text: all but tabs, line ends and form feeds.
_FOREIGN: Final = frozenset(range(0x20)) - frozenset(b"\t\n\r\f")


def decode(content: bytes) -> str:
    """Return the text of a file without its byte-order mark. Raises `ValueError` if it is not UTF-8."""
    check(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _line(content, error.start)
        raise ValueError(
            f"line {where}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def escaped(text: str) -> str:
    """Return escapes like `\\u00e9` for the 16-bit units of a text, as JSON and Java properties have them.

    >>> escaped("\u00e9\U0001f600")
    '\\\\u00e9\\\\ud83d\\\\ude00'
    """
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def check(content: bytes) -> None:
    """Raise `ValueError` for bytes that are not text in any encoding that extends ASCII."""
    for mark, name in _WIDE_MARKS:
        if content.startswith(mark):
            raise ValueError(f"the file is {name} text; save the file as UTF-8")
    if foreign := _FOREIGN.intersection(content):
        at = min(content.index(byte) for byte in foreign)
        reason = "UTF-16, or not text" if content[at] == 0 else "not text"
        raise ValueError(
            f"line {_line(content, at)}: byte 0x{content[at]:02x} is {reason}; save the file as UTF-8"
        )


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1
