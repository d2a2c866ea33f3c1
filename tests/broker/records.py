"""Stored messages as consumers pull them, taken apart by hand."""

import struct
from typing import NamedTuple

from broker.talk import pull
from wire import TIMEOUT_S, Peer

GROUP = "billing"
SUSPEND = 2


class Record(NamedTuple):
    """The parts of a stored message that tests compare."""

    position: int
    topic: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    properties: dict[str, str]
    body: bytes


def records(body: bytes) -> list[Record]:
    """The records of an answer, with IPv4 hosts."""
    found = []
    while body:
        size, _, _, queue_id, _, queue_offset, position = struct.unpack_from(">iiiiiqq", body)
        (times,) = struct.unpack_from(">i", body, 72)
        (length,) = struct.unpack_from(">i", body, 84)
        at = 88 + length
        behind = at + 1 + body[at]
        topic, text = body[at + 1 : behind].decode(), body[behind + 2 : size].decode()
        entries = (entry.partition("\x01") for entry in text.split("\x02") if entry)
        properties = {name: value for name, _, value in entries}
        found.append(Record(position, topic, queue_id, queue_offset, times, properties, body[88:at]))
        body = body[size:]
    return found


async def arrival(peer: Peer, topic: str, offset: int = 0) -> Record:
    """The message at this offset; the pull waits for it, as consumers do."""
    answer = await pull(
        peer, GROUP, topic, offset, sysFlag=str(4 | SUSPEND), suspendTimeoutMillis=str(int(TIMEOUT_S * 1_000))
    )
    assert answer.code == 0, answer
    return records(answer.body)[0]
