"""Types of body fields: Spark's DDL, such as `id bigint, items array<struct<sku: string>>`, as Arrow types and back.

Types are those that Spark expects of Arrow: `timestamp` has microseconds in UTC, strings and binaries are not large.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of a type → its function in pyarrow and the arguments.
_WORDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "string": ("string",),
    "binary": ("binary",),
    "boolean": ("bool_",),
    "tinyint": ("int8",),
    "smallint": ("int16",),
    "int": ("int32",),
    "bigint": ("int64",),
    "float": ("float32",),
    "double": ("float64",),
    "date": ("date32",),
    "timestamp": ("timestamp", "us", "UTC"),
    "timestamp_ntz": ("timestamp", "us"),
}
_SYNONYMS: Final = {
    "varchar": "string",
    "text": "string",
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d][\w-]*)|(\d+)|([<>(),:]))")
#: Nesting beyond this is refused.
_DEPTH_MAX: Final = 32


def parse_schema(text: str) -> "pa.StructType":
    """Parse fields with their types. Raises `ConfigError` that shows where.

    >>> ddl(parse_schema("id long, `unit price` decimal(10, 2), tags array<string>"))
    'struct<id: bigint, `unit price`: decimal(10,2), tags: array<string>>'
    """
    reader = _Reader(text)
    if reader.peek("word") == "struct" and reader.peek_next() == "<":
        kind = reader.type(0)
        reader.end()
        return kind
    kind = reader.fields(0, "")
    reader.end()
    return kind


class _Reader:
    """Recursive descent over the tokens of a schema."""

    def __init__(self, text: str) -> None:
        self._pa = pyarrow("a schema of bodies")
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._fault("an unexpected character", at)
            quoted, word, number, sign = match.groups()
            kind, value = next(
                (kind, value)
                for kind, value in (("name", quoted), ("word", word), ("number", number), ("sign", sign))
                if value is not None
            )
            self._tokens.append((kind, value.replace("``", "`") if kind == "name" else value, at))
            at = match.end()
        self._at = 0

    def peek(self, kind: str) -> str | None:
        """Return the next token if it is of this kind."""
        if self._at < len(self._tokens) and self._tokens[self._at][0] == kind:
            value = self._tokens[self._at][1]
            return value.lower() if kind == "word" else value
        return None

    def peek_next(self) -> str | None:
        """Return the token after the next one."""
        return self._tokens[self._at + 1][1] if self._at + 1 < len(self._tokens) else None

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at < len(self._tokens):
            raise self._fault("unexpected text", self._tokens[self._at][2])

    def fields(self, depth: int, closing: str) -> "pa.StructType":
        """Read `name type, …` or `name: type, …`."""
        found: dict[str, Any] = {}
        while True:
            name = self._name()
            self._skip(":")
            if name in found:
                raise ConfigError(f"schema of bodies: field {name!r} appears twice")
            found[name] = self.type(depth + 1)
            if self.peek("word") == "not":
                self._at += 1
                if self.peek("word") != "null":
                    raise self._fault("expected NOT NULL")
                self._at += 1
            if not self._skip(","):
                break
        if closing:
            self._expect(closing)
        return self._pa.struct([self._pa.field(name, kind) for name, kind in found.items()])

    def type(self, depth: int) -> Any:
        """Read one type."""
        if depth > _DEPTH_MAX:
            raise ConfigError(f"schema of bodies: more than {_DEPTH_MAX} levels")
        at = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)
        word = self.peek("word")
        if word is None:
            raise self._fault("expected a type", at)
        self._at += 1
        word = _SYNONYMS.get(word, word)
        if word == "array":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return self._pa.list_(self._pa.field("element", element))
        if word == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            if not self._pa.types.is_string(key):
                raise ConfigError("schema of bodies: the key of a map must be string")
            return self._pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return self.fields(depth, ">")
        if word == "decimal":
            precision, scale = 10, 0
            if self._skip("("):
                precision = self._number()
                scale = self._number() if self._skip(",") else 0
                self._expect(")")
            if not 1 <= precision <= 38 or scale > precision:
                raise ConfigError(f"schema of bodies: decimal({precision},{scale}) is not valid")
            return self._pa.decimal128(precision, scale)
        if word not in _WORDS:
            known = ", ".join([*_WORDS, "decimal(p,s)", "array<…>", "map<string,…>", "struct<…>"])
            raise self._fault(f"unknown type {word!r}; known are {known}", at)
        function, *arguments = _WORDS[word]
        return getattr(self._pa, function)(*arguments)

    def _name(self) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][0] in ("name", "word"):
            self._at += 1
            return self._tokens[self._at - 1][1]
        raise self._fault("expected the name of a field")

    def _number(self) -> int:
        number = self.peek("number")
        if number is None:
            raise self._fault("expected a number")
        self._at += 1
        return int(number)

    def _skip(self, sign: str) -> bool:
        if self.peek("sign") == sign:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._fault(f"expected {sign!r}")

    def _fault(self, what: str, at: int | None = None) -> ConfigError:
        if at is None:
            at = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)
        rest = self._text[at : at + 40].strip()
        return ConfigError(
            f"schema of bodies: {what} at {rest!r}" if rest else f"schema of bodies: {what} at its end"
        )


def ddl(kind: "pa.DataType") -> str:
    """Return the DDL of an Arrow type."""
    pa = pyarrow("a schema of bodies")
    types = pa.types
    if types.is_struct(kind):
        return "struct<" + ", ".join(f"{_quoted(field.name)}: {ddl(field.type)}" for field in kind) + ">"
    if types.is_map(kind):
        return f"map<{ddl(kind.key_type)},{ddl(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    for name, (function, *arguments) in _WORDS.items():
        if kind == getattr(pa, function)(*arguments):
            return name
    raise ConfigError(f"schema of bodies: no type for {kind}")


def fields_ddl(kind: "pa.StructType") -> str:
    """Return the fields of a structure as DDL, without `struct<…>`."""
    return ", ".join(f"{_quoted(field.name)} {ddl(field.type)}" for field in kind)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d]\w*", name) else "`" + name.replace("`", "``") + "`"
