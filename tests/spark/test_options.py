"""The options of the data source: what is taken, what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Queue, format_offsets, parse_offsets
from pyspark_rocketmq.options import OptionError, Options, table

GIVEN = {"nameserver": "127.0.0.1:9876", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("key", "text", "attribute", "expected"),
    [
        ("nameserver", "a:9876;b:9876", "namesrv", "a:9876;b:9876"),
        ("subscribe", "orders, bills,orders", "topics", ("orders", "bills")),
        ("startingOffsets", "earliest", "starting", EARLIEST),
        (
            "startingOffsets",
            '{"t":{"a":{"0":7,"1":-1}}}',
            "starting",
            {Queue("t", "a", 0): 7, Queue("t", "a", 1): LATEST},
        ),
        ("endingOffsets", "LATEST", "ending", LATEST),
        ("startingTimestamp", "1700000000000", "starting_ms", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20Z", "ending_ms", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T23:13:20+01:00", "ending_ms", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20", "ending_ms", 1_700_000_000_000),
        ("minPartitions", "4", "partitions_min", 4),
        ("maxPartitions", "4", "partitions_max", 4),
        ("maxRecordsPerPartition", "500", "partition_rows_max", 500),
        ("packRecords", "0", "pack_rows", 0),
        ("fetchBatchRows", "100", "batch_rows", 100),
        ("fetchBatchBytes", "65536", "batch_bytes", 65536),
        ("requestTimeoutMs", "5000", "request_timeout_ms", 5000),
        ("failOnDataLoss", "False", "is_loss_fatal", False),
        ("includeProperties", "false", "with_properties", False),
    ],
)
def test_an_option_is_understood(key: str, text: str, attribute: str, expected: Any) -> None:
    for spelling in (key, key.lower()):
        assert getattr(Options.parse(GIVEN | {spelling: text}), attribute) == expected


@pytest.mark.parametrize("key", ["nameServer", "namesrvAddr", "NAMESRVADDR"])
def test_old_names_of_the_name_server_option_are_understood(key: str) -> None:
    assert Options.parse({key: "a:1", "topic": "orders"}) == Options(namesrv="a:1", topics=("orders",))


def test_load_with_an_argument_names_the_topic() -> None:
    assert Options.parse({"nameserver": "a:1", "path": "orders"}).topics == ("orders",)


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("startingOffset", "earliest", "unknown option 'startingOffset': did you mean 'startingOffsets'?"),
        ("failondataloos", "true", "did you mean 'failOnDataLoss'?"),
        ("namesrv_addr", "a:1", "did you mean 'nameserver'?"),
        ("colour", "red", "unknown option 'colour'; known are endingOffsets, "),
        ("topic", "orders", "options 'subscribe' and 'topic' mean the same"),
        ("subscribe", " , ", "option 'subscribe': it names no topic"),
        ("nameserver", " ", "option 'nameserver': it is empty"),
        ("minPartitions", "0", "option 'minPartitions': expected a whole number, at least 1 (got '0')"),
        ("packRecords", "-1", "at least 0"),
        ("packRecords", "1e3", "at least 0"),
        ("failOnDataLoss", "yes", "expected true or false"),
        ("startingOffsets", "latest", "reads nothing"),
        ("endingOffsets", "earliest", "reads nothing"),
        ("endingOffsets", '{"t":{"a":{"0":-2}}}', "reads nothing"),
        ("startingOffsets", '{"t":{"a":{"0":-3}}}', "offset -3 of t/a/0"),
        ("startingOffsets", '{"t":{"a":{"0":1.5}}}', "offset 1.5 of t/a/0"),
        ("startingOffsets", '{"t":{"a":{"x":1}}}', "queue id 'x'"),
        ("startingOffsets", '{"t":{"a":{"00":1}}}', "queue id '00'"),
        ("startingOffsets", '{"t":{"a":{"0":1,"0":2}}}', "stands twice"),
        ("startingOffsets", '{"t":[1]}', "expected an object with the brokers of 't'"),
        ("startingOffsets", "[" * 100_000, "nested too deeply"),
        ("startingOffsets", "now", "expected earliest, latest or JSON"),
        ("startingTimestamp", "yesterday", "expected milliseconds since 1970 or ISO-8601"),
    ],
)
def test_a_wrong_option_is_refused_with_advice(key: str, text: str, complaint: str) -> None:
    with pytest.raises(OptionError) as raised:
        Options.parse({**GIVEN, key: text})
    assert complaint in str(raised.value)


@pytest.mark.parametrize("missing", ["nameserver", "subscribe"])
def test_what_is_required_is_asked_for(missing: str) -> None:
    with pytest.raises(OptionError, match=f"option '{missing}' is missing"):
        Options.parse({key: text for key, text in GIVEN.items() if key != missing})


def test_at_most_cannot_be_less_than_at_least() -> None:
    with pytest.raises(OptionError, match="less than 'minPartitions'"):
        Options.parse(GIVEN | {"minPartitions": "4", "maxPartitions": "3"})


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
