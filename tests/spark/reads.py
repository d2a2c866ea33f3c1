"""Reads without a session, shared by tests of the connector."""

from inspect import signature
from typing import Any

import pyarrow
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.batch import TopicReader
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.server import Standalone


def bodies(reader: TopicReader) -> list[Any]:
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    return sorted(pyarrow.Table.from_batches(batches).column("body").to_pylist()) if batches else []


#: Only the bodies, as text.
BODY = StructType().add("body", "string")


def reader(server: Standalone, **options: str) -> TopicReader:
    return RocketMQSource({"nameserver": server.namesrv} | options).reader(schema=BODY)


def send_to(producer: rmqpy.Producer, topic: str, queue_id: int, *bodies: str | bytes, **fields: Any) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", queue_id)
    for each in [producer.submit(topic, body, queue=queue, **fields) for body in bodies]:
        each.result()


def expected_schema(schema: StructType) -> pyarrow.Schema:
    """The Arrow schema that Spark compares batches with. Spark before 4.2 has no time zone to pass."""
    named = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **named)
