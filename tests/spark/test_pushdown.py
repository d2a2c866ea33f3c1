"""Filters that narrow a batch read, without a session, at a real broker."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.features import FILTERS
from pyspark_rocketmq.task import Task
from rmqpy.server import Standalone
from spark.reads import bodies, reader, send_to
from waiting import moment_after_now

if not FILTERS.is_offered:
    pytest.skip(f"{FILTERS.name} needs Spark {FILTERS.since}", allow_module_level=True)

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

from pyspark_rocketmq.pushdown import FilteringReader

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
def test_filters_narrow_a_read(
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


def test_sql_of_the_options_and_filters_select_together(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    for number in range(12):
        send_to(
            producer, topic, number % 2, str(number), tag=f"t{number % 3}", properties={"price": str(number)}
        )
    options = {"subscribe": topic, "subExpressionType": "SQL92", "subExpression": "price > 8 OR price = 1"}
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
def test_tag_filters_are_pushed_down_as_tags(
    filters: list[Filter], wanted: object, server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "x")
    narrowed = reader(server, subscribe=topic, pushdown="true")
    assert isinstance(narrowed, FilteringReader)
    assert list(narrowed.pushFilters(filters)) == filters
    (task,) = narrowed.partitions()
    assert isinstance(task, Task)
    assert task.wanted == wanted


def test_property_filters_are_left_to_spark_if_brokers_disable_them(
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


def test_time_filters_narrow_a_read_and_spark_filters_again(
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
