"""Typed bodies of the connector: columns of a task, refusals, and a session that reads and writes them."""

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

import rmqpy
from pyspark_rocketmq.options import OptionError, Options
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.errors import ConfigError, DecodeError
from rmqpy.server import Standalone
from spark.reads import expected_schema, send_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

GOOD = [json.dumps({"id": at, "price": at / 4, "parts": [{"sku": "a", "n": at}]}) for at in range(20)]
SCHEMA = "id bigint, price double, parts array<struct<sku: string, n: int>>"


def rows(server: Standalone, topic: str, schema: StructType | None = None, **options: str) -> list[Any]:
    """What the tasks of a batch read yield, checked against the schema that Spark expects."""
    source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic} | options)
    wanted = source.schema() if schema is None else schema
    reader = source.reader(schema=wanted)
    reader, tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301
    batches = [batch for task in tasks for batch in reader.read(task)]
    assert all(batch.schema == expected_schema(wanted) for batch in batches)
    return pyarrow.Table.from_batches(batches).to_pylist() if batches else []


def test_default_schema_has_the_fields_of_bodies(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, *GOOD)
    found = rows(server, topic, bodyFormat="json", bodySchema=SCHEMA)
    assert [row["body"]["id"] for row in found] == list(range(20))
    assert found[3]["body"] == {"id": 3, "price": 0.75, "parts": [{"sku": "a", "n": 3}]}
    assert {row["_corrupt_body"] for row in found} == {None}


def test_schema_of_the_user_is_the_structure(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, *GOOD)
    part = StructType().add("n", IntegerType())
    body = StructType().add("parts", ArrayType(part)).add("id", LongType()).add("absent", TimestampType())
    schema = StructType().add("queueOffset", LongType()).add("body", body)
    found = rows(server, topic, schema, bodyFormat="json")
    assert found[5] == {"queueOffset": 5, "body": {"parts": [{"n": 5}], "id": 5, "absent": None}}


def test_schema_is_sampled(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 1, *GOOD)
    source = RocketMQSource(
        {"nameserver": server.namesrv, "subscribe": topic, "bodyFormat": "json", "inferSchema": "true"}
    )
    part = StructType().add("sku", StringType()).add("n", LongType())
    expected = StructType().add("id", LongType()).add("price", DoubleType()).add("parts", ArrayType(part))
    assert source.schema()["body"].dataType == expected


def test_modes(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, *GOOD[:3], "no JSON", '{"id": "x"}', *GOOD[3:5])
    options = {"bodyFormat": "json", "bodySchema": "id bigint"}
    with pytest.warns(UserWarning, match="2 of 7 bodies are not json of the schema"):
        kept = rows(server, topic, **options)
    assert [row["_corrupt_body"] for row in kept if row["body"] is None] == [b"no JSON", b'{"id": "x"}']
    with pytest.warns(UserWarning, match="mode DROPMALFORMED"):
        assert len(rows(server, topic, mode="dropMalformed", **options)) == 5
    with pytest.raises(DecodeError, match=rf"body of {topic}/broker-a/0 at offset 3 is not json"):
        rows(server, topic, mode="FAILFAST", **options)
    # Nothing is decoded without the column.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tags = StructType().add("tags", StringType())
        assert len(rows(server, topic, tags, mode="FAILFAST", **options)) == 7


def test_csv(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, "1\t2.5\tx", "2\t\t")
    found = rows(server, topic, bodyFormat="csv", sep="\\t", bodySchema="id int, price double, name string")
    assert [row["body"] for row in found] == [
        {"id": 1, "price": 2.5, "name": "x"},
        {"id": 2, "price": None, "name": None},
    ]


@pytest.fixture
def durations(tmp_path: Path) -> dict[str, str]:
    """Options of bodies that are `google.protobuf.Duration`, from a descriptor set as protoc writes it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.duration_pb2 import DESCRIPTOR

    found = FileDescriptorSet(file=[FileDescriptorProto.FromString(DESCRIPTOR.serialized_pb)])
    (tmp_path / "duration.desc").write_bytes(found.SerializeToString())
    return {"bodyFormat": "protobuf", "descriptorFile": str(tmp_path / "duration.desc")}


def test_protobuf(
    server: Standalone, producer: rmqpy.Producer, topic: str, durations: dict[str, str]
) -> None:
    from google.protobuf.duration_pb2 import Duration

    sent = [Duration(seconds=at, nanos=at).SerializeToString() for at in range(1, 4)]
    send_to(producer, topic, 0, *sent, b"\xff\xff")
    source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic} | durations)
    expected = StructType().add("seconds", LongType()).add("nanos", IntegerType())
    assert source.schema()["body"].dataType == expected
    with pytest.warns(UserWarning, match="1 of 4 bodies are not protobuf of the schema"):
        found = rows(server, topic, **durations)
    assert [row["body"] for row in found] == [*({"seconds": at, "nanos": at} for at in (1, 2, 3)), None]
    assert [row["_corrupt_body"] for row in found] == [None, None, None, b"\xff\xff"]
    with pytest.warns(UserWarning, match="mode DROPMALFORMED"):
        assert len(rows(server, topic, mode="DROPMALFORMED", **durations)) == 3
    with pytest.raises(DecodeError, match="at offset 3 is not protobuf"):
        rows(server, topic, mode="FAILFAST", **durations)
    narrow = StructType().add("body", StructType().add("seconds", StringType()))
    with pytest.warns(UserWarning, match="1 of 4"):
        assert rows(server, topic, narrow, **durations)[1] == {"body": {"seconds": "2"}}


@pytest.mark.parametrize(
    ("options", "schema", "complaint"),
    [
        ({"bodySchema": "id int"}, None, "no effect without 'bodyFormat'"),
        ({"bodyFormat": "json"}, None, "need a schema; set bodySchema, or inferSchema=true"),
        (
            {"bodyFormat": "json", "bodySchema": "id"},
            None,
            "option 'bodyFormat': schema of bodies: expected a type",
        ),
        ({"bodyFormat": "avro", "bodySchema": "id int"}, None, "schema that they were written with"),
        ({"bodyFormat": "protobuf", "bodySchema": "id int"}, None, "need the descriptor of their message"),
        ({"messageName": "shop.Order"}, None, "no effect without 'bodyFormat'"),
        (
            {},
            StructType().add("body", StructType().add("id", "integer")),
            "only with typed bodies; set bodyFormat",
        ),
        (
            {"bodyFormat": "json"},
            StructType().add("body", "string"),
            "structure with bodyFormat=json, not string",
        ),
        ({}, StructType().add("_corrupt_body", "binary"), "unknown column '_corrupt_body'"),
    ],
)
def test_mistakes_are_refused_while_planning(
    options: dict[str, str], schema: StructType | None, complaint: str, server: Standalone, topic: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        rows(server, topic, schema, **options)
    with pytest.raises(OptionError, match="expected one character"):
        Options.parse({"nameserver": "a:1", "sep": "ab"})
    with pytest.raises(OptionError, match="option 'descriptorFile': the file cannot be read: No such file"):
        Options.parse({"nameserver": "a:1", "descriptorFile": "/nowhere/shop.desc"})


def test_a_session_writes_and_reads_fields(
    spark: "SparkSession",
    server: Standalone,
    topic: str,
    other_topic: str,
    producer: rmqpy.Producer,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
    run_available: Callable[[Any], Any],
    tmp_path: Any,
) -> None:
    """Topic → typed columns → stream → topic, as a pipeline of a user."""
    send_to(producer, topic, 0, *GOOD)
    stream = (
        spark.readStream.format("rocketmq")
        .options(nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest")
        .options(bodyFormat="json", bodySchema=SCHEMA)
        .load()
    )
    priced = stream.where("body.price >= 4").selectExpr(
        "struct(body.id, body.price * 2 as double, body.parts[0].sku) as body",
        "cast(body.id as string) as keys",
    )
    run_available(
        priced.writeStream.format("rocketmq").options(
            nameserver=server.namesrv,
            topic=other_topic,
            bodyFormat="json",
            checkpointLocation=str(tmp_path / "c"),
        )
    )
    sent = {message.keys[0]: json.loads(message.body) for message in received(other_topic)}
    assert sent == {str(at): {"id": at, "double": at / 2, "sku": "a"} for at in (16, 17, 18, 19)}
    copied = (
        spark.read.format("rocketmq")
        .options(nameserver=server.namesrv, subscribe=other_topic, bodyFormat="json", inferSchema=True)
        .load()
    )
    assert copied.selectExpr("sum(body.double)").collect()[0][0] == 35.0


def test_a_session_writes_and_reads_protobuf(
    spark: "SparkSession", server: Standalone, topic: str, durations: dict[str, str]
) -> None:
    """Structures become messages with Confluent's header, and those become structures again."""
    from google.protobuf.duration_pb2 import Duration

    written = spark.range(1, 6).selectExpr("struct(id as seconds, cast(id * 2 as int) as nanos) as body")
    writer = written.write.format("rocketmq").mode("append").options(nameserver=server.namesrv, **durations)
    writer.option("schemaId", 7).save(topic)
    plain = spark.read.format("rocketmq").options(nameserver=server.namesrv).load(topic)
    bodies = sorted(bytes(row.body) for row in plain.select("body").collect())
    assert bodies[0] == b"\0\0\0\0\7\0" + Duration(seconds=1, nanos=2).SerializeToString()
    # With the reader's own descriptor, no registry is asked.
    typed = (
        spark.read.format("rocketmq")
        .options(nameserver=server.namesrv, schemaRegistry="http://127.0.0.1:1", **durations)
        .load(topic)
    )
    totals = typed.selectExpr("sum(body.seconds)", "sum(body.nanos)", "max(bodySchemaId)").collect()[0]
    assert tuple(totals) == (15, 30, 7)
    with pytest.raises(Exception, match=r"message google\.protobuf\.Duration has no field 'minutes'"):
        spark.range(1).selectExpr("struct(id as minutes) as body").write.format("rocketmq").mode(
            "append"
        ).options(nameserver=server.namesrv, **durations).save(topic)
