"""Typed bodies: JSON and CSV by a schema, body by body and as whole columns."""

import json
from decimal import Decimal
from typing import Any

import pytest

from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.inference import infer
from rmqpy.bodies.types import ddl, fields_ddl, parse_schema
from rmqpy.errors import ConfigError

pa = pytest.importorskip("pyarrow")

SCHEMA = (
    "id bigint, price double, name string, at timestamp, ok boolean, parts array<struct<sku: string, n: int>>"
)
GOOD = {
    "id": 7,
    "price": 1.5,
    "name": "grüße",
    "at": "2026-01-31T12:00:00Z",
    "ok": True,
    "parts": [{"sku": "a", "n": 1}, {"sku": None, "n": None}],
    "unknown": {"x": [1, {}]},
}


def decoded(bodies: list[bytes], schema: str, name: str = "json") -> tuple[list[Any], dict[int, str]]:
    found = BodyFormat.of(name, schema).decoder().decode(pa.array(bodies, pa.binary()))
    assert len(found.values) == len(bodies)
    assert found.values.type == parse_schema(schema)
    return found.values.to_pylist(), found.bad


def test_fields_have_the_types_of_the_schema() -> None:
    ((row,), bad) = decoded([json.dumps(GOOD).encode()], SCHEMA)
    assert bad == {}
    assert (row["id"], row["price"], row["name"], row["ok"]) == (7, 1.5, "grüße", True)
    assert row["at"].isoformat() == "2026-01-31T12:00:00+00:00"
    assert row["parts"] == GOOD["parts"]


#: Bodies, and what a field `v` of a type makes of them; an exception type means a body that cannot be decoded.
VALUES = [
    ("bigint", '{"v": 9223372036854775807}', 9223372036854775807),
    ("bigint", '{"v": 9223372036854775808}', ValueError),
    ("bigint", '{"v": 5.0}', ValueError),
    ("bigint", '{"v": "5"}', ValueError),
    ("tinyint", '{"v": 128}', ValueError),
    ("double", '{"v": 5}', 5.0),
    ("double", '{"v": "Infinity"}', float("inf")),
    ("double", '{"v": -Infinity}', float("-inf")),
    ("bigint", '{"v": NaN}', ValueError),
    ("string", '{"v": 5}', "5"),
    ("string", '{"v": {"a": [1, 2]}}', '{"a":[1,2]}'),
    ("boolean", '{"v": 1}', ValueError),
    ("binary", '{"v": "AAE="}', b"\x00\x01"),
    ("decimal(10,2)", '{"v": 3.14}', Decimal("3.14")),
    ("decimal(3,2)", '{"v": 31.4}', ValueError),
    ("map<string,bigint>", '{"v": {"a": 1, "b": null}}', [("a", 1), ("b", None)]),
    ("string", "{}", None),
    ("string", '{"v": null}', None),
    ("string", '{"v": "\\ud83d\\ude00"}', "😀"),
    ("string", '\n { \n "v" : "x" } \n', "x"),
    ("string", '{"v": 1}{"v": 2}', ValueError),
    ("string", '[{"v": 1}]', ValueError),
    ("string", '{"v": "a\nb"}', ValueError),
    ("string", '{"v": "x"', ValueError),
]


@pytest.mark.parametrize(("kind", "body", "expected"), VALUES)
def test_value_alone_and_among_others(kind: str, body: str, expected: Any) -> None:
    """A body has the same outcome alone, and within a column that is decoded as a whole."""
    neighbours = [b'{"v": null}'] * 600
    for before in (0, 300):
        bodies = [*neighbours[:before], body.encode(), *neighbours[before : 2 * before]]
        rows, bad = decoded(bodies, f"v {kind}")
        if expected is ValueError:
            assert list(bad) == [before]
            assert rows[before] is None
        else:
            assert bad == {}
            assert rows[before] == {"v": expected}


def test_bodies_that_complete_each_other_are_each_bad() -> None:
    # Two halves of an object, and two objects in place of an empty body.
    halves = [b'{"v": {"a": 1}', b'{"v": 1}}', b'{"v":1}{"v":2}', b"", b'{"v": "}', b'{"v": "}"}']
    rows, bad = decoded(halves, "v string")
    assert sorted(bad) == [0, 1, 2, 4]
    assert rows[3:] == [None, None, {"v": "}"}]


def test_invalid_utf8_is_a_bad_body() -> None:
    rows, bad = decoded([b'{"v": "a"}', b'{"v": "\xff"}'], "v string")
    assert (rows, list(bad)) == ([{"v": "a"}, None], [1])


def test_an_empty_body_is_null_and_not_bad() -> None:
    for name in ("json", "csv"):
        assert decoded([b"", b""], "v string", name) == ([None, None], {})


def test_csv() -> None:
    bodies = [b'1,2.5,"a ""b"""', b"2,,x\n", b'3,1,"two\nlines"', b"4,1", b'5,1,"open', b"x,1,y", b",,"]
    rows, bad = decoded(bodies, "id bigint, price double, name string", "csv")
    assert rows[0] == {"id": 1, "price": 2.5, "name": 'a "b"'}
    assert rows[1] == {"id": 2, "price": None, "name": "x"}
    assert rows[2] == {"id": 3, "price": 1.0, "name": "two\nlines"}
    assert rows[6] == {"id": None, "price": None, "name": None}
    assert sorted(bad) == [3, 4, 5]


def test_fewer_fields_of_csv_are_found_by_name() -> None:
    bodies = BodyFormat.of("csv", "a int, b string, c string", separator=";")
    found = bodies.decoder(parse_schema("c string")).decode(pa.array([b"1;x;y"], pa.binary()))
    assert found.values.to_pylist() == [{"c": "y"}]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("", "expected the name of a field"),
        ("id", "expected a type"),
        ("id bigin", "unknown type 'bigin'"),
        ("id bigint, id int", "appears twice"),
        ("id array<int", "expected '>'"),
        ("id map<int,int>", "key of a map must be string"),
        ("id decimal(50,2)", "is not valid"),
        ("id int; x", "unexpected character"),
        ("x " + "array<" * 40 + "int" + ">" * 40, "levels"),
    ],
)
def test_schema_that_is_not_valid(schema: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BodyFormat.of("json", schema)


def test_schema_is_written_as_it_is_read() -> None:
    text = (
        "id bigint, `unit price` decimal(10,2), m map<string,array<int>>, s struct<a: date, b: timestamp_ntz>"
    )
    kind = parse_schema(text)
    assert fields_ddl(kind) == text
    assert parse_schema(ddl(kind)) == kind
    assert BodyFormat.of("json", pa.schema(list(kind))) == BodyFormat.of("json", text)


def test_sampled_schema_holds_every_sampled_value() -> None:
    sample = [
        b'{"a": 1, "b": [1, 2.5], "c": {"d": true}, "e": null, "f": "x"}',
        b"not JSON",
        b'{"a": 2.5, "b": [], "c": {"g": 12}, "f": 3}',
        b'{"a": null, "b": null}',
    ]
    kind = infer(sample, BodyFormat.of("json"))
    expected = "a double, b array<double>, c struct<d: boolean, g: bigint>, e string, f string"
    assert fields_ddl(kind) == expected
    assert fields_ddl(infer([b"1,2.5,x", b"2,3,", b"x"], BodyFormat.of("csv"))) == (
        "_c0 bigint, _c1 double, _c2 string"
    )
    with pytest.raises(ConfigError, match="none of the sampled bodies is json"):
        infer([b"x"], BodyFormat.of("json"))
