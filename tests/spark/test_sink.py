"""The sink of one task against a real broker, without a session: messages, their ids, and errors."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq import sink
from pyspark_rocketmq.sink import TopicWriter
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.server import Standalone
from waiting import until

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.timeout(300)

Read = Callable[..., list[rmqpy.ReceivedMessage]]


def schema(table: pyarrow.Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema)


def write(server: Standalone, columns: dict[str, Any], **options: str) -> TopicWriter:
    """Write a table of these columns, as a task does."""
    table = pyarrow.table(columns)
    given = {"nameserver": server.namesrv} | options
    writer = RocketMQSource(given).writer(schema=schema(table), overwrite=False)
    writer.write(iter(table.to_batches()))
    return writer


def test_columns_map_to_message_fields(server: Standalone, topic: str, received: Read) -> None:
    write(
        server,
        {
            "value": ["grüße"],
            "topic": [topic],
            "tags": ["paid"],
            "key": [["A-1", "B-2"]],
            "headers": pyarrow.array([[("colour", "red")]], pyarrow.map_(pyarrow.string(), pyarrow.string())),
            "partition": pyarrow.array([3], pyarrow.int32()),
            "brokerName": ["broker-a"],
            "flag": pyarrow.array([7], pyarrow.int32()),
            "msgId": ["MY-OWN-ID"],
            "shardingKey": ["customer-7"],
        },
    )
    (message,) = received()
    assert (message.text(), message.tag, message.keys, message.flag) == ("grüße", "paid", ("A-1", "B-2"), 7)
    assert (message.queue.queue_id, message.message_id) == (3, "MY-OWN-ID")
    assert (message.properties["colour"], message.sharding_key) == ("red", "customer-7")


def test_rows_go_to_a_topic_of_their_namespace(server: Standalone, topic: str, received: Read) -> None:
    with rmqpy.Admin(rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")) as admin:
        admin.create_topic(topic)
    columns = {"body": [b"a", b"b"], "queueId": pyarrow.array([0, 1], pyarrow.int32())}
    write(server, columns, topic=topic, namespace="shop")
    assert received() == []
    assert [message.body for message in received(f"shop%{topic}")] == [b"a", b"b"]


def test_columns_may_be_null(server: Standalone, topic: str, received: Read) -> None:
    nothing = {
        name: pyarrow.array([None], pyarrow.string()) for name in ("tags", "keys", "shardingKey", "msgId")
    }
    write(server, {"body": [b"x"], "topic": ["elsewhere"], **nothing}, topic=topic)
    (message,) = received()
    assert (message.body, message.tag, message.keys, message.sharding_key) == (b"x", None, (), None)


def test_null_key_is_dropped_alone(server: Standalone, topic: str, received: Read) -> None:
    keys = pyarrow.array([["A-1", None, "B-2"], [None], None], pyarrow.list_(pyarrow.string()))
    write(server, {"body": [b"0", b"1", b"2"], "keys": keys}, topic=topic)
    found = {message.body: message.keys for message in received()}
    assert found == {b"0": ("A-1", "B-2"), b"1": (), b"2": ()}


def test_rows_of_equal_lists_of_keys_go_to_one_queue(server: Standalone, topic: str, received: Read) -> None:
    keys = [["A-1", "B-2"], ["C-3"]] * 5
    write(server, {"body": [b"x"] * 10, "keys": keys}, topic=topic, queueSelector="hash")
    queues = {(message.keys, message.queue.queue_id) for message in received()}
    assert len(queues) == 2


@pytest.mark.parametrize(
    "rows",
    [
        [("a\x1fb", "c"), ("a", "b\x1fc")],
        [("1:a", ""), ("", "1:a")],
        [("-", "-"), (None, None), (None, "-"), ("", None), (None, ""), ("\x00", "\x00")],
    ],
)
def test_rows_of_different_values_have_different_ids(
    server: Standalone, topic: str, received: Read, rows: list[tuple[str | None, str | None]]
) -> None:
    columns = {
        "body": [b"x"] * len(rows),
        "one": pyarrow.array([one for one, _ in rows], pyarrow.string()),
        "other": pyarrow.array([other for _, other in rows], pyarrow.string()),
    }
    write(server, columns, topic=topic, idempotencyKey="one,other")
    assert len({message.message_id for message in received()}) == len(rows)


def test_a_process_keeps_a_few_producers_and_closes_the_least_recently_used(
    server: Standalone, topic: str, received: Read
) -> None:
    def made(number: int) -> rmqpy.Producer:
        write(server, {"body": [b"x"]}, topic=topic, producerGroup=f"group-{number}")
        return next(reversed(sink._PRODUCERS.values()))

    first, second = made(0), made(1)
    others = [made(number) for number in range(2, sink.PRODUCERS_MAX)]
    assert made(0) is first
    others.append(made(sink.PRODUCERS_MAX))
    assert len(sink._PRODUCERS) == sink.PRODUCERS_MAX
    assert second.is_closed
    assert not any(producer.is_closed for producer in (first, *others))
    assert made(1) is not second
    assert len(received()) == sink.PRODUCERS_MAX + 3


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ({"tags": ["x"]}, {}, "column 'body' is missing"),
        ({"body": [b"x"], "colour": ["red"]}, {}, "column 'colour' is not part of a message"),
        ({"body": [1]}, {}, r"column 'body' cannot be bigint; it can be binary or string.*cast\('binary'\)"),
        ({"body": [b"x"], "value": [b"x"]}, {}, "columns 'body' and 'value' are the same"),
        ({"body": [b"x"]}, {"topic": None}, "the topic is missing"),
        (
            {"body": [b"x"]},
            {"idempotencyKey": "userId"},
            "'idempotencyKey' names 'userId', which is not a column",
        ),
        ({"body": [b"x"]}, {"queueSelector": "column"}, "needs a column 'queueId'"),
        ({"body": [b"x"]}, {"queueSelector": "hash"}, "needs a column 'shardingKey' or 'keys'"),
    ],
)
def test_unwritable_rows_are_refused_while_planning(
    columns: dict[str, Any], options: dict[str, str | None], complaint: str, server: Standalone, topic: str
) -> None:
    given = {key: value for key, value in ({"topic": topic} | options).items() if value is not None}
    with pytest.raises(rmqpy.errors.ConfigError, match=complaint):
        write(server, columns, **given)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ({"body": [b"x", None]}, {}, "partition 0 cannot be sent: row 1: its body is null or empty"),
        ({"body": [b"x"], "tags": ["a||b"]}, {}, "row 0: tag"),
        ({"body": [b"x"], "keys": [["A-1", "a b"]]}, {}, 'row 0: key "a b" has white space inside'),
        ({"body": [b"x"], "keys": [[""]]}, {}, 'row 0: key "" is empty'),
        ({"body": [b"x"], "msgId": ["a\x01b"]}, {}, "row 0: msgId"),
        (
            {
                "body": [b"x"],
                "delayLevel": pyarrow.array([1], pyarrow.int32()),
                "deliverTimestamp": pyarrow.array([1], pyarrow.int64()),
            },
            {},
            "row 0: give one of delayLevel and deliverTimestamp",
        ),
        (
            {"body": [b"x"], "keys": pyarrow.array([None], pyarrow.string())},
            {"queueSelector": "hash"},
            "row 0: it has",
        ),
        (
            {
                "body": [b"x"],
                "properties": pyarrow.array(
                    [[("TAGS", "x")]], pyarrow.map_(pyarrow.string(), pyarrow.string())
                ),
            },
            {},
            'row 0: property "TAGS" is reserved',
        ),
        ({"body": [b"x"], "queueId": pyarrow.array([99], pyarrow.int32())}, {}, "has no queue 99"),
    ],
)
def test_refused_row_is_named(
    columns: dict[str, Any], options: dict[str, str], complaint: str, server: Standalone, topic: str
) -> None:
    with pytest.raises(rmqpy.errors.ConfigError, match=complaint):
        write(server, columns, **{"topic": topic} | options)


def test_extra_columns_are_dropped_on_request(server: Standalone, topic: str, received: Read) -> None:
    write(server, {"body": [b"x"], "colour": ["red"]}, topic=topic, ignoreExtraColumns="true")
    assert len(received()) == 1


def test_a_topic_cannot_be_overwritten(server: Standalone, topic: str) -> None:
    source = RocketMQSource({"nameserver": server.namesrv, "topic": topic})
    with pytest.raises(rmqpy.errors.ConfigError, match="cannot be overwritten"):
        source.writer(schema=StructType().add("body", "binary"), overwrite=True)


def test_topic_is_created_only_on_request(server: Standalone, received: Read) -> None:
    with pytest.raises(rmqpy.errors.TopicNotFound, match=r"made-by-a-sink.*createTopic=true"):
        write(server, {"body": [b"x"], "topic": ["made-by-a-sink"]})
    write(server, {"body": [b"x"]}, topic="made-by-a-sink", createTopic="true")

    def count() -> int:
        with suppress(rmqpy.errors.TopicNotFound):
            return len(received("made-by-a-sink"))
        return 0

    until(count, wanted=lambda found: found == 1)


def test_missing_topic_is_reported_before_the_first_task(server: Standalone) -> None:
    source = RocketMQSource({"nameserver": server.namesrv, "topic": "missing"})
    for made in (source.writer, source.streamWriter):
        with pytest.raises(
            rmqpy.errors.TopicNotFound, match="'missing' does not exist; set createTopic=true"
        ):
            made(schema=StructType().add("body", "binary"), overwrite=False)
    # Name servers that do not answer are for the tasks, which try again.
    nowhere = RocketMQSource({"nameserver": "127.0.0.1:1", "topic": "missing"})
    nowhere.writer(schema=StructType().add("body", "binary"), overwrite=False)


def test_repeated_task_repeats_its_ids(server: Standalone, topic: str, received: Read) -> None:
    table = pyarrow.table({"body": [b"a", b"b", b"c"]})
    options = {"nameserver": server.namesrv, "topic": topic}
    writer = RocketMQSource(options).writer(schema=schema(table), overwrite=False)
    for _ in range(2):
        writer.write(iter(table.to_batches(max_chunksize=2)))
    ids = {(message.body, message.message_id) for message in received()}
    assert len(ids) == 3
    assert len(received()) == 6
    # Another job has different ids.
    write(server, {"body": [b"a"]}, topic=topic)
    assert len({message.message_id for message in received()}) == 4


def test_row_id_does_not_depend_on_its_position(server: Standalone, topic: str, received: Read) -> None:
    moment = pyarrow.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pyarrow.timestamp("us", "UTC"))
    window = pyarrow.StructArray.from_arrays([moment, moment], ["start", "end"])
    columns = {"body": [b"1", b"2", b"3"], "window": window, "user": ["a", "b", None]}
    table = pyarrow.table(columns)
    options = {"nameserver": server.namesrv, "topic": topic, "idempotencyKey": "window,user"}
    writer = RocketMQSource(options).writer(schema=schema(table), overwrite=False)
    writer.write(iter(table.to_batches()))
    writer.write(iter(table.take([2, 0, 1]).combine_chunks().to_batches()))
    assert len({(message.body, message.message_id) for message in received()}) == 3
    assert len({message.message_id for message in received()}) == 3


def test_without_an_idempotency_key_every_write_has_new_ids(
    server: Standalone, topic: str, received: Read
) -> None:
    table = pyarrow.table({"body": [b"a"]})
    options = {"nameserver": server.namesrv, "topic": topic, "idempotencyKey": "none"}
    writer = RocketMQSource(options).writer(schema=schema(table), overwrite=False)
    for _ in range(2):
        writer.write(iter(table.to_batches()))
    assert len({message.message_id for message in received()}) == 2


@pytest.mark.parametrize(
    ("column", "selector"), [("shardingKey", "roundRobin"), ("shardingKey", "hash"), ("keys", "hash")]
)
def test_rows_of_one_key_share_a_queue_in_order(
    column: str, selector: str, server: Standalone, producer: rmqpy.Producer, topic: str, received: Read
) -> None:
    keys = [f"customer-{number % 7}" for number in range(700)]
    bodies = [str(number) for number in range(700)]
    write(server, {"body": bodies, column: keys}, topic=topic, queueSelector=selector, sendBatchMessages="10")
    messages = received()
    assert len({message.queue for message in messages}) > 1
    for key in set(keys):
        own = [each for each in messages if key in (each.sharding_key, *each.keys)]
        # The queue Java's clients choose, too.
        expected = rmqpy.by_sharding_key(rmqpy.Message(topic, b"x", sharding_key=key), producer.queues(topic))
        assert {each.queue for each in own} == {expected}
        assert [int(each.body) for each in own] == sorted(int(each.body) for each in own)


def test_rows_name_their_queue(server: Standalone, topic: str, received: Read) -> None:
    queue_ids = pyarrow.array([number % 3 for number in range(30)], pyarrow.int32())
    bodies = [str(number % 3) for number in range(30)]
    write(server, {"body": bodies, "queueId": queue_ids}, topic=topic, queueSelector="column")
    assert all(int(message.body) == message.queue.queue_id for message in received())


def requests(server: Standalone, topic: str, bodies: list[bytes], **options: str) -> int:
    """Number of sends that the rows took."""
    table = pyarrow.table({"body": bodies})
    given = {"nameserver": server.namesrv, "topic": topic} | options
    done = RocketMQSource(given).writer(schema=schema(table), overwrite=False).write(iter(table.to_batches()))
    assert isinstance(done, sink.WriteResult)
    assert done.rows == len(bodies)
    return done.requests


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({}, 10, 1),
        # 131,072 bytes hold 42 of them.
        ({}, 3000, 3),
        ({"sendBatchMessages": "10"}, 10, 10),
        ({"sendBatchBytes": "1000"}, 400, 50),
        # Large bodies go alone, compressed.
        ({"compressThreshold": "300"}, 300, 100),
        ({"compressThreshold": "301"}, 300, 1),
    ],
)
def test_rows_share_requests(
    options: dict[str, str], size: int, expected: int, server: Standalone, topic: str, received: Read
) -> None:
    assert requests(server, topic, [b"x" * size] * 100, **options) == expected
    messages = received()
    assert len(messages) == 100
    is_compressed = {message.sys_flag & 1 for message in messages}
    assert is_compressed == ({1} if expected == 100 else {0})


def test_rows_carry_their_origin_on_request(server: Standalone, topic: str, received: Read) -> None:
    write(server, {"body": [b"x"]}, topic=topic)
    write(server, {"body": [b"y"]}, topic=topic, sparkProperties="true")
    told = {message.body: message.properties.get("SPARK_PARTITION_ID") for message in received()}
    assert told == {b"x": None, b"y": "0"}


def test_producer_follows_the_options_and_is_reused(
    server: Standalone, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[float, dict[str, Any]]] = []
    original = rmqpy.Producer

    def producer(config: rmqpy.ClientConfig, **settings: Any) -> rmqpy.Producer:
        made.append((config.request_timeout, settings))
        return original(config, **settings)

    monkeypatch.setattr(rmqpy, "Producer", producer)
    options = {
        "producerGroup": "pg",
        "requestTimeoutMs": "4567",
        "sendTimeoutMs": "12345",
        "sendRetries": "5",
        "maxInFlight": "3",
        "compressThreshold": "100",
    }
    for _ in range(2):
        write(server, {"body": [b"x"]}, topic=topic, **options)
    settings = {
        "group": "pg",
        "send_timeout": 12.345,
        "retries": 5,
        "max_in_flight": 3,
        "compress_above": 99,
    }
    assert made == [(4.567, settings)]


def test_a_send_that_fails_fails_the_task(server: Standalone, topic: str) -> None:
    table = pyarrow.table({"body": [b"x" * (5 << 20)]})
    options = {"nameserver": server.namesrv, "topic": topic, "compressThreshold": "99999999"}
    writer = RocketMQSource(options).writer(schema=schema(table), overwrite=False)
    with pytest.raises(rmqpy.errors.SendError):
        writer.write(iter(table.to_batches()))


def test_delayed_row_arrives_after_its_delay(server: Standalone, topic: str, received: Read) -> None:
    level = pyarrow.array([1, None], pyarrow.int32())
    write(server, {"body": [b"later", b"now"], "delayLevel": level}, topic=topic)
    until(lambda: len(received()) == 2)
    waited = {each.body: (each.stored_at - each.born_at).total_seconds() for each in received()}
    # Level 1 is a second.
    assert waited[b"later"] >= 0.9 + waited[b"now"]


def test_row_with_a_delivery_time_needs_a_broker_with_timers(server: Standalone, topic: str) -> None:
    for moment in (
        pyarrow.array([4_000_000_000_000]),
        pyarrow.array([4_000_000_000_000_000], pyarrow.timestamp("us", "UTC")),
    ):
        with pytest.raises(rmqpy.errors.SendError):
            write(server, {"body": [b"x"], "deliverTimestamp": moment}, topic=topic)
