"""Columns as bodies: JSON and CSV that other programs read, and that this package reads back."""

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from rmqpy.bodies.encoding import encode
from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.types import parse_schema
from rmqpy.errors import ConfigError

pa = pytest.importorskip("pyarrow")

JSON = BodyFormat(name="json")
SCHEMA = (
    "id bigint, price double, name string, ok boolean, at timestamp, day date, amount decimal(8,2), raw binary, "
    "tags array<string>, counts map<string,int>, inner struct<a: int, b: array<struct<c: string>>>"
)
ROWS: list[dict[str, Any] | None] = [
    {
        "id": -7,
        "price": 0.1,
        "name": 'a "b" \\ c\n\x01 ü',
        "ok": True,
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "day": date(2026, 1, 31),
        "amount": Decimal("12.50"),
        "raw": b"\x00\xff",
        "tags": ["x", None, "y,z"],
        "counts": [("a", 1), ("b", None)],
        "inner": {"a": 1, "b": [{"c": "d"}, {"c": None}]},
    },
    {"id": None, "price": float("inf"), "name": "", "tags": [], "counts": [], "inner": {}},
    None,
    {"id": 1, "name": "plain"},
]


def structures(schema: str, rows: list[Any]) -> Any:
    return pa.array(rows, parse_schema(schema))


def test_json_is_read_by_others_and_back() -> None:
    # A slice has offsets in each of its buffers.
    values = pa.concat_arrays([structures(SCHEMA, ROWS), structures(SCHEMA, ROWS)]).slice(1, 5)
    bodies = encode(values, JSON)
    assert bodies.type == pa.binary()
    texts = bodies.to_pylist()
    assert texts[1] == b""
    plain, full = json.loads(texts[2]), json.loads(texts[3])
    assert plain == {"id": 1, "name": "plain"}
    assert (full["name"], full["at"], full["amount"]) == (
        ROWS[0]["name"],
        "2026-01-31T12:00:00.123456Z",
        12.5,
    )  # type: ignore[index]
    found = BodyFormat.of("json", SCHEMA).decoder().decode(bodies)
    assert found.bad == {}
    assert found.values.to_pylist() == values.to_pylist()


@pytest.mark.parametrize("separator", [",", ";", "|", "\t", "^"])
def test_csv_is_read_by_others_and_back(separator: str) -> None:
    schema = "id bigint, price double, name string, ok boolean, at timestamp, day date, amount decimal(8,2)"
    rows = [
        {name: row[name] for name in ("id", "price", "name", "ok", "at", "day", "amount") if name in row}
        for row in ROWS
        if row
    ]
    rows[2]["name"] = f"a{separator}b"
    values = structures(schema, rows)
    bodies = encode(values, BodyFormat(name="csv", separator=separator))
    (record,) = csv.reader([bodies[2].as_py().decode()], delimiter=separator)
    assert record == ["1", "", f"a{separator}b", "", "", "", ""]
    found = BodyFormat.of("csv", schema, separator=separator).decoder().decode(bodies)
    assert found.bad == {}
    # CSV does not tell an empty text from a missing one.
    rows[1]["name"] = None
    assert found.values.to_pylist() == structures(schema, rows).to_pylist()


def test_header() -> None:
    assert encode(structures("a int", [{"a": 1}]), JSON, schema_id=258).to_pylist() == [b'\0\0\0\1\2{"a":1}']


def test_what_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match="field 'a' cannot be list<element: int32> in CSV"):
        encode(structures("a array<int>", [None]), BodyFormat(name="csv"))
    with pytest.raises(ConfigError, match="cannot be written as avro"):
        encode(structures("a int", [None]), BodyFormat(name="avro"))
