"""Avro bodies: values of a known encoding, damaged bodies, Confluent's header with a registry."""

import http.server
import json
import struct
import threading
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import pytest

from rmqpy.bodies import avro
from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.header import schema_ids
from rmqpy.errors import ConfigError, ConnectError

pa = pytest.importorskip("pyarrow")

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "price", "type": "double"},
    {"name": "who", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {
        "name": "inner",
        "type": {
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "x", "type": "int"}, {"name": "ok", "type": "boolean"}],
        },
    },
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    {"name": "ratio", "type": "float"},
]
SCHEMA = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS})
DDL = (
    "id bigint, price double, who string, at timestamp, kind string, inner struct<x: int, ok: boolean>, "
    "hash binary, ratio float"
)

#: Each way to decode, of which both give the same.
WAYS = [pytest.param(True, marks=pytest.mark.skipif(find_spec("numpy") is None, reason="numpy")), False]


def number(value: int) -> bytes:
    """Avro's numbers: zigzag, then seven bits in each byte."""
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def order(at: int) -> bytes:
    who = b"\x00" if at % 5 == 0 else b"\x02" + text(f"käufer {at}")
    return b"".join(
        [
            number(at),
            struct.pack("<d", at / 3),
            who,
            number(1700000000000 + at),
            number(at % 2),
            number(-at),
            bytes([at % 2]),
            at.to_bytes(2, "big"),
            struct.pack("<f", at / 2),
        ]
    )


def decode(bodies: list[bytes], schema: str, way: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(avro, "find_spec", lambda name: find_spec(name) if way else None)
    return BodyFormat.of("avro", schema).decoder().decode(pa.array(bodies, pa.binary()))


def test_the_specifications_example() -> None:
    """The datum of Avro's specification: a record of 27 and "foo"."""
    schema = (
        '{"type":"record","name":"test","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}'
    )
    found = BodyFormat.of("avro", schema).decoder().decode(pa.array([bytes.fromhex("3606666f6f")]))
    assert found.values.to_pylist() == [{"a": 27, "b": "foo"}]


@pytest.mark.parametrize("way", WAYS)
def test_values(way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BodyFormat.of("avro", SCHEMA).schema == DDL
    found = decode([order(at) for at in (0, 1, 64, 300)], SCHEMA, way, monkeypatch)
    assert found.bad == {}
    rows = found.values.to_pylist()
    assert [row["id"] for row in rows] == [0, 1, 64, 300]
    assert [row["who"] for row in rows] == [None, "käufer 1", "käufer 64", None]
    row = rows[1]
    assert (row["price"], row["kind"], row["inner"]) == (1 / 3, "B", {"x": -1, "ok": True})
    assert (row["hash"], row["ratio"]) == (b"\x00\x01", 0.5)
    assert row["at"].isoformat() == "2023-11-14T22:13:20.001000+00:00"


@pytest.mark.parametrize("way", WAYS)
def test_damaged_bodies_do_not_touch_others(way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [order(at) for at in range(12)]
    bodies[1] = bodies[1][:-1]
    bodies[3] += b"\x00"
    bodies[4] = b""
    bodies[5] = b"\xff" * 30
    bodies[6] = b"\x80"
    # A text that claims more bytes than the body has.
    bodies[7] = number(7) + struct.pack("<d", 0) + b"\x02" + number(1 << 62)
    bodies[8] = b"{}"
    bodies[9] = order(9).replace("käufer".encode(), b"k\xff\xfeufer")
    found = decode(bodies, SCHEMA, way, monkeypatch)
    assert sorted(found.bad) == [1, 3, 5, 6, 7, 8, 9]
    assert [row and row["id"] for row in found.values.to_pylist()] == ([0, None, 2] + [None] * 7 + [10, 11])


def test_only_fields_that_are_wanted() -> None:
    bodies = BodyFormat.of("avro", SCHEMA)
    kind = BodyFormat.of("json", "ratio double, who string, unknown int").kind()
    found = bodies.decoder(kind).decode(pa.array([order(1)]))
    assert found.values.to_pylist() == [{"ratio": 0.5, "who": "käufer 1", "unknown": None}]


def test_lists_maps_unions_and_decimals() -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "l", "type": {"type": "array", "items": "int"}},
                {"name": "m", "type": {"type": "map", "values": "string"}},
                {"name": "u", "type": ["int", "null", "string"]},
                {
                    "name": "d",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
                },
            ],
        }
    )
    body = b"".join(
        [
            number(2),
            number(1),
            number(2),
            number(0),
            number(-1),
            number(4),
            text("a"),
            text("b"),
            number(0),
            number(2),
            text("x"),
            number(2),
            (12345).to_bytes(2, "big"),
        ]
    )
    found = BodyFormat.of("avro", schema).decoder().decode(pa.array([body, body[:-3]]))
    assert list(found.bad) == [1]
    assert found.values[0].as_py() == {"l": [1, 2], "m": [("a", "b")], "u": "x", "d": Decimal("123.45")}


class _Registry(http.server.BaseHTTPRequestHandler):
    """The part of a registry that readers use."""

    def do_GET(self) -> None:
        newer = '{"type":"record","name":"o","fields":[{"name":"id","type":"int"}]}'
        found = {"/schemas/ids/7": SCHEMA, "/schemas/ids/8": newer}.get(self.path)
        body = json.dumps({"schema": found} if found else {"error_code": 40403}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a registry with schemas 7 and 8."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_bodies_of_several_schemas_by_their_header(registry: str) -> None:
    bodies = [
        b"\x00" + (7).to_bytes(4, "big") + order(1),
        b"\x00" + (8).to_bytes(4, "big") + number(2),
        order(3),
        b"",
        b"\x00" + (7).to_bytes(4, "big") + order(4),
    ]
    read = BodyFormat.of("avro", "id bigint, who string", registry=registry)
    column = pa.array(bodies)
    found = read.decoder().decode(column)
    assert found.values.to_pylist() == [
        {"id": 1, "who": "käufer 1"},
        {"id": 2, "who": None},
        None,
        None,
        {"id": 4, "who": "käufer 4"},
    ]
    assert list(found.bad) == [2]
    assert schema_ids(column).to_pylist() == [7, 8, None, None, 7]
    with pytest.raises(ConfigError, match="has no schema 9"):
        read.decoder().decode(pa.array([b"\x00" + (9).to_bytes(4, "big") + order(1)]))
    with pytest.raises(ConnectError, match="does not answer"):
        BodyFormat.of("avro", "id int", registry="http://127.0.0.1:1").decoder().decode(column)


def test_json_with_a_header(registry: str) -> None:
    bodies = [b'\x00\x00\x00\x00\x07{"id": 5}', b'{"id": 5}', b""]
    found = BodyFormat.of("json", "id int", registry=registry).decoder().decode(pa.array(bodies))
    assert (found.values.to_pylist(), list(found.bad)) == ([{"id": 5}, None, None], [1])


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (None, "need the schema that they were written with"),
        ("{", "is not JSON"),
        ('{"type": "array", "items": "int"}', "is a array: bodies need a record"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}', "contains itself"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "q"}]}', "unknown type 'q'"),
    ],
)
def test_schema_that_is_not_valid(schema: str | None, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BodyFormat.of("avro", schema)
