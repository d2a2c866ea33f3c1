"""Java properties format, used by `broker.conf` and `namesrv.conf`.

Owns the syntax: comments, three separators, escapes, continuation lines; the last of equal keys wins. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rmqpy.config import text as texts

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


#: The largest configuration in a request; all keys of Apache's broker take 20 KiB.
REQUEST_CHARS_MAX: Final = 256 << 10


class PropertiesError(ValueError):
    """Text that is not valid properties; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


class Entry(NamedTuple):
    """One `key=value`, its first line, and its span of text without the line end."""

    key: str
    value: str
    line: int
    start: int
    end: int


def decode(data: bytes) -> str:
    """Decode a file: as UTF-8 if valid, else as Latin-1, which Java reads.

    Raises `ValueError` for other text, such as UTF-16: its keys would be unknown, and all settings defaults.
    """
    texts.check(data)
    return data.decode("utf-8-sig" if _is_utf8(data) else "latin-1")


def parse(text: str) -> dict[str, str]:
    """Return keys and values, without blanks around values."""
    return {entry.key: entry.value.strip() for entry in entries(text)}


def parse_request(text: str) -> dict[str, str]:
    """The same for the body of a request, with a limit on its size so that it does not block others."""
    if len(text) > REQUEST_CHARS_MAX:
        raise PropertiesError(1, f"{len(text)} characters, at most {REQUEST_CHARS_MAX} are allowed")
    return parse(text)


def entries(text: str) -> Iterator[Entry]:
    """Yield every entry in file order, including repeated keys."""
    position, number = 0, 1
    while position < len(text):
        start, first = position, number
        logical = ""
        while True:
            line, position = _natural_line(text, position)
            number += 1
            line = line.lstrip(_BLANK)
            if not logical and line[:1] in ("#", "!", ""):
                break
            if not _is_continued(line):
                logical += line
                break
            logical += line[:-1]
            if position >= len(text):
                break
        if logical:
            key, value = _split(logical, first)
            yield Entry(key, value, first, start, _without_line_end(text, start, position))


def replace(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Set keys in a file: existing entries are rewritten in place, new ones appended, other bytes kept.

    Comments may have another encoding. Raises `ValueError` like `decode`.
    """
    texts.check(data)
    mark = texts.BYTE_ORDER_MARK if data.startswith(texts.BYTE_ORDER_MARK) else b""
    is_utf8 = _is_utf8(data)
    # One character per byte, so that spans of the text are spans of the file.
    text = data[len(mark) :].decode("latin-1")
    lines = {key: _line_in(key, value, is_utf8=is_utf8) for key, value in changes.items()}
    found = {entry.key: entry for entry in entries(text)}
    edits = sorted(
        (found[key] for key in changes if key in found), key=lambda entry: entry.start, reverse=True
    )
    for entry in edits:
        text = text[: entry.start] + lines[entry.key] + text[entry.end :]
    end = "\r\n" if "\r\n" in text else "\n"
    added = [lines[key] for key in changes if key not in found]
    if added and text and not text.endswith(("\n", "\r")):
        text += end
    return mark + (text + "".join(entry + end for entry in added)).encode("latin-1")


def written(values: Mapping[str, str]) -> str:
    """Format one line for each key, as `parse` reads it."""
    return "".join(f"{line(key, value)}\n" for key, value in values.items())


def line(key: str, value: str) -> str:
    """Format one entry, escaped for `parse`."""
    return f"{_escape(key, ' =:#!')}={_escape(value, '')}"


def _line_in(key: str, value: str, *, is_utf8: bool) -> str:
    """The bytes of an entry, each as one character, for a file with the encoding that `decode` found."""
    entry = line(key, value)
    if not is_utf8:
        entry = "".join(char if char.isascii() else texts.escaped(char) for char in entry)
    return entry.encode("utf-8").decode("latin-1")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _natural_line(text: str, start: int) -> tuple[str, int]:
    """Return the line at `start` without its end, and the start of the next one."""
    end = start
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    following = end + (2 if text.startswith("\r\n", end) else 1)
    return text[start:end], min(following, len(text))


def _without_line_end(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1] in "\r\n":
        end -= 1
    return end


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(logical: str, number: int) -> tuple[str, str]:
    end = 0
    while end < len(logical) and logical[end] not in "=: \t\f":
        end += 2 if logical[end] == "\\" else 1
    end = min(end, len(logical))
    rest = logical[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return _unescape(logical[:end], number), _unescape(rest, number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(number, f"\\u needs four hexadecimal digits, not {digits!r}")
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    joined = "".join(out)
    # Characters beyond 16 bits are written as two escapes; join the halves.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, special: str) -> str:
    out: list[str] = []
    for index, char in enumerate(text):
        if char == "\\" or char in special or (index == 0 and char == " "):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        else:
            out.append(char)
    return "".join(out)
