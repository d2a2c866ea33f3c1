"""Topics as DataFrames, in a session."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

import rmqpy
from pyspark_rocketmq.features import ADMISSION, FILTERS
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]

#: The first test with a session waits for a JVM, its first query for Spark's workers: minutes on a busy machine.
pytestmark = pytest.mark.timeout(300)


def send(producer: rmqpy.Producer, topic: str, count: int, **fields: Any) -> list[rmqpy.SendResult]:
    """Messages `0`, `1`, ...; where they were stored."""
    return [
        each.result() for each in [producer.submit(topic, str(index), **fields) for index in range(count)]
    ]


def numbers(df: "DataFrame") -> list[int]:
    return sorted(int(bytes(row.body)) for row in df.select("body").collect())


def test_a_dataframe_holds_what_was_sent(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    result = producer.send(
        topic, "grüße", tag="paid", keys=("A-1", "B-2"), properties={"colour": "grün"}, flag=7
    )
    (row,) = load().collect()
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (*result.queue, result.queue_offset)
    assert (row.msgId, row.tags, row.keys, row.flag) == (result.message_id, "paid", "A-1 B-2", 7)
    assert bytes(row.body) == "grüße".encode()
    assert row.properties["colour"] == "grün"
    assert row.properties["TAGS"] == "paid"
    assert row.bornTimestamp <= row.storeTimestamp


def test_every_message_comes_once_and_each_queue_in_order(
    load: Load, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 2_000)
    df = load(packRecords=0, maxRecordsPerPartition=100, fetchBatchRows=30)
    assert numbers(df) == list(range(2_000))
    queues = df.select("queueId", "queueOffset").rdd.glom().collect()
    for task in queues:
        offsets = [row.queueOffset for row in task]
        assert offsets == sorted(offsets)


def test_bodies_larger_than_a_pull_arrive_whole(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    for index in range(3):
        producer.send(topic, bytes([65 + index]) * 3_000_000)
    lengths = [(len(row.body), row.body[:1]) for row in load(fetchBatchBytes=65536).select("body").collect()]
    assert sorted(lengths) == [(3_000_000, b"A"), (3_000_000, b"B"), (3_000_000, b"C")]


def test_a_schema_of_the_user_projects(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    send(producer, topic, 10, tag="paid")
    df = load("body binary, tags string, queueOffset bigint")
    assert df.columns == ["body", "tags", "queueOffset"]
    assert numbers(df) == list(range(10))


def test_several_topics_are_one_dataframe(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, other_topic: str
) -> None:
    send(producer, topic, 2)
    send(producer, other_topic, 3)
    reader = spark.read.format("rocketmq").option("nameserver", server.namesrv)
    counts = reader.load(f"{topic},{other_topic}").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {topic: 2, other_topic: 3}


@pytest.mark.skipif(not ADMISSION.is_offered, reason="one load() is one snapshot from Spark 4.2 on")
def test_one_load_is_one_snapshot(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    send(producer, topic, 5)
    df = load()
    assert df.count() == 5
    send(producer, topic, 5)
    assert df.count() == 5
    assert load().count() == 10


def test_a_limit_ends_a_read_early(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    send(producer, topic, 500)
    assert len(load(fetchBatchRows=10).limit(3).collect()) == 3


def test_sql_reads_a_topic(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 4, tag="paid")
    view = topic.replace("-", "_")
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING rocketmq OPTIONS (nameserver '{server.namesrv}', subscribe '{topic}')"
    )
    assert spark.sql(f"SELECT count(*) FROM {view} WHERE tags = 'paid'").first()[0] == 4


@pytest.mark.skipif(not FILTERS.is_offered, reason=f"{FILTERS.name} needs Spark {FILTERS.since}")
def test_filters_on_properties_are_left_to_the_broker(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    for number in range(20):
        region = "EU" if number % 10 == 0 else "UK"
        producer.send(topic, str(number), properties={"region": region, "price": str(number)})
    schema = "body binary, properties struct<region: string, price: string>"

    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        reader = spark.read.format("rocketmq").schema(schema)
        df = reader.options(nameserver=server.namesrv, pushdown="true").load(topic)
        assert numbers(df.where("properties.region = 'EU' AND CAST(properties.price AS INT) > 5")) == [10]
    finally:
        spark.conf.unset(setting)
    with rmqpy.Admin(server.namesrv) as admin:
        taken = admin.broker_statistic("broker-a", "GROUP_GET_NUMS", f"{topic}@spark-rocketmq")
    # Two of the 20 are of that region.
    assert taken is not None
    assert taken.day.sum == 2


def test_timestamps_are_those_of_the_broker(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    before = time.time()
    send(producer, topic, 1)
    after = time.time()
    stored = load().select(f.unix_micros("storeTimestamp")).first()[0] / 1_000_000
    assert before - 0.001 <= stored <= after + 0.001


def test_a_wrong_option_fails_the_load(load: Load) -> None:
    with pytest.raises((AnalysisException, PythonException), match="did you mean 'startingOffsets'"):
        load(startingOffset="earliest").count()


def test_registering_twice_is_harmless(
    spark: "SparkSession", load: Load, producer: rmqpy.Producer, topic: str
) -> None:
    import pyspark_rocketmq

    pyspark_rocketmq.register(spark)
    pyspark_rocketmq.register(spark)
    send(producer, topic, 1)
    assert load().count() == 1
