"""Batch reads without a session: each option that selects messages and columns, at a real broker."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import StructType

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.schema import SPARK_TYPES
from pyspark_rocketmq.source import RocketMQSource
from rmqpy import errors
from rmqpy.server import Standalone
from spark.reads import BODY, bodies, expected_schema, reader, send_to
from waiting import moment_after_now


def texts(*names: str) -> StructType:
    """A structure of strings."""
    structure = StructType()
    for name in names:
        structure.add(name, "string")
    return structure


def test_topics_are_found_by_their_whole_names(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a")
    assert bodies(reader(server, subscribePattern=topic.replace("spark", "[a-z]+"))) == ["a"]
    assert bodies(reader(server, subscribePattern=topic[1:])) == []


def test_read_covers_one_namespace(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
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


def test_tags_select_messages(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
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


def test_each_queue_can_have_its_own_time_range(
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
    with pytest.raises(rmqpy.errors.ConfigError, match="has no message stored at or after"):
        bodies(reader(server, subscribe=topic, startingTimestamp=tomorrow))
    lenient = {"startingTimestamp": tomorrow, "startingOffsetsByTimestampStrategy": "latest"}
    assert bodies(reader(server, subscribe=topic, **lenient)) == []


@pytest.mark.parametrize(
    ("mode", "expected"), [("fail", None), ("null", [None]), ("replace", ["gr\N{REPLACEMENT CHARACTER}n"])]
)
def test_undecodable_text_body_is_treated_as_configured(
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
        assert batch.schema == expected_schema(asked)
        row = batch.to_pylist()[0]
        assert row["body"] in ("a" * 10_000, b"a" * 10_000)
        assert row["storeSize"] < 10_000
        assert "colour" in str(row["properties"])


def test_pull_size_is_configurable(
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


def test_timeouts_are_configurable(
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
    # Not time.sleep itself, which other threads use.
    clock = SimpleNamespace(**{**vars(time), "sleep": slept.append})
    monkeypatch.setattr("pyspark_rocketmq.cluster.time", clock)
    options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    options |= {"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "70"}
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        RocketMQSource(options).reader(schema=BODY).partitions()
    assert len(slept) == 5
    for pause, least in zip(slept, (0.07, 0.14, 0.28, 0.56, 1.12), strict=True):
        assert least <= pause <= 1.5 * least


def test_pauses_between_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    # Not time.sleep itself, which other threads use.
    clock = SimpleNamespace(**{**vars(time), "sleep": slept.append})
    monkeypatch.setattr("pyspark_rocketmq.cluster.time", clock)
    options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    options |= {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "9000"}
    with pytest.raises(rmqpy.errors.NameServerUnreachable):
        RocketMQSource(options).reader(schema=BODY).partitions()
    assert [9 <= slept[0] <= 13.5] + [10 <= pause <= 15 for pause in slept[1:]] == [True] * 4


@pytest.fixture(scope="module")
def without_sql() -> Iterator[Standalone]:
    """A broker that filters by tags alone, as Apache's does unless it is told otherwise."""
    with rmqpy.testing.broker(enablePropertyFilter="false") as server:
        yield server


def test_sql_selects_messages(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    for number in range(12):
        send_to(
            producer, topic, number % 2, str(number), tag=f"t{number % 3}", properties={"price": str(number)}
        )
    options = {"subscribe": topic, "subExpressionType": "SQL92", "subExpression": "price > 8 OR price = 1"}
    assert bodies(reader(server, **options)) == ["1", "10", "11", "9"]


def test_disabled_sql_fails_the_plan_with_advice(without_sql: Standalone) -> None:
    topic = "sql-asked-for"
    with rmqpy.Admin(without_sql.namesrv) as admin:
        admin.create_topic(topic)
    options = {"subscribe": topic, "subExpressionType": "SQL92", "subExpression": "price > 8"}
    with pytest.raises(errors.Unsupported, match=r"enablePropertyFilter=true") as refused:
        reader(without_sql, **options).partitions()
    assert "broker-a" in str(refused.value)


def test_properties_can_be_a_structure_of_selected_ones(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send_to(producer, topic, 0, "a", properties={"region": "EU", "price": "5", "more": "x"})
    send_to(producer, topic, 0, "b", tag="paid")
    schema = StructType().add("body", "string").add("properties", texts("region", "price", "TAGS"))
    source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic})
    read = source.reader(schema=schema)
    batches = [batch for task in read.partitions() for batch in read.read(task)]
    table = pyarrow.Table.from_batches(batches)
    assert table.schema == expected_schema(schema)
    assert table.column("properties").to_pylist() == [
        {"region": "EU", "price": "5", "TAGS": None},
        {"region": None, "price": None, "TAGS": "paid"},
    ]
    for wrong, reason in (
        (StructType().add("price", "integer"), "properties are string; cast it"),
        (texts("a", "a"), "each name only once"),
        (StructType(), "at least one field"),
    ):
        with pytest.raises(errors.ConfigError, match=reason):
            source.reader(schema=StructType().add("properties", wrong))
