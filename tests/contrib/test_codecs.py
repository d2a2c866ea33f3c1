"""The codecs of other libraries, and the application of FastAPI in examples/."""

import dataclasses
import enum
import importlib.util
import json
import random
import subprocess
import sys
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def models() -> list[Any]:
    pydantic, msgspec = pytest.importorskip("pydantic"), pytest.importorskip("msgspec")
    from rmqpy.contrib.msgspec import MsgspecCodec
    from rmqpy.contrib.pydantic import PydanticCodec

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        id: str
        total: float

    class Struct(msgspec.Struct):  # type: ignore[misc,name-defined]
        id: str
        total: float

    return [
        (PydanticCodec(), Model),
        (MsgspecCodec(), Struct),
        (MsgspecCodec("msgpack"), Struct),
    ]


@pytest.mark.parametrize("number", range(3), ids=["pydantic", "msgspec", "msgpack"])
def test_models_survive_and_other_bodies_are_refused(number: int) -> None:
    codec, kind = models()[number]
    value = kind(id="A-1", total=4.5)
    assert codec.decode(codec.encode(value), kind) == value
    assert codec.decode(codec.encode([value]), list[kind]) == [value]
    for body in (b"", b"?", b"\xff", codec.encode({"id": 5})):
        with pytest.raises(ValueError, match=r".+"):
            codec.decode(body, kind)
    with pytest.raises(TypeError):
        codec.decoder(rmqpy.Producer)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Purchase:
    id: str
    total: float
    colour: Colour = Colour.RED
    lines: tuple[Item, ...] = ()
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    at: datetime | None = None
    day: date | None = None
    price: Decimal | None = None
    key: UUID | None = None
    blob: bytes = b""


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


PURCHASE: dict[str, Any] = {
    "type": "record",
    "name": "Purchase",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "at", **optional({"type": "long", "logicalType": "timestamp-millis"})},
        {"name": "day", **optional({"type": "int", "logicalType": "date"})},
        {
            "name": "price",
            **optional({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        },
        {"name": "key", **optional({"type": "string", "logicalType": "uuid"})},
        {"name": "blob", "type": "bytes", "default": ""},
    ],
}
ORDER = Purchase(
    "A-1",
    4.5,
    lines=(Item("x", 2), Item("y")),
    tags={"a": "b"},
    at=datetime(2026, 1, 2, tzinfo=UTC),
    day=date(2026, 1, 2),
    price=Decimal("4.50"),
    key=UUID(int=7),
    blob=b"\x00\xff",
)


def avro(schema: Any) -> Any:
    pytest.importorskip("fastavro")
    from rmqpy.contrib.fastavro import AvroCodec

    return AvroCodec(schema)


def test_values_survive_avro() -> None:
    codec = avro(json.dumps(PURCHASE))
    for order in (ORDER, Purchase("A-2", 1.0)):
        assert codec.decode(codec.encode(order), Purchase) == order
    plain = codec.decode(codec.encode(ORDER), dict)
    assert plain["lines"] == [{"sku": "x", "count": 2}, {"sku": "y", "count": 1}]
    assert codec.encode(plain) == codec.encode(ORDER)
    assert avro("long").decode(avro("long").encode(7), int) == 7
    several = avro({"type": "array", "items": PURCHASE})
    assert several.decode(several.encode([ORDER]), list[Purchase]) == [ORDER]


def test_other_bodies_are_not_avro() -> None:
    codec = avro(PURCHASE)
    body = codec.encode(ORDER)
    decode = codec.decoder(Purchase)
    generator = random.Random(7)
    refused = 0
    for number in range(5_000):
        damaged = bytearray(body[: generator.randrange(len(body) + 1)] if number % 2 else body)
        for _ in range(generator.randrange(4)):
            damaged[generator.randrange(len(body)) % max(len(damaged), 1) :] = generator.randbytes(3)
        try:
            decode(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 3_000
    with pytest.raises(ValueError, match="the body is not of the schema: 1 bytes follow"):
        decode(body + b"\0")
    with pytest.raises(ValueError, match="the body is not of the schema: it ends too early"):
        decode(b"")
    with pytest.raises(ValueError, match=r"total must be text, not 4\.5"):
        codec.decode(body, dataclasses.make_dataclass("Other", [("id", str), ("total", str)]))


@pytest.mark.parametrize(
    "value",
    [
        dataclasses.replace(ORDER, total="x"),  # type: ignore[arg-type]
        dataclasses.replace(ORDER, lines=(Item("x", 1.5),)),  # type: ignore[arg-type]
        dataclasses.replace(ORDER, lines=(Item("x", 2**40),)),
        {"id": "A-1"},
        {**dataclasses.asdict(ORDER), "colour": "red", "more": 1},
        5,
        object(),
    ],
    ids=range(7),
)
def test_values_of_other_types_are_not_encoded(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        avro(PURCHASE).encode(value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not an Avro schema"),
        ("nope", "not an Avro schema: nope"),
        (5, "not an Avro schema"),
        ({"type": "record", "name": "Tree", "fields": [{"name": "n", "type": ["null", "Tree"]}]}, "itself"),
        ({"type": "array", "items": "null"}, "memory"),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [
                    {"name": "b", "type": {"type": "record", "name": "B", "fields": []}},
                    {"name": "c", "type": {"type": "array", "items": "B"}},
                ],
            },
            "memory",
        ),
    ],
    ids=range(6),
)
def test_schemas_that_are_invalid_or_unsafe_are_refused(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        avro(schema)


def test_types_that_the_schema_lacks_are_refused() -> None:
    lacking = dataclasses.make_dataclass("Lacking", [("id", str), ("name", str)])
    with pytest.raises(TypeError, match="the schema lacks name"):
        avro(PURCHASE).decoder(lacking)
    for kind in (lacking, rmqpy.Producer, complex):
        with pytest.raises(TypeError, match="cannot decode"):
            avro({"type": "map", "values": "int"}).decoder(kind)


def test_protobuf_messages_survive_and_other_bodies_are_refused() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf.descriptor_pb2 import UninterpretedOption
    from google.protobuf.message import Message
    from google.protobuf.struct_pb2 import Struct

    from rmqpy.contrib.protobuf import ProtobufCodec

    codec, value = ProtobufCodec(), Struct()
    value.update({"id": "A-1", "total": 4.5})
    assert codec.decode(codec.encode(value), Struct) == value
    with pytest.raises(ValueError, match=r"the body is not a google\.protobuf\.Struct: "):
        codec.decode(b"\x0a\x05?", Struct)
    # Its fields are required.
    part: Any = UninterpretedOption.NamePart
    with pytest.raises(ValueError, match=r"cannot be encoded: .*NamePart is missing required fields"):
        codec.encode(part())
    with pytest.raises(ValueError, match="the body lacks name_part, is_extension"):
        codec.decode(b"", part)
    for kind in (dict, Message, value, rmqpy.Producer):
        with pytest.raises(TypeError, match="cannot decode"):
            codec.decoder(kind)
    with pytest.raises(TypeError, match="a dict is not a Protobuf message"):
        codec.encode({"id": "A-1"})


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_bodies_of_another_form_become_dead_letters(server: Standalone, form: str) -> None:
    codec: Any
    kind: Any
    if form == "avro":
        codec, kind, value = avro(PURCHASE), Purchase, ORDER
    else:
        pytest.importorskip("google.protobuf")
        from google.protobuf.struct_pb2 import Struct

        from rmqpy.contrib.protobuf import ProtobufCodec

        codec, kind, value = ProtobufCodec(), Struct, Struct()
        value.update({"id": "A-1"})
    topic, seen = f"{form}-orders", []
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, exist_ok=True)
        consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")

        def handle(order: Any) -> None:
            seen.append(order)

        handle.__annotations__["order"] = kind
        consumer.on(topic, codec=codec)(handle)
        with rmqpy.Producer(server.namesrv) as producer, consumer:
            producer.send(topic, b'{"id": "A-0"}')
            producer.typed(topic, kind, codec=codec).send(value)
            until(lambda: seen == [value])
            until(lambda: [message.body for _, message in admin.dlq(topic)] == [b'{"id": "A-0"}'])


def test_libraries_are_imported_only_by_their_codecs() -> None:
    code = "import rmqpy, sys; print({'fastavro', 'google.protobuf'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_the_web_application_sends_and_bills(server: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    with warnings.catch_warnings():
        # It recommends a later httpx.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    spec = importlib.util.spec_from_file_location("orders", EXAMPLES / "web" / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    orders = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "orders", orders)
    spec.loader.exec_module(orders)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("web-orders", exist_ok=True)
    with pytest.raises(rmqpy.errors.ClosedError):
        _ = orders.rocketmq.producer
    with TestClient(orders.app) as client:
        assert client.post("/orders", json={"id": "A-1", "total": -1}).status_code == 422
        assert client.post("/orders", json={"id": "A-1", "total": 4.5}).status_code == 202
        until(lambda: client.get("/bills").json() == {"A-1": 4.5})
        assert client.get("/health").json() == {"consuming": True}
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("web-orders", b'{"id": "A-2", "total": -1}')
        with rmqpy.Admin(server.namesrv) as admin:
            until(lambda: len(list(admin.dlq("web-billing"))) == 1)
    # A second life of the same application, as with a server that reloads.
    with TestClient(orders.app) as client:
        assert client.post("/orders", json={"id": "A-3", "total": 1}).status_code == 202
        until(lambda: "A-3" in client.get("/bills").json())
