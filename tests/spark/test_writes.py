"""Writes in a session: a DataFrame, a stream, an aggregation, each to a topic of a real broker."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import rmqpy
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

Read = Callable[..., list[rmqpy.ReceivedMessage]]


def counted(messages: Iterable[rmqpy.ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_dataframe_is_written(
    spark: "SparkSession", server: Standalone, topic: str, received: Read
) -> None:
    df = spark.range(5_000).select(f.col("id").cast("string").alias("value"), f.lit("new").alias("tags"))
    df.write.format("rocketmq").mode("append").option("nameserver", server.namesrv).save(topic)
    assert counted(received()) == list(range(5_000))


def test_stream_between_topics_keeps_ids_of_repeated_rows(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    received: Read,
    run_available: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    for number in range(100):
        producer.submit(topic, str(number)).result()
    stream = (
        spark.readStream.format("rocketmq")
        .options(
            nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40
        )
        .load()
        .select("body", "keys")
    )
    attempts = []

    def put(df: "DataFrame", batch_id: int) -> None:
        df.write.format("rocketmq").mode("append").options(
            nameserver=server.namesrv, topic=other_topic
        ).save()
        attempts.append(batch_id)
        if len(attempts) == 2:
            raise RuntimeError("after the second batch was sent")

    def run() -> Any:
        writer = stream.writeStream.foreachBatch(put).option("checkpointLocation", str(tmp_path / "cp"))
        return run_available(writer)

    with pytest.raises(StreamingQueryException, match="after the second batch was sent"):
        run()
    run()
    messages = received(other_topic)
    assert len(messages) > 100
    by_id = {message.message_id: message.body for message in messages}
    assert sorted(map(int, by_id.values())) == list(range(100))


def test_writes_of_one_micro_batch_have_distinct_repeatable_ids(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    third_topic: str,
    received: Read,
    run_available: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    for number in range(60):
        producer.submit(topic, str(number)).result()
    stream = spark.readStream.format("rocketmq").options(
        nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30
    )
    attempts = []

    def put(df: "DataFrame", batch_id: int) -> None:
        sink = df.select("body").write.format("rocketmq").mode("append")
        sink.options(nameserver=server.namesrv, topic=third_topic).save()
        for part in ("cast(string(body) AS int) % 2 = 0", "cast(string(body) AS int) % 2 = 1"):
            sink = df.where(part).select("body").write.format("rocketmq").mode("append")
            sink.options(nameserver=server.namesrv, topic=other_topic).save()
        attempts.append(batch_id)
        if len(attempts) == 2:
            raise RuntimeError("after the second batch was sent")

    def run() -> None:
        writer = (
            stream.load().writeStream.foreachBatch(put).option("checkpointLocation", str(tmp_path / "cp"))
        )
        run_available(writer)

    with pytest.raises(StreamingQueryException, match="after the second batch was sent"):
        run()
    run()
    # The second batch was sent twice, to both topics; its ids say so.
    messages = {name: received(name) for name in (other_topic, third_topic)}
    assert all(len(each) > 60 for each in messages.values())
    bodies = {name: {each.message_id: each.text() for each in messages[name]} for name in messages}
    for by_id in bodies.values():
        assert sorted(map(int, by_id.values())) == list(range(60))
    assert not bodies[other_topic].keys() & bodies[third_topic].keys()


def test_an_aggregation_is_written_as_a_stream(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    received: Read,
    run_available: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    for number in range(30):
        producer.submit(topic, b"x", tag=f"t{number % 3}").result()
    stream = spark.readStream.format("rocketmq").options(
        nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest"
    )
    counts = stream.load().groupBy("tags").count()
    writer = (
        counts.select("tags", f.col("count").cast("string").alias("body"))
        .writeStream.format("rocketmq")
        .outputMode("complete")
        .options(nameserver=server.namesrv, topic=other_topic, idempotencyKey="tags,body")
        .option("checkpointLocation", str(tmp_path / "cp"))
    )
    run_available(writer)
    assert sorted((each.tag, each.text()) for each in received(other_topic)) == [
        ("t0", "10"),
        ("t1", "10"),
        ("t2", "10"),
    ]
