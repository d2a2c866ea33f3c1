"""The Spark source against a real broker: what a DataFrame holds, and what a user is told when it cannot."""

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.batch import FilteringReader, TopicReader
from pyspark_rocketmq.offsets import Queue, format_offsets
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.schema import SPARK_TYPES, default_schema
from pyspark_rocketmq.source import RocketMQSource
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


# --- without a session ---


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
    assert all(batch.schema == to_arrow_schema(schema, timezone="UTC") for batch in batches)
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
        (StructType().add("offset", "long"), "no column .?offset"),
        (StructType().add("body", "integer"), "column .?body.? cannot be int"),
        (StructType().add("flag", "long"), "column .?flag.? cannot be bigint"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_while_planning(
    schema: StructType, complaint: str, server: Standalone, topic: str
) -> None:
    with pytest.raises(rmqpy.errors.ConfigError, match=complaint):
        source(server, topic).reader(schema=schema)


def test_an_unknown_option_is_refused_while_planning() -> None:
    with pytest.raises(OptionError, match="did you mean 'subscribe'"):
        RocketMQSource({"nameserver": "a:1", "subscrib": "t"})


def test_a_topic_that_does_not_exist_is_told(server: Standalone) -> None:
    with pytest.raises(rmqpy.errors.TopicNotFound, match="no-such-topic"):
        source(server, "no-such-topic").reader(schema=default_schema(with_properties=True)).partitions()


def test_a_name_server_that_is_not_there_is_told() -> None:
    nowhere = RocketMQSource({"nameserver": "127.0.0.1:1", "subscribe": "t"})
    reader = nowhere.reader(schema=default_schema(with_properties=True))
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        reader.partitions()


def test_a_range_the_broker_does_not_hold_is_a_loss(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    result = send(producer, topic, 1)[0]
    beyond = format_offsets({Queue(*result.queue): 5})
    schema = default_schema(with_properties=True)
    strict = source(server, topic, endingOffsets=beyond).reader(schema=schema)
    with pytest.raises(rmqpy.errors.DataLoss, match=r"asked for 0 to 5, the broker holds 0 to 1"):
        strict.partitions()
    lenient = source(server, topic, endingOffsets=beyond, failOnDataLoss="false").reader(schema=schema)
    with pytest.warns(UserWarning, match="asked for 0 to 5"):
        partitions = lenient.partitions()
    assert [batch.num_rows for partition in partitions for batch in lenient.read(partition)] == [1]


def test_importing_the_package_imports_neither_spark_nor_arrow() -> None:
    code = "import sys, pyspark_rocketmq; print(sorted({'pyspark', 'pyarrow', 'rmqpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_where_spark_is_missing_the_package_has_no_source_and_does_not_raise() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None; import pyspark_rocketmq; "
        "print(hasattr(pyspark_rocketmq, 'DefaultSource'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def bodies(reader: TopicReader) -> list[Any]:
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    return sorted(pyarrow.Table.from_batches(batches).column("body").to_pylist()) if batches else []


#: Only the bodies, as text.
BODY = StructType().add("body", "string")


def reader(server: Standalone, **options: str) -> TopicReader:
    return RocketMQSource({"nameserver": server.namesrv} | options).reader(schema=BODY)


def send_to(producer: rmqpy.Producer, topic: str, queue_id: int, *texts: str, **fields: Any) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", queue_id)
    for each in [producer.submit(topic, text, queue=queue, **fields) for text in texts]:
        each.result()


def test_topics_are_found_by_their_whole_names(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a")
    assert bodies(reader(server, subscribePattern=topic.replace("spark", "[a-z]+"))) == ["a"]
    assert bodies(reader(server, subscribePattern=topic[1:])) == []


def test_queues_are_assigned(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, "a")
    send_to(producer, topic, 1, "b")
    assert bodies(reader(server, assign=f'{{"{topic}":{{"broker-a":[1,2]}}}}')) == ["b"]
    with pytest.raises(rmqpy.errors.ConfigError, match=f"queue {topic}/broker-a/9 does not exist"):
        bodies(reader(server, assign=f'{{"{topic}":{{"broker-a":[9]}}}}'))


def test_tags_choose_messages(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    for tag in ("paid", "open", "refunded"):
        send_to(producer, topic, 0, tag, tag=tag)
    assert bodies(reader(server, subscribe=topic, subExpression="paid || refunded")) == ["paid", "refunded"]


def test_a_group_tells_where_to_begin(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, "a", "b", "c")
    send_to(producer, topic, 1, "d")
    group, queue = f"standing-{topic}", rmqpy.MessageQueue(topic, "broker-a", 0)
    with rmqpy.PullConsumer(group, server.namesrv, start_from="earliest") as consumer:
        consumer.assign([queue])
        assert consumer.poll(timeout=30)
        consumer.commit({queue: 2})
        consumer.assign([])
    begun = {"startingOffsets": "group", "consumerGroup": group}
    # The group has nothing in queue 1: that one is read from its beginning.
    assert bodies(reader(server, subscribe=topic, **begun)) == ["c", "d"]


def test_each_queue_may_begin_and_end_at_its_own_time(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a")
    middle_ms = moment_after_now()
    send_to(producer, topic, 0, "b")
    send_to(producer, topic, 1, "c")
    times = f'{{"{topic}":{{"broker-a":{{"0":{middle_ms}}}}}}}'
    assert bodies(reader(server, subscribe=topic, startingOffsetsByTimestamp=times)) == ["b", "c"]
    assert bodies(reader(server, subscribe=topic, endingOffsetsByTimestamp=times)) == ["a", "c"]


def test_a_time_newer_than_every_message_is_refused_or_the_end(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a")
    tomorrow = str(time.time_ns() // 1_000_000 + 86_400_000)
    with pytest.raises(rmqpy.errors.ConfigError, match="has no message as new"):
        bodies(reader(server, subscribe=topic, startingTimestamp=tomorrow))
    lenient = {"startingTimestamp": tomorrow, "startingOffsetsByTimestampStrategy": "latest"}
    assert bodies(reader(server, subscribe=topic, **lenient)) == []


@pytest.mark.parametrize(
    ("mode", "expected"), [("fail", None), ("null", [None]), ("replace", ["gr\N{REPLACEMENT CHARACTER}n"])]
)
def test_a_body_that_is_no_text_is_treated_as_asked(
    mode: str, expected: list[str | None] | None, server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    producer.send(topic, "grün".encode("latin-1"))
    asked = reader(server, subscribe=topic, bodyDecodeError=mode)
    if expected is None:
        with pytest.raises(rmqpy.errors.DecodeError, match=f"not UTF-8.*{topic}"):
            bodies(asked)
    else:
        assert bodies(asked) == expected


def test_every_column_has_every_type_it_can_have(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a" * 10_000, tag="paid", properties={"colour": "red"})
    for position in range(2):
        asked = StructType()
        for name, kinds in rmqpy.column_types().items():
            kind = kinds[min(position, len(kinds) - 1)]
            asked.add(name, SPARK_TYPES[kind])
        source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic}).reader(schema=asked)
        (batch,) = (batch for task in source.partitions() for batch in source.read(task))
        assert batch.schema == to_arrow_schema(asked, timezone="UTC")
        row = batch.to_pylist()[0]
        assert row["body"] in ("a" * 10_000, b"a" * 10_000)
        assert row["storeSize"] < 10_000
        assert "colour" in str(row["properties"])


def test_pulls_are_as_large_as_asked(
    server: Standalone, producer: rmqpy.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqpy.remoting import pulls

    asked: list[tuple[int, str]] = []
    original = pulls.request

    def request(group: str, *arguments: Any, messages_max: int, **others: Any) -> dict[str, str]:
        asked.append((messages_max, group))
        return original(group, *arguments, messages_max=messages_max, **others)

    send_to(producer, topic, 0, *map(str, range(20)))
    monkeypatch.setattr(pulls, "request", request)
    options = {"pullBatchSize": "7", "consumerGroup": "seven"}
    assert len(bodies(reader(server, subscribe=topic, **options))) == 20
    assert asked == [(7, "seven"), (7, "seven"), (6, "seven")]


def test_patience_is_what_the_user_says(
    server: Standalone, producer: rmqpy.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    original = rmqpy.read_ranges

    def read_ranges(ranges: Any, config: rmqpy.ClientConfig, **others: Any) -> rmqpy.RangeReader:
        told.update(others, request_timeout=config.request_timeout)
        return original(ranges, config, **others)

    monkeypatch.setattr(rmqpy, "read_ranges", read_ranges)
    options = {"requestTimeoutMs": "4567", "pullTimeoutMs": "7654", "fetchOffset.numRetries": "6"}
    bodies(reader(server, subscribe=topic, fetchBatchBytes="65536", **options))
    assert (told["request_timeout"], told["pull_timeout"], told["retries"]) == (4.567, 7.654, 6)
    assert told["batch_bytes"] == 65536


def test_questions_are_asked_again_as_often_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pyspark_rocketmq.cluster.time.sleep", slept.append)
    options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    options |= {"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "70"}
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        RocketMQSource(options).reader(schema=BODY).partitions()
    assert slept == [0.07] * 5


# --- filters that say what need not be read ---

C = ("queueOffset",)


@pytest.mark.parametrize(
    ("filters", "expected", "is_settled"),
    [
        ([EqualTo(("queueId",), 1)], ["1-0", "1-1", "1-2"], True),
        ([In(("queueId",), (0, 3))], ["0-0", "0-1", "0-2"], True),
        ([EqualTo(("topic",), "another")], [], True),
        ([EqualTo(("brokerName",), "broker-b")], [], True),
        ([EqualTo(C, 1)], ["0-1", "1-1"], True),
        ([GreaterThan(C, 1)], ["0-2", "1-2"], True),
        ([GreaterThanOrEqual(C, 1), LessThan(C, 2)], ["0-1", "1-1"], True),
        ([LessThanOrEqual(C, 0)], ["0-0", "1-0"], True),
        ([GreaterThan(C, 7)], [], True),
        ([EqualTo(("tags",), "t2")], ["0-2", "1-2"], False),
        ([In(("tags",), ("t0", "t2"))], ["0-0", "0-2", "1-0", "1-2"], False),
        ([StringContains(("tags",), "2")], None, False),
        ([EqualTo(("tags",), "a||b")], None, False),
        ([EqualTo(("properties", "queueId"), 1)], None, False),
    ],
)
def test_filters_narrow_what_is_read(
    filters: list[Filter],
    expected: list[str] | None,
    is_settled: bool,
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
) -> None:
    for number in range(3):
        for queue_id in (0, 1):
            send_to(producer, topic, queue_id, f"{queue_id}-{number}", tag=f"t{number}")
    narrowed = reader(server, subscribe=topic, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    left = list(narrowed.pushFilters(filters))
    assert left == ([] if is_settled else filters)
    whole = [f"{queue_id}-{number}" for queue_id in (0, 1) for number in range(3)]
    assert bodies(narrowed) == (whole if expected is None else expected)


def test_times_narrow_what_is_read_and_spark_looks_again(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a")
    middle = datetime.fromtimestamp(moment_after_now() / 1000, UTC)
    send_to(producer, topic, 0, "b")
    for kind, expected in ((GreaterThanOrEqual, ["b"]), (LessThan, ["a"])):
        narrowed = reader(server, subscribe=topic, pushdown="true")
        assert isinstance(narrowed, FilteringReader)
        filters: list[Filter] = [kind(("storeTimestamp",), middle)]
        assert list(narrowed.pushFilters(filters)) == filters
        assert bodies(narrowed) == expected


def moment_after_now() -> int:
    """A millisecond that comes after everything stored so far and before everything stored from now on."""
    before = time.time_ns() // 1_000_000
    while (now := time.time_ns() // 1_000_000) <= before + 2:
        time.sleep(0.001)
    return now - 1


# --- in a session ---


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


def test_properties_are_left_out_on_request(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    send(producer, topic, 1)
    assert "properties" in load().columns
    assert "properties" not in load(includeProperties=False).columns


def test_start_and_end_are_offsets(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    queue = producer.queues(topic)[0]
    offsets = [producer.send(topic, str(index), queue=queue).queue_offset for index in range(10)]
    others = {Queue(*each): -1 for each in producer.queues(topic)}
    start = format_offsets(others | {Queue(*queue): offsets[2]})
    end = format_offsets({Queue(*queue): offsets[5]})
    assert numbers(load(startingOffsets=start, endingOffsets=end)) == [2, 3, 4]


def test_start_and_end_are_times(load: Load, producer: rmqpy.Producer, topic: str) -> None:
    def after(moment_ms: int) -> int:
        while (now := time.time_ns() // 1_000_000) <= moment_ms:
            time.sleep(0.001)
        return now

    producer.send(topic, "0")
    start = after(time.time_ns() // 1_000_000)
    producer.send(topic, "1")
    end = after(time.time_ns() // 1_000_000)
    producer.send(topic, "2")
    assert numbers(load(startingTimestamp=start)) == [1, 2]
    assert numbers(load(endingTimestamp=end)) == [0, 1]
    assert numbers(load(startingTimestamp=start, endingTimestamp=end)) == [1]


def test_several_topics_are_one_dataframe(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, other_topic: str
) -> None:
    send(producer, topic, 2)
    send(producer, other_topic, 3)
    reader = spark.read.format("rocketmq").option("nameserver", server.namesrv)
    counts = reader.load(f"{topic},{other_topic}").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {topic: 2, other_topic: 3}


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
