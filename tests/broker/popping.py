"""POP requests, frame by frame, and the handles that clients build from the replies."""

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

from broker.records import records
from rmqpy.protocol.codes import RequestCode
from wire import Frame, Peer

GROUP = "workers"
TOPIC = "jobs"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
RETRY_V2 = f"%RETRY%{GROUP}+{TOPIC}"


@dataclass(frozen=True)
class Popped:
    """A message with the handle that a client makes of the answer."""

    body: bytes
    topic: str
    queue_id: int
    offset: int
    reconsume_times: int
    properties: dict[str, str]
    handle: str

    @property
    def popped_from(self) -> str:
        """The topic that an acknowledgement names."""
        return {"0": TOPIC, "1": RETRY, "2": RETRY_V2}[self.handle.split(" ")[4]]


async def pop(
    peer: Peer, count: int = 32, *, invisible: int = 60_000, wait: int = 0, **changes: str
) -> Frame:
    """POP_MESSAGE from any queue of the topic."""
    ext = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(count),
        "invisibleTime": str(invisible), "pollTime": str(wait), "bornTime": str(round(time.time() * 1000)),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    return await peer.call(RequestCode.POP_MESSAGE, ext | changes)


async def notification(peer: Peer, *, wait: int = 0, **changes: str) -> dict[str, str]:
    """NOTIFICATION about any queue of the topic; the fields of the answer."""
    ext = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": str(wait),
        "bornTime": str(round(time.time() * 1000)), "order": "false",
    }  # fmt: skip
    answer = await peer.call(RequestCode.NOTIFICATION, ext | changes)
    assert answer.code == 0, answer.remark
    return answer.ext or {}


async def peek(peer: Peer, count: int = 32, **changes: str) -> Frame:
    """PEEK_MESSAGE."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(count)}
    return await peer.call(RequestCode.PEEK_MESSAGE, ext | changes)


async def parked_pops(peer: Peer, queue: int = -1) -> int:
    """POLLING_INFO."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue)}
    answer = await peer.call(RequestCode.POLLING_INFO, ext)
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["pollingNum"])


async def ack(peer: Peer, message: Popped, **changes: str) -> Frame:
    """ACK_MESSAGE, as Java's client sends it."""
    return await peer.call(RequestCode.ACK_MESSAGE, _named(message) | changes)


async def change(peer: Peer, message: Popped, invisible: int, **changes: str) -> Frame:
    """CHANGE_MESSAGE_INVISIBLETIME."""
    ext = _named(message) | {"invisibleTime": str(invisible)}
    return await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext | changes)


async def batch_ack(peer: Peer, *messages: Popped) -> Frame:
    """BATCH_ACK_MESSAGE with an entry for each checkpoint."""
    entries: dict[tuple[str, ...], dict[str, Any]] = {}
    for message in messages:
        start, popped, invisible, revive, mark, _, queue, offset = message.handle.split(" ")
        entry = entries.setdefault(
            (start, popped, queue, mark),
            {"c": GROUP, "t": TOPIC, "r": mark, "so": int(start), "q": int(queue), "rq": int(revive),
             "pt": int(popped), "it": int(invisible), "bits": 0},
        )  # fmt: skip
        entry["bits"] |= 1 << (int(offset) - int(start))
    for entry in entries.values():
        bits = entry.pop("bits")
        entry["b"] = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
    body = json.dumps({"brokerName": "broker-a", "acks": list(entries.values())}).encode()
    return await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)


def messages(answer: Frame) -> list[Popped]:
    """The messages of an answer, with the handles that Java's client builds."""
    if answer.code != 0:
        return []
    ext = answer.ext or {}
    starts, listed = {}, []
    for part in ext["startOffsetInfo"].split(";"):
        mark, queue, start = part.split(" ")
        assert (mark, queue) not in starts, "one entry for each queue"
        starts[mark, queue] = start
    for part in ext["msgOffsetInfo"].split(";"):
        mark, queue, offsets = part.split(" ")
        listed += [(mark, queue, int(offset)) for offset in offsets.split(",")]
    found = []
    for record in records(answer.body):
        handle = record.properties.get("POP_CK", "")
        mark = handle.split(" ")[4] if handle else "0"
        assert (mark, str(record.queue_id), record.queue_offset) in listed
        if not handle:
            handle = (
                f"{starts[mark, str(record.queue_id)]} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} "
                f"0 broker-a {record.queue_id} {record.queue_offset}"
            )
        found.append(
            Popped(
                record.body,
                record.topic,
                record.queue_id,
                record.queue_offset,
                record.reconsume_times,
                record.properties,
                handle,
            )
        )
    assert len(found) == len(listed)
    return found


def _named(message: Popped) -> dict[str, str]:
    return {
        "consumerGroup": GROUP, "topic": message.popped_from, "queueId": str(message.queue_id),
        "extraInfo": message.handle, "offset": str(message.offset),
    }  # fmt: skip
