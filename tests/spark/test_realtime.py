"""Format `rocketmq-jvm`: Real-time Mode and micro-batches in Spark's JVM, against real brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter

import pyspark_rocketmq
import rmqpy
import rmqpy.testing
from pyspark_rocketmq.jvm import FORMAT, JAR
from rmqpy import cli
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not JAR.is_file(), reason="no Java compiler: apt-get install default-jdk-headless"),
]

#: Columns that identify a row of a topic.
IDENTITY = "topic,brokerName,queueId,queueOffset"
#: Longer than any test.
LONG = "10 minutes"
#: The shortest that Spark accepts.
SHORT = "5 seconds"

Start = Callable[..., Any]


def needs_real_time(spark: "SparkSession") -> None:
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 1):
        pytest.skip("Real-time Mode needs Spark 4.1")


def send(producer: rmqpy.Producer, topic: str, *texts: str, queue_id: int = 0, **fields: Any) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", queue_id)
    for each in [producer.submit(topic, text, queue=queue, **fields) for text in texts]:
        each.result()


def read(spark: "SparkSession", server: Standalone, topic: str, **options: object) -> "DataFrame":
    given = {"nameserver": server.namesrv, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format(FORMAT).options(**given).load()


@pytest.fixture
def start(
    spark: "SparkSession", server: Standalone, topic: str, other_topic: str, tmp_path: Path
) -> Iterator[Start]:
    """`start(duration, option=value, ...)`: a real-time query from the test's topic to the other one."""
    needs_real_time(spark)
    running: list[Any] = []

    def start(duration: str, at: str = server.namesrv, **options: object) -> Any:
        reading = {"nameserver": at, "subscribe": topic, "startingOffsets": "earliest", **options}
        rows = spark.readStream.format(FORMAT).options(**reading).load()
        writer = (
            rows.select("body", *IDENTITY.split(",")[1:])
            .writeStream.format(FORMAT)
            .options(nameserver=at, topic=other_topic, idempotencyKey=IDENTITY.removeprefix("topic,"))
            .options(sendTimeoutMs=60_000, ignoreExtraColumns=True)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        running.append(pyspark_rocketmq.real_time(writer, duration).start())
        return running[-1]

    yield start
    for query in running:
        query.stop()


def test_messages_pass_while_the_batch_runs(
    start: Start,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
) -> None:
    query = start(LONG)
    send(producer, topic, "a", "b", queue_id=0)
    send(producer, topic, "c", queue_id=3)
    until(lambda: sorted(each.text() for each in received(other_topic)), wanted=["a", "b", "c"].__eq__)
    # Through the running query, whose first tasks have started by now.
    began = time.monotonic()
    send(producer, topic, "d", queue_id=1)
    until(lambda: len(received(other_topic)), wanted=(4).__eq__)
    assert time.monotonic() - began < 5
    assert query.isActive
    assert query.lastProgress is None


def test_killed_first_batch_is_repeated_with_the_same_ids(
    start: Start,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
) -> None:
    # From the latest message on: the start moves, unless the checkpoint has it.
    send(producer, topic, "before the query")
    query = start(LONG, startingOffsets="latest")
    until(lambda: query.status["isTriggerActive"])
    # The query has its start once a message passes.
    number = 0

    def passed() -> bool:
        nonlocal number
        send(producer, topic, f"{number}")
        number += 1
        return bool(received(other_topic))

    until(passed)
    query.stop()
    began = min(int(each.text()) for each in received(other_topic))
    send(producer, topic, "while it was down")
    start(LONG, startingOffsets="latest")
    until(lambda: any(each.text() == "while it was down" for each in received(other_topic)))
    found = received(other_topic)
    # Nothing was logged, so all of the batch is there again, with the ids of the first time.
    assert {each.text() for each in found} == {*map(str, range(began, number)), "while it was down"}
    assert len(found) > number - began + 1
    assert len({each.message_id for each in found}) == number - began + 1


def test_restarted_query_continues_behind_its_last_batch(
    start: Start,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
) -> None:
    query = start(SHORT)
    send(producer, topic, *map(str, range(20)))
    # The batch after the one that read them has begun, and reads nothing.
    until(lambda: sum(each["numInputRows"] for each in query.recentProgress) == 20, seconds=60)
    assert query.exception() is None
    query.stop()
    send(producer, topic, "new")
    start(SHORT)
    until(lambda: any(each.text() == "new" for each in received(other_topic)))
    assert sorted(each.text() for each in received(other_topic)) == sorted([*map(str, range(20)), "new"])


def test_query_outlives_a_restart_of_the_broker(
    spark: "SparkSession", start: Start, topic: str, other_topic: str
) -> None:
    with rmqpy.testing.Cluster() as cluster:
        for name in (topic, other_topic):
            assert cli.run(["topic", "create", name, "--queues", "4", "-n", cluster.namesrv]) == 0
        with (
            rmqpy.Producer(cluster.namesrv, send_timeout=30) as producer,
            rmqpy.PullConsumer("tests", cluster.namesrv, auto_commit=False) as consumer,
        ):
            found: set[str] = set()

            def passed(count: int) -> bool:
                found.update(each.text() for each in consumer.poll(timeout=0.5))
                return len(found) >= count

            query = start(LONG, at=cluster.namesrv)
            consumer.assign(consumer.queues(other_topic))
            for queue in consumer.queues(other_topic):
                consumer.seek(queue, "begin")
            send(producer, topic, *map(str, range(10)))
            until(lambda: passed(10))
            cluster.stop("broker-a")
            cluster.start("broker-a")
            send(producer, topic, *map(str, range(10, 20)), queue_id=2)
            until(lambda: passed(20), seconds=60)
            assert query.isActive
            query.stop()


def test_failed_send_ends_a_quiet_query(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    needs_real_time(spark)
    query = pyspark_rocketmq.real_time(
        read(spark, server, topic)
        .selectExpr("body", "'missing' as topic")
        .writeStream.format(FORMAT)
        .options(nameserver=server.namesrv)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path)),
        LONG,
    ).start()
    send(producer, topic, "x")
    with pytest.raises(StreamingQueryException, match="topic 'missing' does not exist; set createTopic=true"):
        query.awaitTermination(60)


def test_a_limit_of_micro_batches_is_refused(start: Start) -> None:
    query = start(LONG, maxOffsetsPerTrigger=5)
    with pytest.raises(StreamingQueryException, match="'maxOffsetsPerTrigger' limits micro-batches"):
        query.awaitTermination(60)


# ---- micro-batches ------------------------------------------------------------------------------------------


class Collected:
    """Rows by micro-batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, rows: "DataFrame", _: int) -> None:
        self.batches.append(
            sorted(str(row.body) for row in rows.selectExpr("string(body) as body").collect())
        )

    @property
    def all(self) -> list[str]:
        return sorted(body for batch in self.batches for body in batch)


def available(rows: "DataFrame", checkpoint: Path) -> list[list[str]]:
    """The bodies of all micro-batches until the topic's end."""
    collected = Collected()
    writer: DataStreamWriter = rows.writeStream.foreachBatch(collected)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return [batch for batch in collected.batches if batch]


def test_limited_micro_batches_read_everything_once(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    send(producer, topic, *(f"a{number:02}" for number in range(18)), queue_id=0)
    send(producer, topic, "b0", "b1", queue_id=1)
    rows = read(spark, server, topic, maxOffsetsPerTrigger=10)
    batches = available(rows, tmp_path)
    assert [len(batch) for batch in batches] == [10, 10]
    assert sorted(body for batch in batches for body in batch) == [
        *(f"a{number:02}" for number in range(18)),
        "b0",
        "b1",
    ]
    assert available(rows, tmp_path) == []
    send(producer, topic, "c", queue_id=2)
    assert available(rows, tmp_path) == [["c"]]


def test_checkpoints_move_between_the_engines(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    run_available: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    for number, engine in enumerate(("rocketmq", FORMAT, "rocketmq", FORMAT)):
        send(producer, topic, f"{number}", queue_id=number % 2)
        collected = Collected()
        options = {"nameserver": server.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
        rows = spark.readStream.format(engine).options(**options).load()
        run_available(
            rows.writeStream.foreachBatch(collected).option(
                "checkpointLocation", str(tmp_path / "checkpoint")
            )
        )
        assert collected.all == [f"{number}"], engine


def test_columns_are_those_of_the_engine_in_python(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    producer.send(topic, "plain")
    producer.send(topic, "full", tag="paid", keys=["k1", "k2"], properties={"region": "EU", "größe": "1"})
    producer.send(topic, "long " * 2000, tag="refunded")
    schema = pyspark_rocketmq.DefaultSource({"nameserver": "x:1"}).schema()
    more = (
        "bornHost string, storeHost string, sysFlag int, reconsumeTimes int, physicalOffset bigint, storeSize int,"
        "bodyCrc int, bornTimestamp bigint, body string, properties struct<region: string>, queueOffset bigint"
    )
    for number, chosen in enumerate((schema, more)):
        found = []
        for engine in ("rocketmq", FORMAT):
            rows = (
                spark.readStream.format(engine)
                .options(nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest")
                .schema(chosen)
                .load()
            )
            name = f"columns_{number}_{engine.replace('-', '_')}"
            query = (
                rows.writeStream.format("memory")
                .queryName(name)
                .option("checkpointLocation", str(tmp_path / name))
                .start()
            )
            query.processAllAvailable()
            query.stop()
            found.append([row.asDict(recursive=True) for row in spark.table(name).collect()])
        mine, theirs = (sorted(rows, key=str) for rows in found)
        assert len(mine) == 3
        assert mine == theirs


def test_tags_choose_messages(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    for tag in ("paid", "open", "refunded", "paid"):
        send(producer, topic, tag, tag=tag)
    rows = read(spark, server, topic, subExpression="paid || refunded")
    assert available(rows, tmp_path) == [["paid", "paid", "refunded"]]


def test_sink_sends_what_the_columns_say(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    other_topic: str,
    third_topic: str,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
    tmp_path: Path,
) -> None:
    send(producer, topic, *map(str, range(6)))
    rows = read(spark, server, topic).selectExpr(
        "concat('row ', string(body)) as body",
        "'paid' as tags",
        "array('k1', 'k2') as keys",
        "map('region', 'EU') as properties",
        "if(body = binary('5'), null, concat('customer-', string(body))) as shardingKey",
        "if(body = binary('5'), 2, null) as queueId",
        "7 as flag",
    )
    for engine, target in (("rocketmq", other_topic), (FORMAT, third_topic)):
        query = (
            rows.writeStream.format(engine)
            .options(nameserver=server.namesrv, topic=target)
            .option("checkpointLocation", str(tmp_path / engine))
            .start()
        )
        query.processAllAvailable()
        query.stop()

    def sent(name: str) -> list[Any]:
        return sorted(
            (each.text(), each.queue.queue_id, each.tag, each.keys, each.properties["region"], each.flag)
            for each in received(name)
        )

    assert len(sent(third_topic)) == 6
    assert sent(third_topic) == sent(other_topic)


def test_delayed_rows_and_a_new_topic(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    send(producer, topic, "x", "y")
    with rmqpy.PullConsumer("delayed", server.namesrv, auto_commit=False) as consumer:
        query = (
            read(spark, server, topic)
            .selectExpr("body", "1 as delayLevel")
            .writeStream.format(FORMAT)
            .options(nameserver=server.namesrv, topic=f"{topic}-new", createTopic=True)
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        query.processAllAvailable()
        query.stop()
        consumer.assign(until(lambda: consumer.queues(f"{topic}-new")))
        for queue in consumer.queues(f"{topic}-new"):
            consumer.seek(queue, "begin")
        found: list[str] = []
        until(
            lambda: len(found.__iadd__(each.text() for each in consumer.poll(timeout=0.5))), wanted=(2).__eq__
        )
    assert sorted(found) == ["x", "y"]


def test_lost_messages_end_the_query_unless_it_may_skip_them(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    send(producer, topic, "a")
    begin = f'{{"{topic}": {{"broker-a": {{"0": 50}}}}}}'
    strict = read(spark, server, topic, startingOffsets=begin)
    with pytest.raises(
        StreamingQueryException, match=f"queue {topic}/broker-a/0 ends at 1, but the query was at 50"
    ):
        available(strict, tmp_path / "strict")
    lenient = read(spark, server, topic, startingOffsets=begin, failOnDataLoss=False)
    assert available(lenient, tmp_path / "lenient") == [["a"]]


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribr": "x"}, "'subscribr' is unknown to format rocketmq-jvm; known are .*subscribe"),
        ({"bodyFormat": "json"}, "'bodyFormat' is unknown .* Format rocketmq, in Python, may have it"),
        ({"tls.caFile": "ca.pem"}, "'tls.…' has no effect without encryption"),
        ({"sendTimeoutMs": "1"}, "'sendTimeoutMs' does not apply to reads"),
        ({"failOnDataLoss": "yes"}, "'failOnDataLoss': expected true or false"),
        ({"accessKey": "root"}, "'accessKey' and 'secretKey' belong together"),
        ({"subExpression": "price > 10"}, "expected tags such as 'paid || refunded'"),
    ],
)
def test_options_are_refused_by_name(
    spark: "SparkSession",
    server: Standalone,
    topic: str,
    options: dict[str, str],
    reason: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(PySparkException, match=reason.replace("||", r"\|\|")):
        available(read(spark, server, topic, **options), tmp_path)


def test_rows_by_position_are_refused(
    spark: "SparkSession", server: Standalone, topic: str, tmp_path: Path
) -> None:
    writer = read(spark, server, topic).select("body").writeStream.format(FORMAT)
    writer.options(nameserver=server.namesrv, topic=topic, idempotencyKey="position")
    with pytest.raises(PySparkException, match="a row of a real-time batch has another position"):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)


def test_engine_in_python_names_the_format_of_the_other_one(spark: "SparkSession") -> None:
    reader = spark.readStream.format("rocketmq").options(nameserver="x:1", subscribe="t", engine="jvm")
    with pytest.raises(PySparkException, match=r"use format\('rocketmq-jvm'\)"):
        reader.load()


def test_installation_without_a_jar_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pyspark_rocketmq.jvm.JAR", tmp_path / "none.jar")
    with pytest.raises(ConfigError, match="no Java compiler was found when it was built"):
        pyspark_rocketmq.jar()
