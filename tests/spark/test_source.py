"""The source's contract with Spark, without a session: plans, rows of tasks, and refusals."""

import pickle
import subprocess
import sys
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.offsets import Queue, format_offsets
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.schema import default_schema
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.server import Standalone
from spark.reads import expected_schema


def send(producer: rmqpy.Producer, topic: str, count: int, **fields: Any) -> list[rmqpy.SendResult]:
    """Messages `0`, `1`, ...; where they were stored."""
    return [
        each.result() for each in [producer.submit(topic, str(index), **fields) for index in range(count)]
    ]


def source(server: Standalone, topic: str, **options: str) -> RocketMQSource:
    return RocketMQSource({"nameserver": server.namesrv, "subscribe": topic} | options)


def test_a_task_reads_batches_of_exactly_sparks_schema(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 100, tag="even", keys=("a", "b"), properties={"colour": "red", "größe": "1"})
    schema = default_schema(with_properties=True)
    reader = source(server, topic).reader(schema=schema)
    # As Spark does: both travel to the executors.
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    assert all(batch.schema == expected_schema(schema) for batch in batches)
    rows = pyarrow.Table.from_batches(batches).to_pylist()
    assert sorted(int(row["body"]) for row in rows) == list(range(100))
    properties = dict(rows[0]["properties"])
    assert (properties["TAGS"], properties["KEYS"]) == ("even", "a b")
    assert (properties["colour"], properties["größe"]) == ("red", "1")


def test_batches_are_no_longer_than_asked_for(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 100)
    reader = source(server, topic, fetchBatchRows="7").reader(schema=default_schema(with_properties=False))
    sizes = [batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(sizes) == 100
    assert max(sizes) <= 7


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"packRecords": "0"}, 4),
        ({"packRecords": "0", "maxPartitions": "3"}, 3),
        ({"minPartitions": "4"}, 4),
        ({"minPartitions": "16"}, 16),
        ({"maxRecordsPerPartition": "5", "packRecords": "5"}, 8),
    ],
)
def test_the_number_of_tasks(
    options: dict[str, str], count: int, server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    # Four queues of ten messages.
    for queue in producer.queues(topic):
        for _ in range(10):
            producer.send(topic, "x", queue=queue)
    partitions = (
        source(server, topic, **options).reader(schema=default_schema(with_properties=True)).partitions()
    )
    assert len(partitions) == count
    assert sum(each.rows for partition in partitions for each in partition.ranges) == 40


def test_an_empty_topic_is_one_task_that_yields_nothing(server: Standalone, topic: str) -> None:
    reader = source(server, topic).reader(schema=default_schema(with_properties=True))
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert list(reader.read(partitions[0])) == []


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (StructType().add("offset", "long"), "unknown column .?offset"),
        (StructType().add("body", "integer"), "column .?body.? cannot be int"),
        (StructType().add("flag", "long"), "column .?flag.? cannot be bigint"),
    ],
)
def test_invalid_schema_is_refused_while_planning(
    schema: StructType, complaint: str, server: Standalone, topic: str
) -> None:
    with pytest.raises(rmqpy.errors.ConfigError, match=complaint):
        source(server, topic).reader(schema=schema)


def test_properties_are_left_out_on_request() -> None:
    given = {"nameserver": "a:1", "subscribe": "t"}
    assert "properties" in RocketMQSource(given).schema().fieldNames()
    assert "properties" not in RocketMQSource(given | {"includeProperties": "false"}).schema().fieldNames()


def test_an_unknown_option_is_refused_while_planning() -> None:
    with pytest.raises(OptionError, match="did you mean 'subscribe'"):
        RocketMQSource({"nameserver": "a:1", "subscrib": "t"})


def test_a_topic_that_does_not_exist_is_reported(server: Standalone) -> None:
    with pytest.raises(rmqpy.errors.TopicNotFound, match="no-such-topic"):
        source(server, "no-such-topic").reader(schema=default_schema(with_properties=True)).partitions()


def test_an_unreachable_name_server_is_reported() -> None:
    nowhere = RocketMQSource({"nameserver": "127.0.0.1:1", "subscribe": "t"})
    reader = nowhere.reader(schema=default_schema(with_properties=True))
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        reader.partitions()


def test_missing_range_is_data_loss(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    result = send(producer, topic, 1)[0]
    beyond = format_offsets({Queue(*result.queue): 5})
    schema = default_schema(with_properties=True)
    strict = source(server, topic, endingOffsets=beyond).reader(schema=schema)
    with pytest.raises(rmqpy.errors.DataLoss, match=r"requested 0 to 5, but the broker holds 0 to 1"):
        strict.partitions()
    lenient = source(server, topic, endingOffsets=beyond, failOnDataLoss="false").reader(schema=schema)
    with pytest.warns(UserWarning, match="requested 0 to 5"):
        partitions = lenient.partitions()
    assert [batch.num_rows for partition in partitions for batch in lenient.read(partition)] == [1]


def test_importing_the_package_imports_neither_spark_nor_arrow() -> None:
    code = "import sys, pyspark_rocketmq; print(sorted({'pyspark', 'pyarrow', 'rmqpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_package_imports_without_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None; import pyspark_rocketmq; "
        "print(hasattr(pyspark_rocketmq, 'DefaultSource'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
