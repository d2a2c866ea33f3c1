"""Schemas from samples: the narrowest types that hold every sampled value.

Numbers widen from bigint to double. Values of different kinds become string. Text stays string, also if it looks like a
time: a later value may not.
"""

import csv
import json
from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.format import BodyFormat
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Messages sampled by default.
SAMPLE_ROWS: Final = 1000
#: Fields of one object beyond this make it unlikely to have a schema.
_FIELDS_MAX: Final = 1000

# An inferred type: None (no value yet), "bool", "int", "float", "str", a dict of fields, or a list with one element
# type.
_Type = Any


def infer(bodies: Iterable[bytes], of: BodyFormat) -> "pa.StructType":
    """Return the schema of sampled bodies. Raises `ConfigError` if none can be decoded."""
    match of.name:
        case "json":
            merged = _of_json(bodies)
        case "csv":
            merged = _of_csv(bodies, of.separator)
        case _:
            raise ConfigError(f"the schema of {of.name} cannot be sampled")
    if not merged:
        raise ConfigError(f"none of the sampled bodies is {of.name}", hint="give a schema of bodies")
    return _arrow(merged)


def _of_json(bodies: Iterable[bytes]) -> _Type:
    merged: _Type = None
    for body in bodies:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and len(value) <= _FIELDS_MAX:
            merged = _merge(merged, _type_of(value))
    return merged


def _of_csv(bodies: Iterable[bytes], separator: str) -> _Type:
    merged: _Type = None
    for body in bodies:
        try:
            records = list(csv.reader(StringIO(body.decode(), newline=""), delimiter=separator, strict=True))
        except (ValueError, csv.Error):
            continue
        if len(records) == 1 and (merged is None or len(records[0]) == len(merged)):
            merged = _merge(merged, {f"_c{at}": _type_of_text(text) for at, text in enumerate(records[0])})
    return merged


def _type_of(value: Any) -> _Type:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "int" if -(1 << 63) <= value < 1 << 63 else "float"
        case float():
            return "float"
        case dict():
            return {str(name): _type_of(each) for name, each in value.items()}
        case list():
            element: _Type = None
            for each in value:
                element = _merge(element, _type_of(each))
            return [element]
    return "str"


def _type_of_text(text: str) -> _Type:
    if text == "":
        return None
    for kind, parse in (("int", int), ("float", float)):
        try:
            parse(text)
        except ValueError:
            continue
        return kind
    return "str"


def _merge(one: _Type, other: _Type) -> _Type:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merge(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str) and {one, other} == {"int", "float"}:
        return "float"
    return "str"


def _arrow(of: _Type) -> Any:
    pa = pyarrow("a sampled schema")
    match of:
        case dict() if of:
            return pa.struct([pa.field(name, _arrow(each)) for name, each in of.items()])
        case list():
            return pa.list_(pa.field("element", _arrow(of[0])))
        case "bool":
            return pa.bool_()
        case "int":
            return pa.int64()
        case "float":
            return pa.float64()
    # Also for fields that are null, or empty objects, in every sampled body.
    return pa.string()
