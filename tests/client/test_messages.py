"""Messages as values: created, refused, compared, pickled, read from records."""

import pickle
import re
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

import rmqpy
from rmqpy._native import ReceivedMessage
from rmqpy.message import MessageQueue

from .fakes import inner, properties, record

QUEUE = MessageQueue("orders", "broker-a", 3)
T = TypeVar("T")


def carried(value: T) -> T:
    """The value another process would get."""
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
    return copy


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x00\xff", b"\x00\xff"),
        ("blå", "blå".encode()),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcdef")[::2], b"ace"),
    ],
)
def test_a_body_is_any_bytes_or_text(body: Any, expected: bytes) -> None:
    assert rmqpy.Message("orders", body).body == expected


#: Every name that carries meaning for brokers and clients, of RocketMQ 4 and 5.
RESERVED = """
    1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CHECK_IMMUNITY_TIME_IN_SECONDS CLUSTER CONSUME_START_TIME
    CORRECTION_FLAG CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INNER_BASE
    INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE
    ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME
    REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS
    TIMER_DEL_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_LABEL TIMER_ROLL_TIMES
    TRACE_ON TRANSFER_FLAG TRANS_OFFSET TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT _SYS_MSG_PRIORITY_
    __BORNHOST __CRC32# __LITE_TOPIC __RMQ.TRANSIENT.GROUP_SYS_FLAG __RMQ.TRANSIENT.TOPIC_SYS_FLAG __SHARDINGKEY
    __transactionId__
"""


def test_every_reserved_name_is_refused_and_the_others_are_the_users() -> None:
    reserved = set(RESERVED.split())
    assert len(reserved) == 63
    assert {name for name in reserved if not rmqpy.Message.is_reserved(name)} == set()
    for name in reserved:
        with pytest.raises(ValueError, match=f'property "{re.escape(name)}" is reserved'):
            rmqpy.Message("orders", b"x", properties={name: "1"})
    # Java's users set these as well: queues of a light message, the context of a trace.
    for name in ("INNER_MULTI_DISPATCH", "TRACE_CONTEXT", "traceparent", "tags", "Keys"):
        assert rmqpy.Message("orders", b"x", properties={name: "1"}).properties == {name: "1"}


@pytest.mark.parametrize("body", [1, None, ["x"], 2.5])
def test_body_of_another_type_is_a_type_error(body: Any) -> None:
    with pytest.raises(TypeError, match="bytes, bytearray, memoryview or str"):
        rmqpy.Message("orders", body)


@pytest.mark.parametrize(
    ("topic", "fields", "hint"),
    [
        ("", {}, "valid name"),
        ("a b", {}, "valid name"),
        ("t" * 128, {}, "valid name"),
        ("SCHEDULE_TOPIC_XXXX", {}, "brokers only"),
        ("orders", {"tag": "a||b"}, "tag"),
        ("orders", {"keys": "a b"}, "list"),
        ("orders", {"properties": {"TAGS": "x"}}, "reserved"),
        ("orders", {"properties": {"x": ""}}, "empty"),
        ("orders", {"properties": {"x": "a\x01"}}, "cannot carry"),
        ("orders", {"properties": {"x": "y" * 33_000}}, "32767"),
        ("orders", {"deliver_after": -1}, "negative"),
        ("orders", {"deliver_after": 1, "delay_level": 1}, "one of"),
        ("orders", {"deliver_at": float("nan")}, "finite"),
    ],
)
def test_invalid_message_is_refused_before_any_network_call(
    topic: str, fields: dict[str, Any], hint: str
) -> None:
    with pytest.raises(ValueError, match=hint):
        rmqpy.Message(topic, b"x", **fields)
    with pytest.raises(ValueError, match="empty"):
        rmqpy.Message("orders", b"")


def test_a_message_is_a_value() -> None:
    message = rmqpy.Message(
        "orders",
        b"x",
        tag="paid",
        keys=["A-1", "A-2"],
        properties={"colour": "red"},
        sharding_key="c-7",
        deliver_at=datetime(2030, 1, 1, tzinfo=UTC),
        flag=7,
    )
    copy = carried(message)
    assert copy == message
    assert hash(copy) == hash(message)
    assert copy != message.replace(tag="open")
    assert message.replace(deliver_after=timedelta(seconds=2)).deliver_at is None
    with pytest.raises(AttributeError):
        message.topic = "other"  # type: ignore[misc]


def test_repr_truncates_a_long_body() -> None:
    shown = repr(rmqpy.Message("orders", b"x" * 1000, tag="paid"))
    assert "1000 bytes" in shown
    assert "tag='paid'" in shown
    assert len(shown) < 200
    assert repr(rmqpy.Message("orders", b"x" * 64)) == f"Message('orders', b'{'x' * 64}')"


def test_the_sharding_hash_is_javas() -> None:
    assert rmqpy.Message("t", b"x", sharding_key="TagA").sharding_hash == 2_598_919
    assert rmqpy.Message("t", b"x", sharding_key="订单创建-order_created").sharding_hash == 818_240_476


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_either_version_reads_the_same(version: int) -> None:
    props = properties(KEYS="A-1 A-2", TAGS="paid", UNIQ_KEY="AB" * 16, colour="red", __SHARDINGKEY="c")
    raw = record(b'{"n": 1}', queue_id=3, offset=41, props=props, flag=7, version=version)
    message = ReceivedMessage(raw, None, QUEUE)
    assert (message.topic, message.body, message.tag, message.keys) == (
        "orders",
        b'{"n": 1}',
        "paid",
        ("A-1", "A-2"),
    )
    assert message.properties["colour"] == "red"
    assert message.message_id == "AB" * 16
    assert message.offset_message_id == "0A00000200002A9F" + f"{1041:016X}"
    assert (message.queue, message.queue_offset, message.commit_log_offset) == (QUEUE, 41, 1041)
    assert message.born_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (message.stored_at - message.born_at).total_seconds() == pytest.approx(0.001)
    assert (message.born_host, message.store_host) == ("10.0.0.1:5000", "10.0.0.2:10911")
    assert (message.delivery_attempt, message.flag, message.sharding_key) == (1, 7, "c")
    assert (message.text(), message.json(), bytes(message.view())) == ('{"n": 1}', {"n": 1}, message.body)
    assert carried(message) == message


def test_a_member_of_a_batch_has_its_own_offset_body_and_properties() -> None:
    batch = record(
        inner(b"one", properties(TAGS="a")) + inner(b"two", properties(TAGS="b"), flag=5),
        offset=10,
        sys_flag=0xC0,
        props=properties(INNER_NUM="2"),
    )
    second = ReceivedMessage(batch, 1, QUEUE)
    assert (second.body, second.tag, second.queue_offset, second.flag) == (b"two", "b", 11, 5)
    assert carried(second) == second
    assert second != ReceivedMessage(batch, 0, QUEUE)
    with pytest.raises(rmqpy.errors.DecodeError, match="no member 2"):
        ReceivedMessage(batch, 2, QUEUE)


def test_invalid_record_bytes_are_refused() -> None:
    good = record(b"x")
    for broken in (b"", good[:-1], b"\x00" * 100, good[:4] + b"\x00" * 4 + good[8:]):
        with pytest.raises(rmqpy.errors.DecodeError, match="broker-a"):
            ReceivedMessage(broken, None, QUEUE)
