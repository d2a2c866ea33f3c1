"""Pull request: its header fields, and the parsing of its reply.

Pure. A pull never commits and always carries its subscription, so no group needs to be registered. Only four codes are
results; all others are errors.
"""

from enum import Enum
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import PULL_SUBSCRIPTION, PULL_SUSPEND, Call, Namespace
from rmqpy.message import Filter, MessageQueue, Sql
from rmqpy.protocol import refusals
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting.client import check_transport

#: Messages and bytes per pull. Apache's broker returns at most 32 messages or 256 KiB; rmqpy's more.
MESSAGES_MAX: Final = 1024
BYTES_MAX: Final = 4 << 20
#: The time a broker may hold a pull without messages, and the extra time for its reply.
SUSPEND_S: Final = 15.0
REPLY_S: Final = 15.0


class Found(Enum):
    """Result of a pull."""

    MESSAGES = ResponseCode.SUCCESS
    #: The end of the queue, or a hole.
    NOTHING = ResponseCode.PULL_NOT_FOUND
    #: Messages, but none passes the filter: continue immediately.
    FILTERED = ResponseCode.PULL_RETRY_IMMEDIATELY
    #: The offset is outside the queue.
    MOVED = ResponseCode.PULL_OFFSET_MOVED


class Pulled(NamedTuple):
    """A reply: messages, the next offset, and the broker's range from `begin` up to but without `end`."""

    found: Found
    next_offset: int
    begin: int
    end: int
    #: The broker id to pull from next.
    suggested: int
    call: Call


def request(
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    wanted: Filter,
    messages_max: int,
    bytes_max: int = BYTES_MAX,
    suspend_s: float = 0.0,
    namespace: Namespace | None = None,
) -> dict[str, str]:
    """Header fields of a pull. `suspend_s`: how long the broker may hold it without messages. `namespace`: that of
    the queue; the group is given as brokers know it."""
    return {
        "consumerGroup": group,
        "topic": queue.topic if namespace is None else namespace.wrap(queue.topic),
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(messages_max),
        "sysFlag": str(PULL_SUBSCRIPTION | (PULL_SUSPEND if suspend_s > 0 else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(round(suspend_s * 1000)),
        "subscription": str(wanted),
        "subVersion": "0",
        "expressionType": "SQL92" if isinstance(wanted, Sql) else "TAG",
        "maxMsgBytes": str(bytes_max),
        "bname": queue.broker,
    }


PULL: Final = RequestCode.PULL_MESSAGE


def read(call: Call, queue: MessageQueue, address: str) -> Pulled:
    """The reply of a finished pull. Raises its error, or the broker's refusal."""
    check_transport(call, address)
    try:
        found = Found(call.code)
    except ValueError:
        raise refusals.from_response(call.code, call.remark, broker=queue.broker, topic=queue.topic) from None
    ext = call.ext
    try:
        return Pulled(
            found,
            int(ext["nextBeginOffset"]),
            int(ext["minOffset"]),
            int(ext["maxOffset"]),
            int(ext["suggestWhichBrokerId"]),
            call,
        )
    except (KeyError, ValueError) as missing:
        raise errors.DecodeError(
            f"the reply to a pull lacks {missing}", broker=queue.broker, topic=queue.topic
        ) from None
