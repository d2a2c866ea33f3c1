"""Protobuf bodies: messages of protoc's classes, damaged bodies, Confluent's header with a registry, and encoding."""

import base64
import http.server
import importlib
import json
import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rmqpy.bodies.encoding import check, encode
from rmqpy.bodies.format import BodyFormat, descriptor_bytes
from rmqpy.bodies.header import schema_ids
from rmqpy.bodies.protobuf import header, with_header
from rmqpy.bodies.types import parse_schema
from rmqpy.errors import ConfigError

pa = pytest.importorskip("pyarrow")
pytest.importorskip("google.protobuf")
protoc = pytest.importorskip("grpc_tools.protoc")

MONEY = """
syntax = "proto3";
package shop;
message Money { string currency = 1; int64 units = 2; }
"""
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "shop/money.proto";
message Header { string source = 1; }
message Order {
  enum Kind { NEW = 0; PAID = 1; }
  message Line { string sku = 1; uint32 count = 2; }
  message Nothing {}
  int64 id = 1;
  double price = 2;
  string who = 3;
  optional string note = 4;
  google.protobuf.Timestamp at = 5;
  Kind kind = 6;
  Line first = 7;
  repeated Line lines = 8;
  repeated sint32 counts = 9;
  map<string, Money> totals = 10;
  map<int32, bool> flags = 11;
  bytes hash = 12;
  uint64 large = 13;
  oneof payment { string card = 14; bool cash = 15; }
  float ratio = 16;
  google.protobuf.Int64Value wrapped = 17;
  Nothing nothing = 18;
}
message Tree { int32 value = 1; repeated Tree children = 2; }
"""
DDL = (
    "id bigint, price double, who string, note string, at timestamp, kind string, "
    "first struct<sku: string, count: bigint>, lines array<struct<sku: string, count: bigint>>, counts array<int>, "
    "totals map<string,struct<currency: string, units: bigint>>, flags map<string,boolean>, hash binary, "
    "large decimal(20,0), card string, cash boolean, ratio float, wrapped struct<value: bigint>"
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The descriptor set of both files, and the generated module of the second."""
    folder = tmp_path_factory.mktemp("protos")
    (folder / "shop").mkdir()
    (folder / "shop" / "money.proto").write_text(MONEY)
    (folder / "shop" / "order.proto").write_text(ORDER)
    files = ["shop/money.proto", "shop/order.proto"]
    library = str(Path(protoc.__file__).parent / "_proto")
    common = ["protoc", f"-I{folder}", f"-I{library}", f"--python_out={folder}"]
    whole, bare = folder / "order.desc", folder / "bare.desc"
    assert protoc.main([*common, "--include_imports", f"--descriptor_set_out={whole}", *files]) == 0
    assert protoc.main([*common, f"--descriptor_set_out={bare}", "shop/order.proto"]) == 0
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        module = importlib.import_module("shop.order_pb2")
    return whole, module


def order(module: Any, at: int, **more: Any) -> Any:
    made = module.Order(
        id=at,
        price=at / 3,
        who=f"käufer {at}",
        kind=at % 2,
        counts=range(-at, 0),
        hash=at.to_bytes(2, "big"),
        large=2**64 - 1 - at,
        ratio=at / 2,
        **more,
    )
    made.lines.add(sku="a", count=2**32 - 1)
    made.totals["x"].units = at
    made.flags[7] = True
    made.at.FromMicroseconds(1_700_000_000_000_000 + at)
    return made


def read(generated: tuple[Path, Any], **options: Any) -> BodyFormat:
    given = {"descriptors": descriptor_bytes(generated[0]), "message": "shop.Order"}
    return BodyFormat.of("protobuf", **{**given, **options})


def test_values(generated: tuple[Path, Any]) -> None:
    module = generated[1]
    bodies = read(generated)
    assert bodies.schema == DDL
    full = order(module, 3, note="", card="c", wrapped={"value": 0}, first={"sku": "f"})
    column = pa.array([full.SerializeToString(), b"", order(module, 4, cash=False).SerializeToString(), None])
    found = bodies.decoder().decode(column)
    assert found.bad == {}
    assert found.values.type == parse_schema(DDL)
    first, empty, second, missing = found.values.to_pylist()
    assert (empty, missing) == (None, None)
    assert first == {
        "id": 3,
        "price": 1.0,
        "who": "käufer 3",
        "note": "",
        "at": datetime(2023, 11, 14, 22, 13, 20, 3, tzinfo=UTC),
        "kind": "PAID",
        "first": {"sku": "f", "count": 0},
        "lines": [{"sku": "a", "count": 2**32 - 1}],
        "counts": [-3, -2, -1],
        "totals": [("x", {"currency": "", "units": 3})],
        "flags": [("7", True)],
        "hash": b"\x00\x03",
        "large": Decimal(2**64 - 4),
        "card": "c",
        "cash": None,
        "ratio": 1.5,
        "wrapped": {"value": 0},
    }
    assert (second["note"], second["first"], second["cash"], second["wrapped"]) == (None, None, False, None)


def test_class_is_its_own_descriptor(generated: tuple[Path, Any]) -> None:
    bodies = BodyFormat.of("protobuf", generated[1].Order)
    assert bodies.schema == DDL
    assert pickle.loads(pickle.dumps(bodies)) == bodies  # noqa: S301
    found = bodies.decoder().decode(pa.array([order(generated[1], 5).SerializeToString()]))
    assert found.values[0]["id"].as_py() == 5


def test_damaged_bodies_do_not_touch_others(generated: tuple[Path, Any]) -> None:
    module = generated[1]
    bodies = [order(module, at).SerializeToString() for at in range(1, 9)]
    bodies[1] = bodies[1][:-1]
    bodies[2] = b"\xff" * 12
    # A time that Arrow's microseconds do not hold, and a text that is not UTF-8.
    bodies[4] = module.Order(at={"seconds": 2**62}).SerializeToString()
    bodies[5] = bodies[5].replace("käufer".encode(), b"k\xff\xfeufer")
    bodies[6] = b"{}"
    found = read(generated).decoder().decode(pa.array(bodies))
    assert sorted(found.bad) == [1, 2, 4, 5, 6]
    assert [row and row["id"] for row in found.values.to_pylist()] == [1, None, None, 4, None, None, None, 8]


def test_fields_and_types_of_the_reader(generated: tuple[Path, Any]) -> None:
    schema = "ratio double, kind int, lines array<struct<count: int>>, unknown date, at bigint"
    with pytest.raises(ConfigError, match=r"field 'shop.Order.who' is string, which cannot be read as list"):
        read(generated, schema="who array<int>").decoder()
    bodies = read(generated, schema=schema)
    small = order(generated[1], 2)
    small.lines[0].count = 9
    found = bodies.decoder().decode(pa.array([small.SerializeToString()]))
    assert found.bad == {}
    assert found.values.to_pylist() == [
        {"ratio": 1.0, "kind": 0, "lines": [{"count": 9}], "unknown": None, "at": 1_700_000_000_000_002}
    ]
    # A number that the type of the reader does not hold makes the body corrupt.
    found = bodies.decoder().decode(pa.array([order(generated[1], 2).SerializeToString()]))
    assert list(found.bad) == [0]


def test_message_that_contains_itself_is_read_to_the_depth_of_a_schema(generated: tuple[Path, Any]) -> None:
    with pytest.raises(ConfigError, match=r"message shop\.Tree contains itself"):
        read(generated, message="shop.Tree").kind()
    tree = generated[1].Tree(value=1)
    tree.children.add(value=2).children.add(value=3)
    bodies = read(generated, message="shop.Tree", schema="value int, children array<struct<value: int>>")
    found = bodies.decoder().decode(pa.array([tree.SerializeToString()]))
    assert found.values.to_pylist() == [{"value": 1, "children": [{"value": 2}]}]


def test_enumeration_has_a_new_number(generated: tuple[Path, Any]) -> None:
    found = read(generated).decoder().decode(pa.array([generated[1].Order(kind=9).SerializeToString()]))
    assert found.values[0]["kind"].as_py() == "9"


class _Registry(http.server.BaseHTTPRequestHandler):
    """The part of a registry that readers use: schema 7 refers to the file of money, schema 9 is text."""

    files: dict[str, bytes]

    def do_GET(self) -> None:
        money = {"name": "shop/money.proto", "subject": "shop/money", "version": 2}
        found: dict[str, Any] = {
            "/schemas/ids/7?format=serialized": {
                "schema": _text(self.files["shop/order.proto"]),
                "references": [money],
            },
            "/subjects/shop%2Fmoney/versions/2?format=serialized": {
                "schema": _text(self.files["shop/money.proto"])
            },
            "/schemas/ids/9?format=serialized": {"schema": ORDER},
        }
        known = found.get(self.path)
        body = json.dumps(known | {"schemaType": "PROTOBUF"} if known else {"error_code": 40403}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def registry(generated: tuple[Path, Any]) -> Iterator[str]:
    """The address of a registry."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(generated[0].read_bytes()).file
    _Registry.files = {file.name: file.SerializeToString() for file in files}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_header_names_the_message_of_each_body(generated: tuple[Path, Any], registry: str) -> None:
    module = generated[1]
    # Order is the second message of its file, and Line the first that is nested in it.
    rows = [
        with_header(7, [1]) + order(module, 1).SerializeToString(),
        with_header(7, [0]) + module.Header(source="s").SerializeToString(),
        with_header(7, [1, 0]) + module.Order.Line(sku="k").SerializeToString(),
        with_header(7, [1]),
        order(module, 2).SerializeToString(),
        with_header(7, [5]) + b"\x08\x01",
        b"",
        b"\x00\x00\x00\x00\x07\x02\x80",
    ]
    column = pa.array(rows)
    bodies = BodyFormat.of("protobuf", "id bigint, source string, sku string", registry=registry)
    found = bodies.decoder().decode(column)
    assert found.values.to_pylist() == [
        {"id": 1, "source": None, "sku": None},
        {"id": None, "source": "s", "sku": None},
        {"id": None, "source": None, "sku": "k"},
        # All fields of the message have their defaults.
        {"id": 0, "source": None, "sku": None},
        *[None] * 4,
    ]
    assert list(found.bad) == [4, 5, 7]
    assert found.bad[5] == "its schema has no message [5]"
    assert schema_ids(column).to_pylist()[:4] == [7] * 4
    with pytest.raises(ConfigError, match="has no schema 8"):
        bodies.decoder().decode(pa.array([with_header(8, [0])]))
    with pytest.raises(ConfigError, match="returns the text of Protobuf schemas"):
        bodies.decoder().decode(pa.array([with_header(9, [0])]))
    # With its own descriptor, a reader does not ask the registry.
    own = read(generated, registry="http://127.0.0.1:1").decoder().decode(column.slice(0, 1))
    assert own.values[0]["who"].as_py() == "käufer 1"


@pytest.mark.parametrize("indexes", [[0], [1], [3, 300, 0]])
def test_header_is_read_as_it_is_written(indexes: list[int]) -> None:
    written = with_header(258, indexes)
    assert header(written + b"rest") == (258, tuple(indexes), len(written))
    if indexes == [0]:
        assert written == b"\0\0\0\1\2\0"


def test_structures_are_written_as_messages(generated: tuple[Path, Any]) -> None:
    module, bodies = generated[1], read(generated)
    rows = [order(module, at, note="n", card="c", first={"sku": "f"}) for at in (1, 2)]
    values = bodies.decoder().decode(pa.array([row.SerializeToString() for row in rows])).values
    values = pa.concat_arrays([values, pa.nulls(1, values.type), values]).slice(1, 3)
    found = encode(values, bodies)
    assert [found[at].as_py() and module.Order.FromString(found[at].as_py()) for at in range(3)] == [
        rows[1],
        b"",
        rows[0],
    ]
    headed = encode(values, bodies, schema_id=7)
    assert headed[0].as_py() == with_header(7, [1]) + found[0].as_py()
    with pytest.raises(ConfigError, match=r"message shop\.Order has no field 'euro'; it has id,"):
        check(parse_schema("euro int"), bodies)
    with pytest.raises(
        ConfigError, match=r"field 'shop\.Order\.id' is int64, which cannot be written from string"
    ):
        check(parse_schema("id string"), bodies)
    with pytest.raises(ValueError, match=r"a body is not a shop\.Order: .*PAYED"):
        encode(pa.array([{"kind": "PAYED"}], parse_schema("kind string")), bodies)


def test_mistakes_are_named(generated: tuple[Path, Any], tmp_path: Path) -> None:
    whole = descriptor_bytes(generated[0])
    bare = descriptor_bytes(generated[0].with_name("bare.desc"))
    for options, complaint in (
        ({}, "need the descriptor of their message; give a descriptor file"),
        ({"message": "shop.Order"}, "a message needs its descriptor"),
        (
            {"descriptors": whole, "message": "Order"},
            "has no message 'Order'; it has shop.Header, shop.Money",
        ),
        ({"descriptors": whole}, "declares shop.Header, shop.Order, shop.Tree; name the message"),
        (
            {"descriptors": bare, "message": "shop.Order"},
            "lacks shop/money.proto, which shop/order.proto imports",
        ),
        ({"descriptors": b"\xff\xff", "message": "m"}, "the descriptor set is damaged"),
        ({"descriptors": whole, "schema": generated[1].Order}, "two descriptors"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            BodyFormat.of("protobuf", **options)
    with pytest.raises(ConfigError, match="bodies as json have no descriptors"):
        BodyFormat.of("json", "id int", descriptors=whole)
    with pytest.raises(ConfigError, match="cannot be read"):
        descriptor_bytes(tmp_path / "none.desc")
    (tmp_path / "empty.desc").touch()
    with pytest.raises(ConfigError, match="is empty; write it with protoc"):
        descriptor_bytes(tmp_path / "empty.desc")
