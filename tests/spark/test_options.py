"""The options of the data source: accepted values, refused values, and errors."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqpy
from pyspark_rocketmq.offsets import EARLIEST, GROUP, LATEST, Position, Queue, format_offsets, parse_offsets
from pyspark_rocketmq.options import BATCH, NOT_YET, STREAM, WRITE, OptionError, Options, spelling, table
from pyspark_rocketmq.wanted import wanted_by
from rmqpy.message import Filter

GIVEN = {"nameserver": "127.0.0.1:9876", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("nameserver", "a:9876;b:9876", "a:9876;b:9876"),
        ("subscribe", "orders, bills,orders", ("orders", "bills")),
        ("startingOffsets", "earliest", EARLIEST),
        (
            "startingOffsets",
            '{"t":{"a":{"0":7,"1":-1}}}',
            {Queue("t", "a", 0): 7, Queue("t", "a", 1): LATEST},
        ),
        ("endingOffsets", "LATEST", LATEST),
        ("startingTimestamp", "1700000000000", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20", 1_700_000_000_000),
        ("minPartitions", "4", 4),
        ("maxPartitions", "4", 4),
        ("maxRecordsPerPartition", "500", 500),
        ("packRecords", "0", 0),
        ("fetchBatchRows", "100", 100),
        ("fetchBatchBytes", "65536", 65536),
        ("requestTimeoutMs", "5000", 5000),
        ("failOnDataLoss", "False", False),
        ("includeProperties", "false", False),
        ("subExpression", "paid || refunded", "paid || refunded"),
        ("consumerGroup", "billing", "billing"),
        ("startingOffsets", "Group", GROUP),
        ("startingOffsets", "latest", LATEST),
        ("startingOffsets", "begin", EARLIEST),
        ("startingOffsets", "End", LATEST),
        (
            "startingOffsetsByTimestamp",
            '{"t":{"a":{"0":17}}}',
            {Queue("t", "a", 0): 17},
        ),
        (
            "endingOffsetsByTimestamp",
            '{"t":{"a":{"0":"2023-11-14T22:13:20Z"}}}',
            {Queue("t", "a", 0): 1_700_000_000_000},
        ),
        ("startingOffsetsByTimestampStrategy", "Latest", "latest"),
        ("maxOffsetsPerTrigger", "100", 100),
        ("maxBytesPerTrigger", "100", 100),
        ("minOffsetsPerTrigger", "100", 100),
        ("maxTriggerDelay", "90s", 90.0),
        ("maxTriggerDelay", "2h", 7200.0),
        ("pullBatchSize", "32", 32),
        ("pullTimeoutMs", "5000", 5000),
        ("fetchOffset.numRetries", "0", 0),
        ("fetchOffset.retryIntervalMs", "5", 5),
        ("offsetPollIntervalMs", "500", 500),
        ("bodyDecodeError", "Replace", "replace"),
        ("availableNow", "true", True),
        ("commitOffsets", "true", True),
        ("pushdown", "true", True),
        ("producerGroup", "pg", "pg"),
        ("idempotencyKey", "window, userId", ("window", "userId")),
        ("queueSelector", "HASH", "hash"),
        ("sendBatchMessages", "10", 10),
        ("sendBatchBytes", "1000", 1000),
        ("maxInFlight", "1", 1),
        ("sendRetries", "0", 0),
        ("sendTimeoutMs", "1000", 1000),
        ("compressThreshold", "100", 100),
        ("createTopic", "true", True),
        ("ignoreExtraColumns", "true", True),
        ("sparkProperties", "true", True),
    ],
)
def test_an_option_is_understood(key: str, text: str, expected: Any) -> None:
    [field] = [each.name for each in fields(Options) if spelling(each) == key]
    for written in (key, key.lower()):
        assert getattr(Options.parse(GIVEN | {written: text}), field) == expected


@pytest.mark.parametrize("key", ["nameServer", "namesrvAddr", "NAMESRVADDR"])
def test_old_names_of_the_name_server_option_are_understood(key: str) -> None:
    assert Options.parse({key: "a:1", "topic": "orders"}, BATCH) == Options(
        nameserver="a:1", topics=("orders",)
    )


@pytest.mark.parametrize("key", ["path", "topic"])
def test_topic_option_is_source_or_target(key: str) -> None:
    given = {"nameserver": "a:1", key: "orders"}
    assert Options.parse(given, STREAM).topics == ("orders",)
    assert Options.parse(given, WRITE).topic == "orders"


@pytest.mark.parametrize(
    ("key", "text", "attribute", "expected"),
    [
        ("subscribePattern", "order.*", "subscribe_pattern", "order.*"),
        ("assign", '{"t":{"a":[1,0]}}', "assign", (Queue("t", "a", 0), Queue("t", "a", 1))),
    ],
)
def test_queues_are_selected_in_one_of_three_ways(key: str, text: str, attribute: str, expected: Any) -> None:
    given = {"nameserver": "a:1", key: text}
    assert getattr(Options.parse(given, BATCH), attribute) == expected
    with pytest.raises(OptionError, match="set only one of"):
        Options.parse(given | {"subscribe": "t"}, BATCH)


@pytest.mark.parametrize(
    ("key", "text", "role", "complaint"),
    [
        ("maxOffsetsPerTrigger", "1", BATCH, "applies to streaming reads, not to batch reads"),
        ("endingOffsets", "latest", STREAM, "applies to batch reads, not to streaming reads"),
        ("queueSelector", "hash", BATCH, "applies to writes, not to batch reads"),
        ("consumerGroup", "g", WRITE, "applies to batch reads and streaming reads, not to writes"),
        ("subscribe", "t", WRITE, "applies to batch reads and streaming reads, not to writes"),
    ],
)
def test_an_option_for_something_else_is_refused(key: str, text: str, role: str, complaint: str) -> None:
    given = GIVEN if role != WRITE else {"nameserver": "a:1"}
    with pytest.raises(OptionError, match=complaint):
        Options.parse(given | {key: text}, role)


@pytest.mark.parametrize("name", NOT_YET)
def test_option_that_cannot_be_ignored_safely_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is not supported"):
        Options.parse(GIVEN | {name.lower(): "x"})


def wanted(given: dict[str, str]) -> Filter:
    return wanted_by(Options.parse(GIVEN | given))


def test_sql_option_is_distinguished_from_tags_by_type() -> None:
    price = {"subExpression": "price > 10"}
    assert wanted(price | {"subExpressionType": "sql92"}) == rmqpy.sql("price > 10")
    for tags in ("paid", "paid || refunded", "a-b", "*", "TRUE", "5"):
        assert wanted({"subExpression": tags}) == tags
    with pytest.raises(OptionError, match=r"is SQL, not tags .* set 'subExpressionType' to 'SQL92'"):
        wanted(price)
    for wrong in ({}, {"subExpression": "price >"}, {"subExpression": "a LIKE 'x%'"}):
        with pytest.raises(OptionError, match=r"option 'subExpression': .* is not a valid filter: "):
            wanted(wrong | {"subExpressionType": "SQL92"})
    with pytest.raises(OptionError, match="expected TAG or SQL92"):
        wanted({"subExpressionType": "REGEX"})


def test_options_added_by_spark_are_ignored() -> None:
    for own in ("checkpointlocation", "queryname"):
        Options.parse({"nameserver": "a:1", own: "x"}, WRITE)


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("startingOffset", "earliest", "unknown option 'startingOffset': did you mean 'startingOffsets'?"),
        ("failondataloos", "true", "did you mean 'failOnDataLoss'?"),
        ("kafka.bootstrap.servers", "h:9092", "use 'nameserver'"),
        ("kafka.group.id", "g", "use 'consumerGroup'"),
        ("namesrv_addr", "a:1", "did you mean 'nameserver'?"),
        ("colour", "red", "unknown option 'colour'; known are accessKey, assign, "),
        ("path", "orders", "options 'subscribe' and 'path' are the same"),
        ("subscribe", " , ", "option 'subscribe': it has no name in it"),
        ("subscribePattern", "(", "expected a regular expression"),
        ("assign", '{"t":{"a":{"0":1}}}', "expected a list of queue ids for 't' on 'a'"),
        ("assign", '{"t":[0]}', "expected an object with the brokers of 't'"),
        ("assign", "{}", "it has no queue in it"),
        ("maxTriggerDelay", "15", "expected a duration"),
        ("queueSelector", "random", "expected roundRobin or hash or column"),
        ("bodyDecodeError", "skip", "expected fail or null or replace"),
        ("startingOffsetsByTimestamp", '{"t":{"a":{"0":"soon"}}}', "t/a/0: expected milliseconds"),
        ("nameserver", " ", "option 'nameserver': it is empty"),
        ("minPartitions", "0", "option 'minPartitions': expected a whole number, at least 1 (got '0')"),
        ("packRecords", "-1", "at least 0"),
        ("packRecords", "1e3", "at least 0"),
        ("failOnDataLoss", "yes", "expected true or false"),
        ("startingOffsets", "latest", "is empty"),
        ("endingOffsets", "earliest", "is empty"),
        ("endingOffsets", '{"t":{"a":{"0":-2}}}', "is empty"),
        ("startingOffsets", '{"t":{"a":{"0":-3}}}', "t/a/0: -3 is not an offset"),
        ("startingOffsets", '{"t":{"a":{"0":1.5}}}', "t/a/0: 1.5 is not an offset"),
        ("startingOffsets", '{"t":{"a":{"x":1}}}', "queue id 'x'"),
        ("startingOffsets", '{"t":{"a":{"00":1}}}', "queue id '00'"),
        ("startingOffsets", '{"t":{"a":{"0":1,"0":2}}}', "appears twice"),
        ("startingOffsets", '{"t":[1]}', "expected an object with the brokers of 't'"),
        ("startingOffsets", "[" * 100_000, "nested too deeply"),
        ("startingOffsets", "now", "expected JSON or a word such as latest"),
        ("startingTimestamp", "yesterday", "expected milliseconds since 1970 or ISO-8601"),
    ],
)
def test_a_wrong_option_is_refused_with_advice(key: str, text: str, complaint: str) -> None:
    role = {"maxTriggerDelay": STREAM, "queueSelector": None}.get(key, BATCH)
    with pytest.raises(OptionError) as raised:
        Options.parse({**GIVEN, key: text}, role)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("missing", ["nameserver", "subscribe"])
def test_missing_required_option_is_named(missing: str) -> None:
    with pytest.raises(OptionError, match=f"option '{missing}' is missing"):
        Options.parse({key: text for key, text in GIVEN.items() if key != missing}, STREAM)


def test_maximum_cannot_be_less_than_minimum() -> None:
    with pytest.raises(OptionError, match="less than 'minPartitions'"):
        Options.parse(GIVEN | {"minPartitions": "4", "maxPartitions": "3"})
    with pytest.raises(OptionError, match="less than 'minOffsetsPerTrigger'"):
        Options.parse(GIVEN | {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"})


def test_the_documentation_has_the_table_of_options() -> None:
    document = Path(__file__).parents[2] / "docs" / "spark.md"
    assert table() in document.read_text(encoding="utf-8")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    st.dictionaries(
        st.builds(Queue, names, names, st.integers(0, 10**4)), st.integers(0, 2**63 - 1), max_size=20
    )
)
def test_offsets_survive_json(offsets: dict[Queue, int]) -> None:
    text = format_offsets(offsets)
    assert parse_offsets(text) == offsets
    assert format_offsets(dict(reversed(offsets.items()))) == text


some_offsets = st.dictionaries(
    st.builds(Queue, names, names, st.integers(0, 10**4)), st.integers(0, 2**63 - 1), max_size=10
)


@given(some_offsets, st.booleans(), st.none() | some_offsets)
def test_position_survives_its_checkpoint(
    offsets: dict[Queue, int], is_first: bool, begun_at: dict[Queue, int] | None
) -> None:
    text = json.dumps(Position(offsets, is_first, begun_at).to_json())
    assert Position.of_json(json.loads(text)) == Position(offsets, is_first, begun_at)
    shuffled = Position(dict(reversed(offsets.items())), is_first, begun_at)
    assert json.dumps(shuffled.to_json()) == text


def test_position_of_a_newer_release_is_refused() -> None:
    told = {"v": 1, "queues": {"t": {"a": {"0": 7}}}, "colour": "red"}
    assert Position.of_json(told) == Position({Queue("t", "a", 0): 7})
    with pytest.raises(ValueError, match="newer pyspark-rocketmq"):
        Position.of_json(told | {"v": 2})
    with pytest.raises(ValueError, match="not an offset of the rocketmq source"):
        Position.of_json({"queues": {}})
