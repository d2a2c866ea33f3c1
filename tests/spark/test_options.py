"""The options of the data source: what is taken, what is refused, and in which words."""

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
from pyspark_rocketmq.predicates import wanted_by
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
def test_a_topic_is_what_is_read_or_where_it_goes(key: str) -> None:
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
    with pytest.raises(OptionError, match="give one of"):
        Options.parse(given | {"subscribe": "t"}, BATCH)


@pytest.mark.parametrize(
    ("key", "text", "role", "complaint"),
    [
        ("maxOffsetsPerTrigger", "1", BATCH, "is for streaming reads, not for batch reads"),
        ("endingOffsets", "latest", STREAM, "is for batch reads, not for streaming reads"),
        ("queueSelector", "hash", BATCH, "is for writes, not for batch reads"),
        ("consumerGroup", "g", WRITE, "is for batch reads and streaming reads, not for writes"),
        ("subscribe", "t", WRITE, "is for batch reads and streaming reads, not for writes"),
    ],
)
def test_an_option_for_something_else_is_refused(key: str, text: str, role: str, complaint: str) -> None:
    given = GIVEN if role != WRITE else {"nameserver": "a:1"}
    with pytest.raises(OptionError, match=complaint):
        Options.parse(given | {key: text}, role)


@pytest.mark.parametrize("name", NOT_YET)
def test_an_option_that_would_be_dangerous_to_ignore_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is not supported yet"):
        Options.parse(GIVEN | {name.lower(): "x"})


def wanted(given: dict[str, str]) -> Filter:
    return wanted_by(Options.parse(GIVEN | given))


def test_sql_is_told_from_tags_by_its_type() -> None:
    price = {"subExpression": "price > 10"}
    assert wanted(price | {"subExpressionType": "sql92"}) == rmqpy.sql("price > 10")
    for tags in ("paid", "paid || refunded", "a-b", "*", "TRUE", "5"):
        assert wanted({"subExpression": tags}) == tags
    with pytest.raises(OptionError, match=r"is SQL, not tags .* give 'subExpressionType' as 'SQL92'"):
        wanted(price)
    for wrong in ({}, {"subExpression": "price >"}, {"subExpression": "a LIKE 'x%'"}):
        with pytest.raises(OptionError, match=r"option 'subExpression': .* is no filter: "):
            wanted(wrong | {"subExpressionType": "SQL92"})
    with pytest.raises(OptionError, match="expected TAG or SQL92"):
        wanted({"subExpressionType": "REGEX"})


def test_what_spark_adds_to_a_sinks_options_is_left_to_it() -> None:
    Options.parse({"nameserver": "a:1", "checkpointlocation": "/x"}, WRITE)


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("startingOffset", "earliest", "unknown option 'startingOffset': did you mean 'startingOffsets'?"),
        ("failondataloos", "true", "did you mean 'failOnDataLoss'?"),
        ("kafka.bootstrap.servers", "h:9092", "here it is 'nameserver'"),
        ("kafka.group.id", "g", "here it is 'consumerGroup'"),
        ("namesrv_addr", "a:1", "did you mean 'nameserver'?"),
        ("colour", "red", "unknown option 'colour'; known are accessKey, assign, "),
        ("path", "orders", "options 'subscribe' and 'path' mean the same"),
        ("subscribe", " , ", "option 'subscribe': it names nothing"),
        ("subscribePattern", "(", "expected a regular expression"),
        ("assign", '{"t":{"a":{"0":1}}}', "expected a list of queue ids for 't' on 'a'"),
        ("assign", '{"t":[0]}', "expected an object with the brokers of 't'"),
        ("assign", "{}", "it names no queue"),
        ("maxTriggerDelay", "15", "expected a duration"),
        ("queueSelector", "random", "expected roundRobin or hash or column"),
        ("bodyDecodeError", "skip", "expected fail or null or replace"),
        ("startingOffsetsByTimestamp", '{"t":{"a":{"0":"soon"}}}', "t/a/0: expected milliseconds"),
        ("nameserver", " ", "option 'nameserver': it is empty"),
        ("minPartitions", "0", "option 'minPartitions': expected a whole number, at least 1 (got '0')"),
        ("packRecords", "-1", "at least 0"),
        ("packRecords", "1e3", "at least 0"),
        ("failOnDataLoss", "yes", "expected true or false"),
        ("startingOffsets", "latest", "reads nothing"),
        ("endingOffsets", "earliest", "reads nothing"),
        ("endingOffsets", '{"t":{"a":{"0":-2}}}', "reads nothing"),
        ("startingOffsets", '{"t":{"a":{"0":-3}}}', "t/a/0: -3 is not an offset"),
        ("startingOffsets", '{"t":{"a":{"0":1.5}}}', "t/a/0: 1.5 is not an offset"),
        ("startingOffsets", '{"t":{"a":{"x":1}}}', "queue id 'x'"),
        ("startingOffsets", '{"t":{"a":{"00":1}}}', "queue id '00'"),
        ("startingOffsets", '{"t":{"a":{"0":1,"0":2}}}', "stands twice"),
        ("startingOffsets", '{"t":[1]}', "expected an object with the brokers of 't'"),
        ("startingOffsets", "[" * 100_000, "nested too deeply"),
        ("startingOffsets", "now", "expected JSON or a word that stands for it"),
        ("startingTimestamp", "yesterday", "expected milliseconds since 1970 or ISO-8601"),
    ],
)
def test_a_wrong_option_is_refused_with_advice(key: str, text: str, complaint: str) -> None:
    role = {"maxTriggerDelay": STREAM, "queueSelector": None}.get(key, BATCH)
    with pytest.raises(OptionError) as raised:
        Options.parse({**GIVEN, key: text}, role)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("missing", ["nameserver", "subscribe"])
def test_what_is_required_is_asked_for(missing: str) -> None:
    with pytest.raises(OptionError, match=f"option '{missing}' is missing"):
        Options.parse({key: text for key, text in GIVEN.items() if key != missing}, STREAM)


def test_at_most_cannot_be_less_than_at_least() -> None:
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
def test_offsets_survive_the_way_through_json(offsets: dict[Queue, int]) -> None:
    text = format_offsets(offsets)
    assert parse_offsets(text) == offsets
    assert format_offsets(dict(reversed(offsets.items()))) == text


some_offsets = st.dictionaries(
    st.builds(Queue, names, names, st.integers(0, 10**4)), st.integers(0, 2**63 - 1), max_size=10
)


@given(some_offsets, st.booleans(), st.none() | some_offsets)
def test_a_position_survives_its_checkpoint_as_one_text(
    offsets: dict[Queue, int], is_first: bool, begun_at: dict[Queue, int] | None
) -> None:
    text = json.dumps(Position(offsets, is_first, begun_at).to_json())
    assert Position.of_json(json.loads(text)) == Position(offsets, is_first, begun_at)
    shuffled = Position(dict(reversed(offsets.items())), is_first, begun_at)
    assert json.dumps(shuffled.to_json()) == text


def test_a_position_of_the_future_is_refused_and_unknown_fields_are_not() -> None:
    told = {"v": 1, "queues": {"t": {"a": {"0": 7}}}, "colour": "red"}
    assert Position.of_json(told) == Position({Queue("t", "a", 0): 7})
    with pytest.raises(ValueError, match="newer pyspark-rocketmq"):
        Position.of_json(told | {"v": 2})
    with pytest.raises(ValueError, match="no offset of the rocketmq source"):
        Position.of_json({"queues": {}})
