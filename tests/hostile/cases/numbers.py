"""Numbers at the ends of their ranges, in every numeric field of requests that name queues, offsets and times.

A row of the table is a field of a valid request and its replies. Java's clients send 32 bits for ids, counts and
flags, and 64 for positions and times; in a hot request a number out of range is as invalid as a word.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hostile.cases.case import (
    GROUP,
    TOPIC,
    Case,
    long_send,
    offset,
    pull,
    registration,
    request,
    reset,
    send,
    send_back,
    topic,
)
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

#: Invalid numbers of any width.
NO_NUMBERS = {
    "a word": "one",
    "a fraction": "1.5",
    "an exponent": "1e3",
    "hexadecimal": "0x10",
    "4,000 digits": "9" * 4_000,
}


@dataclass(frozen=True)
class Field:
    """Return the reply to such a number in the field."""

    name: str
    bits: int
    least: int
    minus_one: int
    greatest: int
    #: One above the greatest, one below the least.
    beyond: int
    #: A word, a fraction, thousands of digits.
    no_number: int
    empty: int
    #: One below the least, where that is not answered as one above the greatest.
    below: int | None = None

    def values(self) -> Iterator[tuple[str, str, int]]:
        end = 1 << (self.bits - 1)
        yield f"least of {self.bits} bits", str(-end), self.least
        yield "-1", "-1", self.minus_one
        yield f"greatest of {self.bits} bits", str(end - 1), self.greatest
        yield "one above the greatest", str(end), self.beyond
        yield "one below the least", str(-end - 1), self.beyond if self.below is None else self.below
        for what, value in NO_NUMBERS.items():
            yield what, value, self.no_number
        yield "empty", "", self.empty


@dataclass(frozen=True)
class Request:
    code: Code
    fields: Mapping[str, str]
    body: bytes
    numbers: tuple[Field, ...]
    target: str = "broker"


def hot(name: str, bits: int, least: int, minus_one: int, greatest: int) -> Field:
    """A field read in Rust: an unparsable value, including an empty one, is answered with 1."""
    return Field(name, bits, least, minus_one, greatest, 1, 1, 1)


def ignored(name: str) -> Field:
    """A field that our broker does not look at there."""
    return Field(name, 32, 0, 0, 0, 0, 0, 0)


def cold(name: str, bits: int, *codes: int, beyond: int = 29, empty: int = 1) -> Field:
    """A field read in Python: 29 has the reason, and empty means missing."""
    least, minus_one, greatest = codes
    return Field(name, bits, least, minus_one, greatest, beyond, 29, empty)


QUEUE = {"topic": TOPIC, "queueId": "0"}
QUERY = {
    "topic": TOPIC,
    "key": "k",
    "maxNum": "1",
    "beginTimestamp": "0",
    "endTimestamp": "9000000000000000000",
}
DIRECT = {"consumerGroup": GROUP, "clientId": "x", "msgId": "x", "brokerName": "b"}

TABLE = (
    Request(
        Code.SEND_MESSAGE_V2,
        send(),
        b"x",
        (
            ignored("d"),
            hot("e", 32, 0, 0, 29),
            # All bits but the sign are flags, and two of them say that it is part of a transaction.
            hot("f", 32, 0, 13, 13),
            hot("g", 64, 0, 0, 0),
            hot("h", 32, 0, 0, 0),
            hot("j", 32, 0, 0, 0),
            hot("l", 32, 0, 0, 0),
        ),
    ),
    Request(
        Code.SEND_MESSAGE,
        long_send(),
        b"x",
        (
            ignored("defaultTopicQueueNums"),
            hot("queueId", 32, 0, 0, 29),
            hot("sysFlag", 32, 0, 13, 13),
            hot("bornTimestamp", 64, 0, 0, 0),
            hot("flag", 32, 0, 0, 0),
            hot("reconsumeTimes", 32, 0, 0, 0),
            hot("maxReconsumeTimes", 32, 0, 0, 0),
        ),
    ),
    Request(
        Code.PULL_MESSAGE,
        pull(),
        b"",
        (
            hot("queueId", 32, 29, 29, 29),
            hot("queueOffset", 64, 21, 21, 21),
            hot("maxMsgNums", 32, 0, 0, 0),
            hot("maxMsgBytes", 32, 0, 0, 0),
            # Without the subscription bit the group's registered one counts, and there is none.
            hot("sysFlag", 32, 24, 0, 0),
            hot("commitOffset", 64, 0, 0, 0),
            hot("suspendTimeoutMillis", 64, 0, 0, 0),
            hot("subVersion", 64, 0, 0, 0),
        ),
    ),
    Request(
        Code.CONSUMER_SEND_MSG_BACK,
        send_back(),
        b"",
        (
            hot("offset", 64, 1, 1, 1),
            hot("delayLevel", 32, 0, 0, 0),
            hot("maxReconsumeTimes", 32, 0, 0, 0),
        ),
    ),
    Request(
        Code.UPDATE_CONSUMER_OFFSET,
        offset(),
        b"",
        (
            Field("queueId", 32, 29, 29, 29, 29, 29, 29),
            # As far beyond the end as a long allows, because Apache's broker accepts every non-negative long.
            Field("commitOffset", 64, 29, 29, 0, 29, 29, 29),
        ),
    ),
    Request(Code.QUERY_CONSUMER_OFFSET, offset(), b"", (Field("queueId", 32, 22, 22, 22, 22, 22, 22),)),
    Request(Code.GET_MAX_OFFSET, QUEUE, b"", (cold("queueId", 32, 29, 29, 0),)),
    Request(Code.GET_MIN_OFFSET, QUEUE, b"", (cold("queueId", 32, 29, 29, 0),)),
    Request(Code.GET_EARLIEST_MSG_STORETIME, QUEUE, b"", (cold("queueId", 32, 29, 29, 0),)),
    Request(
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        QUEUE | {"timestamp": "0"},
        b"",
        (cold("queueId", 32, 29, 29, 0), cold("timestamp", 64, 0, 0, 0)),
    ),
    Request(
        Code.QUERY_MESSAGE,
        QUERY,
        b"",
        (
            cold("maxNum", 32, 22, 22, 22, beyond=22),
            cold("beginTimestamp", 64, 22, 22, 22),
            cold("endTimestamp", 64, 22, 22, 22),
        ),
    ),
    Request(Code.VIEW_MESSAGE_BY_ID, {"offset": "0"}, b"", (cold("offset", 64, 1, 1, 1),)),
    Request(
        Code.QUERY_CONSUME_QUEUE,
        QUEUE | {"index": "0", "count": "1", "consumerGroup": GROUP},
        b"",
        (
            cold("queueId", 32, 1, 1, 1, beyond=1),
            cold("index", 64, 0, 0, 0),
            cold("count", 32, 0, 0, 0, beyond=0),
        ),
    ),
    Request(
        Code.UPDATE_AND_CREATE_TOPIC,
        topic("hostile-numbers"),
        b"",
        (
            cold("readQueueNums", 32, 29, 29, 29, empty=0),
            cold("writeQueueNums", 32, 29, 29, 29, empty=0),
            cold("perm", 32, 29, 29, 29, empty=0),
            cold("topicSysFlag", 32, 0, 0, 0, empty=0),
        ),
    ),
    Request(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        reset(),
        b"",
        (
            cold("timestamp", 64, 0, 0, 0),
            # Below 0 it means all queues.
            Field("queueId", 32, 0, 0, 29, 29, 29, 0, below=0),
        ),
    ),
    Request(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        reset(queueId="0"),
        b"",
        # -1 means by time.
        (cold("offset", 64, 1, 0, 1, empty=0),),
    ),
    Request(
        Code.GET_ALL_TOPIC_CONFIG,
        {},
        b"",
        (
            cold("topicSeq", 32, 0, 0, 0, beyond=0, empty=0),
            cold("maxTopicNum", 32, 0, 0, 0, beyond=0, empty=0),
        ),
    ),
    Request(
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        {},
        b"",
        (
            cold("groupSeq", 32, 0, 0, 0, beyond=0, empty=0),
            cold("maxGroupNum", 32, 0, 0, 0, beyond=0, empty=0),
        ),
    ),
    Request(
        Code.CONSUME_MESSAGE_DIRECTLY,
        DIRECT,
        b"",
        (cold("topicSysFlag", 32, 1, 1, 1, beyond=1), cold("groupSysFlag", 32, 1, 1, 1, beyond=1)),
    ),
    Request(Code.UNREGISTER_BROKER, registration(), b"", (cold("brokerId", 64, 0, 0, 0),), "namesrv"),
    Request(Code.QUERY_DATA_VERSION, registration(), b"{}", (cold("brokerId", 64, 0, 0, 0),), "namesrv"),
    Request(
        Code.REGISTER_BROKER,
        registration(brokerName="hostile-numbers", brokerId="-5"),
        b"",
        (
            cold("brokerId", 64, 0, 0, 0),
            cold("heartbeatTimeoutMillis", 64, 0, 0, 0, empty=0),
            cold("bodyCrc32", 32, 1, 1, 1, beyond=1, empty=0),
        ),
        "namesrv",
    ),
)


def numbers() -> Iterator[Case]:
    for row in TABLE:
        for field in row.numbers:
            for what, value, end in field.values():
                frame = Frame(row.code, ext={**row.fields, field.name: value}, body=row.body)
                yield request(f"{row.code.name.lower()}: {field.name} {what}", end, frame, row.target)
