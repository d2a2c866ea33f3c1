"""Requests of POP: their header fields, and the handle of a message.

Pure. Names are those on the wire.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.message import Filter, Sql
from rmqpy.protocol import names
from rmqpy.protocol.codes import RequestCode, ResponseCode

POP: Final = RequestCode.POP_MESSAGE
ACK: Final = RequestCode.ACK_MESSAGE
BATCH_ACK: Final = RequestCode.BATCH_ACK_MESSAGE
CHANGE: Final = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
#: Codes of replies without messages: the wait timed out, too many pops wait, or the queue is empty.
NOTHING: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND)
#: The most messages per pop.
MESSAGES_MAX: Final = 32
#: The property with a message's handle.
HANDLE: Final = "POP_CK"
_AT_FIRST, _AT_LAST = 0, 1


class Handle(NamedTuple):
    """The name of one delivery of a message: its checkpoint, and its position."""

    start: int
    popped_ms: int
    invisible_ms: int
    revive_queue: int
    #: 0 if popped from the topic, 1 or 2 if from the group's retry topic of that kind.
    mark: int
    broker: str
    queue_id: int
    offset: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Handle:
        """Return the handle of a received message. Raises `ValueError` for a message that was not popped."""
        text = message.properties.get(HANDLE)
        try:
            start, popped, invisible, revive, mark, broker, queue, offset = (text or "").split(" ")
            return cls(
                *(int(start), int(popped), int(invisible), int(revive), int(mark)),
                *(broker, int(queue), int(offset)),
            )
        except ValueError:
            raise ValueError(f"{message!r} was not received by a SimpleConsumer") from None

    def __str__(self) -> str:
        return " ".join(map(str, self))


def now_ms() -> int:
    """Return the time of a request. Tests with a moved clock replace it: brokers ignore requests that are too old."""
    return time.time_ns() // 1_000_000


def pop(
    group: str, topic: str, wanted: Filter, *, count: int, invisible_s: float, wait_s: float, from_first: bool
) -> dict[str, str]:
    """Return the header fields of a pop from any queue of a broker."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": str(min(count, MESSAGES_MAX)),
        "invisibleTime": str(round(invisible_s * 1000)),
        "pollTime": str(round(wait_s * 1000)),
        "bornTime": str(now_ms()),
        "initMode": str(_AT_FIRST if from_first else _AT_LAST),
        "expType": "SQL92" if isinstance(wanted, Sql) else "TAG",
        "exp": str(wanted),
        "order": "false",
    }


def about(group: str, topic: str, handle: Handle) -> dict[str, str]:
    """Return the header fields that name one message, to acknowledge it or change its time."""
    return {
        "consumerGroup": group,
        "topic": names.pop_retry_topic(group, topic, is_v2=handle.mark == 2) if handle.mark else topic,
        "queueId": str(handle.queue_id),
        "extraInfo": str(handle),
        "offset": str(handle.offset),
        "bname": handle.broker,
    }


def batch(group: str, topic: str, broker: str, handles: Iterable[Handle]) -> bytes:
    """Return the body that acknowledges messages of one broker: an entry per checkpoint, with a bit for each
    message."""
    bits: dict[tuple[int, ...], int] = {}
    for handle in handles:
        key = (
            handle.start,
            handle.popped_ms,
            handle.invisible_ms,
            handle.revive_queue,
            handle.mark,
            handle.queue_id,
        )
        bits[key] = bits.get(key, 0) | 1 << (handle.offset - handle.start)
    acks = [
        {
            "c": group,
            "t": topic,
            "r": str(mark),
            "so": start,
            "pt": popped,
            "it": invisible,
            "rq": revive,
            "q": queue,
            "b": base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode("ascii"),
        }
        for (start, popped, invisible, revive, mark, queue), value in bits.items()
    ]
    return json.dumps({"brokerName": broker, "acks": acks}).encode()


def moved(handle: Handle, ext: dict[str, str], broker: str) -> Handle:
    """Return the handle after a change of the time. Raises `DecodeError` if the reply lacks a field."""
    try:
        return handle._replace(
            start=handle.offset,
            popped_ms=int(ext["popTime"]),
            invisible_ms=int(ext["invisibleTime"]),
            revive_queue=int(ext["reviveQid"]),
        )
    except (KeyError, ValueError) as missing:
        raise errors.DecodeError(
            f"the answer to a change of invisible time lacks {missing}", broker=broker
        ) from None
