"""Batch reads without a session: each option that chooses messages, columns and filters, against a real broker."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.batch import FilteringReader, TopicReader
from pyspark_rocketmq.schema import SPARK_TYPES
from pyspark_rocketmq.source import RocketMQSource
from pyspark_rocketmq.task import Task
from rmqpy import errors
from rmqpy.server import Standalone


def bodies(reader: TopicReader) -> list[Any]:
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    return sorted(pyarrow.Table.from_batches(batches).column("body").to_pylist()) if batches else []


#: Only the bodies, as text.
BODY = StructType().add("body", "string")


def texts(*names: str) -> StructType:
    """A structure of strings."""
    structure = StructType()
    for name in names:
        structure.add(name, "string")
    return structure


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


def test_a_read_is_of_one_namespace(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    shop = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")
    with rmqpy.Admin(shop) as admin, rmqpy.Producer(shop) as shopkeeper:
        admin.create_topic(topic)
        send_to(shopkeeper, topic, 0, "of shop")
    send_to(producer, topic, 0, "of nobody")
    for options in ({"subscribe": topic}, {"subscribePattern": topic}):
        assert bodies(reader(server, **options)) == ["of nobody"]
        assert bodies(reader(server, namespace="shop", **options)) == ["of shop"]


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


def test_a_read_begins_at_the_offsets_of_a_group(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
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


def test_start_and_end_are_offsets(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, *"0123456789")
    start = f'{{"{topic}":{{"broker-a":{{"0":2,"1":-1,"2":-2}}}}}}'
    end = f'{{"{topic}":{{"broker-a":{{"0":5}}}}}}'
    offsets = {"startingOffsets": start, "endingOffsets": end}
    assert bodies(reader(server, subscribe=topic, **offsets)) == ["2", "3", "4"]


def test_start_and_end_are_times(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    send_to(producer, topic, 0, "0")
    start = {"startingTimestamp": str(moment_after_now())}
    send_to(producer, topic, 0, "1")
    end = {"endingTimestamp": str(moment_after_now())}
    send_to(producer, topic, 0, "2")
    assert bodies(reader(server, subscribe=topic, **start)) == ["1", "2"]
    assert bodies(reader(server, subscribe=topic, **end)) == ["0", "1"]
    assert bodies(reader(server, subscribe=topic, **start, **end)) == ["1"]


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


def test_timeouts_are_what_the_user_says(
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


def test_requests_are_repeated_as_often_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pyspark_rocketmq.cluster.time.sleep", slept.append)
    options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    options |= {"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "70"}
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        RocketMQSource(options).reader(schema=BODY).partitions()
    assert len(slept) == 5
    for pause, least in zip(slept, (0.07, 0.14, 0.28, 0.56, 1.12), strict=True):
        assert least <= pause <= 1.5 * least


def test_pauses_between_requests_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pyspark_rocketmq.cluster.time.sleep", slept.append)
    options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    options |= {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "9000"}
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        RocketMQSource(options).reader(schema=BODY).partitions()
    assert [9 <= slept[0] <= 13.5] + [10 <= pause <= 15 for pause in slept[1:]] == [True] * 4


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
        ([StringContains(("tags",), "2")], ["0-2", "1-2"], False),
        ([EqualTo(("tags",), "a||b")], [], False),
        ([EqualTo(("properties", "number"), "1")], ["0-1", "1-1"], False),
        ([EqualTo(("properties", "queueId"), 1)], None, False),
        ([In(("properties", "number"), ("0", "2"))], ["0-0", "0-2", "1-0", "1-2"], False),
        ([Not(EqualTo(("properties", "number"), "1"))], ["0-0", "0-2", "1-0", "1-2"], False),
        ([Not(In(("properties", "number"), ("0", "1")))], ["0-2", "1-2"], False),
        ([IsNotNull(("properties", "first"))], ["0-0", "1-0"], False),
        ([IsNull(("properties", "first"))], None, False),
        ([StringStartsWith(("properties", "text"), "it's 1")], ["0-1", "1-1"], False),
        ([StringEndsWith(("properties", "text"), " 2")], ["0-2", "1-2"], False),
        ([StringContains(("properties", "text"), "'s 0")], ["0-0", "1-0"], False),
        ([StringContains(("properties", "text"), "")], None, False),
        ([EqualTo(("keys",), "k2")], ["0-2", "1-2"], False),
        ([GreaterThan(("properties", "number"), "0")], None, False),
        ([EqualTo(("properties", "true"), "1")], None, False),
        ([EqualTo(("properties", "no-name"), "1")], None, False),
        ([EqualTo(("properties", "number"), "x" * 100_000)], None, False),
        ([In(("tags",), ("t1", "t2")), Not(EqualTo(("properties", "number"), "1"))], ["0-2", "1-2"], False),
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
            properties = {"number": str(number), "text": f"it's {number}"} | (
                {} if number else {"first": "yes"}
            )
            fields = {"tag": f"t{number}", "keys": f"k{number}", "properties": properties}
            send_to(producer, topic, queue_id, f"{queue_id}-{number}", **fields)
    narrowed = reader(server, subscribe=topic, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    left = list(narrowed.pushFilters(filters))
    assert left == ([] if is_settled else filters)
    whole = [f"{queue_id}-{number}" for queue_id in (0, 1) for number in range(3)]
    assert bodies(narrowed) == (whole if expected is None else expected)


@pytest.fixture(scope="module")
def without_sql() -> Iterator[Standalone]:
    """A broker that filters by tags alone, as Apache's does unless it is told otherwise."""
    with rmqpy.testing.broker(enablePropertyFilter="false") as server:
        yield server


def test_messages_are_chosen_by_sql(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    for number in range(12):
        send_to(
            producer, topic, number % 2, str(number), tag=f"t{number % 3}", properties={"price": str(number)}
        )
    options = {"subscribe": topic, "subExpressionType": "SQL92", "subExpression": "price > 8 OR price = 1"}
    assert bodies(reader(server, **options)) == ["1", "10", "11", "9"]
    narrowed = reader(server, **options, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    assert (
        len(list(narrowed.pushFilters([EqualTo(("tags",), "t1"), IsNotNull(("properties", "price"))]))) == 2
    )
    assert bodies(narrowed) == ["1", "10"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("tags",), "paid in full")], ["0"]),
        ([In(("tags",), ("paid in full", "a='b'"))], ["0", "1"]),
        ([EqualTo(("tags",), "a='b'")], ["1"]),
        ([In(("tags",), tuple(f"t{number}" for number in range(1_001)))], ["2"]),
        ([EqualTo(("storeTimestamp",), "yesterday")], ["0", "1", "2"]),
        ([GreaterThan(("storeTimestamp",), datetime.min)], ["0", "1", "2"]),
        ([LessThanOrEqual(("storeTimestamp",), datetime.max)], ["0", "1", "2"]),
        ([EqualTo(("queueOffset",), None)], ["0", "1", "2"]),
        ([GreaterThan(("queueOffset",), float("nan"))], ["0", "1", "2"]),
        ([EqualTo(("keys",), "x" * 20_000)], ["0", "1", "2"]),
    ],
)
def test_a_filter_that_cannot_be_pushed_down_is_left_to_spark(
    filters: list[Filter],
    expected: list[str],
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
) -> None:
    for number, tag in enumerate(("paid in full", "a='b'", "t1")):
        send_to(producer, topic, 0, str(number), tag=tag)
    narrowed = reader(server, subscribe=topic, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    assert list(narrowed.pushFilters(filters)) == filters
    assert bodies(narrowed) == expected


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([IsNotNull(("tags",)), EqualTo(("tags",), "t1")], "t1"),
        ([IsNotNull(("tags",))], rmqpy.sql("(TAGS IS NOT NULL)")),
        ([IsNotNull(("keys",)), EqualTo(("keys",), "k")], rmqpy.sql("(KEYS = 'k')")),
        ([EqualTo(("tags",), "t1"), EqualTo(("keys",), "k")], rmqpy.sql("(TAGS IN ('t1')) AND (KEYS = 'k')")),
        ([GreaterThan(("keys",), "k")], "*"),
    ],
)
def test_brokers_are_asked_for_tags_where_these_will_do(
    filters: list[Filter], wanted: object, server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "x")
    narrowed = reader(server, subscribe=topic, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    assert list(narrowed.pushFilters(filters)) == filters
    (task,) = narrowed.partitions()
    assert isinstance(task, Task)
    assert task.wanted == wanted


def test_sql_that_a_broker_has_switched_off_fails_the_plan_with_what_to_do(without_sql: Standalone) -> None:
    topic = "sql-asked-for"
    with rmqpy.Admin(without_sql.namesrv) as admin:
        admin.create_topic(topic)
    options = {"subscribe": topic, "subExpressionType": "SQL92", "subExpression": "price > 8"}
    with pytest.raises(errors.Unsupported, match=r"enablePropertyFilter=true") as refused:
        reader(without_sql, **options).partitions()
    assert "broker-a" in str(refused.value)


def test_filters_on_properties_are_left_to_spark_where_brokers_have_them_switched_off(
    without_sql: Standalone,
) -> None:
    topic = "sql-left-to-spark"
    with rmqpy.Producer(without_sql.namesrv) as producer:
        producer.send(topic, "first", tag="t9")
        for number in range(3):
            send_to(producer, topic, 0, str(number), tag=f"t{number}", properties={"number": str(number)})
    for more, expected in (([], ["0", "1", "2", "first"]), ([In(("tags",), ("t1", "t2"))], ["1", "2"])):
        narrowed = reader(without_sql, subscribe=topic, pushdown="true")
        assert isinstance(narrowed, FilteringReader)
        filters: list[Filter] = [EqualTo(("properties", "number"), "1"), *more]
        assert list(narrowed.pushFilters(filters)) == filters
        with pytest.warns(UserWarning, match="left to Spark: .*enablePropertyFilter=true"):
            assert bodies(narrowed) == expected


def test_properties_may_be_a_structure_of_those_that_are_wanted(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a", properties={"region": "EU", "price": "5", "more": "x"})
    send_to(producer, topic, 0, "b", tag="paid")
    schema = StructType().add("body", "string").add("properties", texts("region", "price", "TAGS"))
    source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic})
    read = source.reader(schema=schema)
    batches = [batch for task in read.partitions() for batch in read.read(task)]
    table = pyarrow.Table.from_batches(batches)
    assert table.schema == to_arrow_schema(schema, timezone="UTC")
    assert table.column("properties").to_pylist() == [
        {"region": "EU", "price": "5", "TAGS": None},
        {"region": None, "price": None, "TAGS": "paid"},
    ]
    for wrong, reason in (
        (StructType().add("price", "integer"), "properties are string; cast it"),
        (texts("a", "a"), "each property once"),
        (StructType(), "one at least"),
    ):
        with pytest.raises(errors.ConfigError, match=reason):
            source.reader(schema=StructType().add("properties", wrong))


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
