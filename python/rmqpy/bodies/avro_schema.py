"""Avro schemas: parsed from JSON, with named types resolved, and as Arrow types."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
#: Nesting beyond this is refused, as are types that contain themselves: they have no column type.
_DEPTH_MAX: Final = 32


@dataclass(slots=True)
class AvroType:
    """A type of Avro. Attributes of other kinds of types are empty."""

    kind: str
    logical: str = ""
    #: Fields of a record: name and type.
    fields: list[tuple[str, "AvroType"]] = field(default_factory=list)
    #: Branches of a union.
    branches: list["AvroType"] = field(default_factory=list)
    #: Of an array or a map.
    element: "AvroType | None" = None
    symbols: list[str] = field(default_factory=list)
    #: Bytes of a fixed.
    size: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def nullable(self) -> "tuple[int, AvroType] | None":
        """The null's branch and the other type of a union of two, of which one is null."""
        if self.kind == "union" and len(self.branches) == 2:
            for at, branch in enumerate(self.branches):
                if branch.kind == "null" and self.branches[1 - at].kind != "null":
                    return at, self.branches[1 - at]
        return None


def parse(text: str) -> AvroType:
    """Parse a record's schema. Raises `ConfigError`."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the Avro schema is not JSON: {error}") from None
    found = _Parser().type(given, "", 0)
    if found.kind != "record":
        raise ConfigError(f"the Avro schema is a {found.kind}: bodies need a record")
    return found


class _Parser:
    """Resolves names while it descends."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}

    def type(self, given: Any, space: str, depth: int) -> AvroType:
        """Return the type that a schema names or declares."""
        if depth > _DEPTH_MAX:
            raise ConfigError(f"Avro schema: more than {_DEPTH_MAX} levels")
        if isinstance(given, list):
            return AvroType("union", branches=[self.type(each, space, depth + 1) for each in given])
        if isinstance(given, str):
            return AvroType(given) if given in _PRIMITIVES else self._known(given, space)
        if not isinstance(given, dict) or "type" not in given:
            raise ConfigError(f"Avro schema: {json.dumps(given)[:80]} is not a type")
        kind = given["type"]
        if isinstance(kind, dict | list):
            return self.type(kind, space, depth + 1)
        logical = str(given.get("logicalType", ""))
        precision, scale = given.get("precision", 0), given.get("scale", 0)
        match kind:
            case "record" | "error":
                name, space = self._full(given, space)
                self._named[name] = None
                fields = given.get("fields")
                if not isinstance(fields, list):
                    raise ConfigError(f"Avro schema: record {name!r} has no fields")
                made = AvroType("record")
                for each in fields:
                    if not isinstance(each, dict) or "name" not in each or "type" not in each:
                        raise ConfigError(f"Avro schema: a field of {name!r} has no name or type")
                    made.fields.append((str(each["name"]), self.type(each["type"], space, depth + 1)))
                self._named[name] = made
                return made
            case "enum":
                name, _ = self._full(given, space)
                self._named[name] = AvroType("enum", symbols=[str(each) for each in given.get("symbols", ())])
            case "fixed":
                name, _ = self._full(given, space)
                self._named[name] = AvroType(
                    "fixed", logical=logical, size=int(given["size"]), precision=precision, scale=scale
                )
            case "array":
                return AvroType("array", element=self.type(given.get("items"), space, depth + 1))
            case "map":
                return AvroType("map", element=self.type(given.get("values"), space, depth + 1))
            case _ if kind in _PRIMITIVES:
                return AvroType(kind, logical=logical, precision=precision, scale=scale)
            case _:
                return self._known(str(kind), space)
        return self._known(name, "")

    def _full(self, given: dict[str, Any], space: str) -> tuple[str, str]:
        name = str(given.get("name", ""))
        if "." in name:
            return name, name.rpartition(".")[0]
        space = str(given.get("namespace", space))
        return (f"{space}.{name}" if space else name), space

    def _known(self, name: str, space: str) -> AvroType:
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if full in self._named:
                known = self._named[full]
                if known is None:
                    raise ConfigError(f"Avro schema: {name!r} contains itself, which no column can")
                return known
        raise ConfigError(f"Avro schema: unknown type {name!r}")


def arrow_type(of: AvroType) -> "pa.DataType":
    """Return the type of a column with these values."""
    pa = pyarrow("bodies as Avro")
    match of.kind:
        case "record":
            return pa.struct([pa.field(name, arrow_type(each)) for name, each in of.fields])
        case "union":
            branches = [branch for branch in of.branches if branch.kind != "null"]
            if len(branches) == 1:
                return arrow_type(branches[0])
            kinds = [arrow_type(branch) for branch in branches]
            if kinds and all(pa.types.is_integer(kind) for kind in kinds):
                return pa.int64()
            if kinds and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
                return pa.float64()
            return pa.string()
        case "array" if of.element is not None:
            return pa.list_(pa.field("element", arrow_type(of.element)))
        case "map" if of.element is not None:
            return pa.map_(pa.string(), arrow_type(of.element))
    match of.kind, of.logical:
        case "int", "date":
            return pa.date32()
        case "long", "timestamp-millis" | "timestamp-micros":
            return pa.timestamp("us", "UTC")
        case "long", "local-timestamp-millis" | "local-timestamp-micros":
            return pa.timestamp("us")
        case "bytes" | "fixed", "decimal":
            return pa.decimal128(of.precision, of.scale)
    plain = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "fixed": pa.binary(),
    }
    return plain.get(of.kind, pa.string())
