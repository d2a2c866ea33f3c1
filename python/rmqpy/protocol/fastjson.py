"""JSON in the dialect of Java's fastjson.

Two of fastjson's habits are part of the protocol. Map keys that are not strings are written bare:
`{0:"10.0.0.1:10911"}` and `{{"brokerName":"b","queueId":0,"topic":"t"}:7}`. And its reader accepts single quotes,
comments, trailing commas and unquoted names. `loads` accepts all of it; `dumps` writes bare keys, or strict JSON for
readers that need it.

`loads` always returns keys as text: an integer key as its digits, an object key as an `ObjectKey`, which is the
object's own text.

Pure; any thread. Input is hostile: depth is bounded, and every failure is a `DecodeError`. `loads` never returns lone
surrogates, which an escape may contain, since they could not be written to a file.
"""

import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring as _quote
from typing import Any, Final, NoReturn

from rmqpy.errors import DecodeError
from rmqpy.protocol.codes import ResponseCode

#: The deepest nesting of a document. Real bodies need eight levels; the bound protects our stack.
DEPTH_MAX: Final = 64


class ObjectKey(str):
    """A map key that is itself an object, as compact JSON text."""

    __slots__ = ()


def loads(text: str | bytes) -> Any:
    """Parse one document. The last of duplicate keys wins.

    >>> loads("{0:'a', brokers:[1,2,],}")
    {'0': 'a', 'brokers': [1, 2]}
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _unreadable(f"the text is not UTF-8 at byte {error.start}") from None
    try:
        try:
            tree = _STRICT.decode(text)
        except json.JSONDecodeError as error:
            if text[error.pos : error.pos + 1] not in _BARE_KEY_SIGNS:
                raise
            tree = _STRICT.decode(_BARE_KEY.sub(_quoted_key, text))
    except RecursionError:
        raise _unreadable("the JSON document is nested too deeply") from None
    except ValueError:
        return _Reader(text).document()
    if _HALF.search(text):
        _check_characters(tree)
    return tree


def dumps(value: Any, *, strict: bool = False) -> str:
    """Format compact text; members that are `None` are omitted, as in fastjson.

    >>> dumps({"brokerAddrs": {0: "10.0.0.1:10911"}, "zoneName": None})
    '{"brokerAddrs":{0:"10.0.0.1:10911"}}'
    >>> dumps({"brokerAddrs": {0: "10.0.0.1:10911"}}, strict=True)
    '{"brokerAddrs":{"0":"10.0.0.1:10911"}}'

    Strict text quotes every key and sorts map entries, as name servers do for clients that ask for it.
    """
    parts: list[str] = []
    _write(value, strict, parts)
    return "".join(parts)


def pretty(value: Any) -> str:
    """Format text like RocketMQ's configuration files: tabs, `"key":value`, no line feed at the end.

    Integer keys are quoted here: every release of Java's reader takes them so.
    """
    return json.dumps(value, ensure_ascii=False, indent="\t", separators=(",", ":"))


# ---- reading -------------------------------------------------------------------------------------------

#: Most peers send plain JSON, and the standard parser is at least ten times as fast as this one.
_STRICT: Final = json.JSONDecoder(strict=False)

#: The escape of a surrogate, whose other half should follow.
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")

#: Java's writer deviates only by bare keys: with quotes around them the standard parser can read its text. Strings are
#: matched so that their contents are not mistaken for keys.
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BARE_KEY: Final = re.compile(
    rf"{_STRING}|(?<=[{{,])(\{{(?:[^{{}}\"'/\\]|{_STRING})*\}}|-?\d+)(?=:)", re.DOTALL
)

#: Characters before a bare key of Java's. If something else is wrong, the search for keys, which scans all of the text,
#: is skipped.
_BARE_KEY_SIGNS: Final = frozenset("{-0123456789")

_SPACE: Final = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
#: Characters that do not begin a space or comment.
_SIGNS: Final = frozenset("{}[]:,\"'-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
#: Bare words: names and numbers, which are never this long.
_BARE: Final = re.compile(r"[\w$.+-]{1,1024}")
_PLAIN_STRING: Final = {quote: re.compile(rf"[^{quote}\\]*") for quote in "\"'"}
#: The most common value: an integer with its terminator.
_INTEGER: Final = re.compile(r"-?\d{1,18}(?=[,\]}\s])", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?\Z", re.ASCII)
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None, "NaN": float("nan")}
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    '"': '"', "'": "'", "\\": "\\", "/": "/",
}  # fmt: skip


class _Reader:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            self._fail("nothing more")
        return value

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise _unreadable("the JSON document is nested too deeply")
        first = self._peek()
        if first == '"' or first == "'":
            return self._string(first)
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        return self._word()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while (first := self._peek()) != "}":
            key = self._key(first, depth)
            if self._peek() != ":":
                self._fail("':'")
            self._at += 1
            found[key] = self._value(depth + 1)
            self._end_of_member("}")
        self._at += 1
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._peek() != "]":
            found.append(self._value(depth + 1))
            self._end_of_member("]")
        self._at += 1
        return found

    def _end_of_member(self, end: str) -> None:
        following = self._peek()
        if following == ",":
            self._at += 1
        elif following != end:
            self._fail(f"',' or '{end}'")

    def _key(self, first: str, depth: int) -> str:
        if first == '"' or first == "'":
            return self._string(first)
        if first == "{":
            return ObjectKey(dumps(self._value(depth + 1)))
        return self._bare("a key")

    def _string(self, quote: str) -> str:
        self._at += 1
        end = self._text.find(quote, self._at)
        plain = self._text[self._at : end]
        if end >= 0 and "\\" not in plain:
            self._at = end + 1
            return _paired(plain)
        return self._escaped_string(quote)

    def _escaped_string(self, quote: str) -> str:
        parts: list[str] = []
        while True:
            plain = _PLAIN_STRING[quote].match(self._text, self._at)
            assert plain is not None, "the pattern matches the empty string"
            parts.append(plain.group())
            self._at = plain.end() + 1
            if plain.end() >= len(self._text):
                self._fail(f"a closing {quote}")
            if self._text[plain.end()] == quote:
                return _paired("".join(parts))
            parts.append(self._escape())

    def _escape(self) -> str:
        letter = self._text[self._at : self._at + 1]
        width = {"u": 4, "x": 2}.get(letter)
        if width is None:
            self._at += 1
            return _ESCAPES.get(letter) or self._fail("a known escape")
        digits = self._text[self._at + 1 : self._at + 1 + width]
        self._at += 1 + width
        try:
            return chr(int(digits, 16))
        except ValueError:
            self._fail(f"{width} hexadecimal digits")

    def _word(self) -> object:
        integer = _INTEGER.match(self._text, self._at)
        if integer is not None:
            self._at = integer.end()
            return int(integer.group())
        word = self._bare("a value")
        if word in _WORDS:
            return _WORDS[word]
        if _NUMBER.match(word) is None:
            self._fail("a number, true, false or null")
        return int(word) if word.lstrip("-").isdigit() else float(word)

    def _bare(self, wanted: str) -> str:
        found = _BARE.match(self._text, self._at)
        if found is None:
            self._fail(wanted)
        self._at = found.end()
        return found.group()

    def _peek(self) -> str:
        """The next character after space and comments; empty at the end."""
        sign = self._text[self._at : self._at + 1]
        if sign in _SIGNS:
            return sign
        self._skip()
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None, "the pattern matches the empty string"
        self._at = space.end()

    def _fail(self, wanted: str) -> NoReturn:
        near = self._text[max(0, self._at - 10) : self._at + 20]
        raise _unreadable(f"not JSON at character {self._at}: expected {wanted} near {near!r}")


def _unreadable(why: str) -> DecodeError:
    return DecodeError(why, code=ResponseCode.SYSTEM_ERROR)


def _paired(text: str) -> str:
    """Join surrogates that were escaped separately, as Java escapes characters beyond U+FFFF."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _half(text) from None


def _check_characters(tree: Any) -> None:
    """Raise `DecodeError` if a text in the tree, or a key, has a lone surrogate."""
    rest = [tree]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _half(value) from None
        elif isinstance(value, dict):
            rest += value.keys()
            rest += value.values()
        elif isinstance(value, list):
            rest += value


def _half(text: str) -> DecodeError:
    return _unreadable(f"a text has a lone surrogate: {text[:40]!a}")


def _quoted_key(found: re.Match[str]) -> str:
    key = found[1]
    if key is None:
        return found[0]
    return _quote(dumps(_STRICT.decode(key)) if key.startswith("{") else key)


# ---- writing -------------------------------------------------------------------------------------------


def _write(value: Any, strict: bool, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(_quote(value))
    elif value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int):
        parts.append(int.__repr__(value))
    elif isinstance(value, float):
        parts.append(repr(value))
    elif isinstance(value, Mapping):
        separator = "{"
        for key, member in sorted(value.items()) if strict else value.items():
            if member is None:
                continue
            parts.append(f"{separator}{_key_text(key, strict)}:")
            _write(member, strict, parts)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, list | tuple | set | frozenset):
        separator = "["
        for element in value:
            parts.append(separator)
            _write(element, strict, parts)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _key_text(key: object, strict: bool) -> str:
    if isinstance(key, str) and not (isinstance(key, ObjectKey) and not strict):
        return _quote(key)
    return f'"{key}"' if strict else str(key)
