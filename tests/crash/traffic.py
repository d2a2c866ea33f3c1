"""Senders that record acknowledged messages, and an audit that reads them back.

Each sender has its own connection and sends as fast as it is answered, until the connection ends. A body contains
its sender and number, with a varying size. Acknowledged messages are recorded by queue and offset.
"""

import asyncio
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from rmqpy.protocol.codes import RequestCode
from wire import Frame, Peer

SENDERS = 64
QUEUES = 4
#: Header bits of a pull: it carries its subscription.
CARRIES_SUBSCRIPTION = 4
#: Position of the body's length in a record with IPv4 hosts.
BODY_AT = 84


class AcknowledgedMessage(NamedTuple):
    """An acknowledged message, and its position in the log."""

    body: bytes
    position: int


#: By queue and offset.
Acknowledged = dict[tuple[int, int], AcknowledgedMessage]


def send_header(topic: str, queue: int, queues: int = QUEUES) -> dict[str, str]:
    letters = {"a": "senders", "b": topic, "c": "TBW102", "d": str(queues), "e": str(queue), "f": "0"}
    return letters | {"g": "0", "h": "0", "i": "KEYS\x01k\x02", "m": "false"}


async def send_until_the_end(
    address: str,
    topic: str,
    name: str,
    acknowledged: Acknowledged,
    started: asyncio.Event,
    queues: int = QUEUES,
) -> None:
    """One sender; it ends with its connection, or with the first message that is refused."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with await Peer.connect(address) as peer:
            for number in range(1_000_000):
                body = f"{name}/{number}/".encode() + bytes([number % 251]) * (number * 37 % 900)
                answer = await peer.call(310, send_header(topic, number % queues, queues), body)
                if answer.code != 0:
                    assert started.is_set(), answer
                    return
                assert answer.ext is not None
                # The id of a message ends with its position.
                place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
                acknowledged[place] = AcknowledgedMessage(body, int(answer.ext["msgId"][-16:], 16))
                started.set()


def pull_header(topic: str, queue: int, offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "auditors",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "1024",
        "maxMsgBytes": str(4 << 20),
        "sysFlag": str(CARRIES_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


async def read_queue(peer: Peer, topic: str, queue: int, first: int = 0) -> list[bytes]:
    """Every body of a queue, from its first offset on; each record is checked on the way."""
    bodies: list[bytes] = []
    last_physical = -1
    while True:
        answer = await peer.call(11, pull_header(topic, queue, first + len(bodies)))
        if answer.code != 0:
            assert answer.code in (19, 21), answer
            assert answer.ext is not None
            assert answer.ext["maxOffset"] == str(first + len(bodies))
            return bodies
        last_physical = take_records(answer, queue, bodies, last_physical, first)


def take_records(answer: Frame, queue: int, bodies: list[bytes], last_physical: int, first: int = 0) -> int:
    at = 0
    while at < len(answer.body):
        size, _, crc, queue_id, _, offset, physical = struct.unpack_from(">iiiiiqq", answer.body, at)
        (length,) = struct.unpack_from(">i", answer.body, at + BODY_AT)
        body = answer.body[at + BODY_AT + 4 : at + BODY_AT + 4 + length]
        assert (queue_id, offset) == (queue, first + len(bodies)), "a queue has a hole or a repetition"
        assert physical > last_physical, "a queue runs against the log"
        assert zlib.crc32(body) & 0x7FFF_FFFF == crc, "a torn body was served"
        bodies.append(body)
        last_physical, at = physical, at + size
    return last_physical


async def load_until(
    end: Callable[[], None],
    address: str,
    topic: str,
    name: str,
    moment: float,
    acknowledged: Acknowledged,
    *,
    senders: int = SENDERS,
    queues: int = QUEUES,
) -> None:
    """All senders at once; `moment` seconds after the first answer comes `end`, which has to end their connections."""
    started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for index in range(senders):
            sender = f"{name}-{index}"
            tasks.create_task(send_until_the_end(address, topic, sender, acknowledged, started, queues))
        await asyncio.wait_for(started.wait(), 30)
        # The moment of death is what varies.
        await asyncio.sleep(moment)
        end()


async def read_topic(address: str, topic: str) -> list[list[bytes]]:
    """The bodies of every queue."""
    async with await Peer.connect(address) as peer:
        return [await read_queue(peer, topic, queue) for queue in range(QUEUES)]


async def audit(address: str, topic: str, acknowledged: Acknowledged) -> int:
    """Every acknowledged message stands at its place. Returns how many messages there are in all."""
    found = await read_topic(address, topic)
    for queue, offset in acknowledged:
        end = len(found[queue])
        assert offset < end, f"queue {queue} ends at {end}, offset {offset} was acknowledged"
    survivors(found, acknowledged)
    return sum(map(len, found))


async def audit_kept(address: str, topic: str, acknowledged: Acknowledged, file_bytes: int) -> int:
    """Every acknowledged message stands at its place, but for those in deleted files; returns where the log begins."""
    async with await Peer.connect(address) as peer:
        firsts = [await first_offset(peer, topic, queue) for queue in range(QUEUES)]
        found = [await read_queue(peer, topic, queue, firsts[queue]) for queue in range(QUEUES)]
    kept = {place: sent for place, sent in acknowledged.items() if place[1] >= firsts[place[0]]}
    # Files go whole: what is gone lies before the first file that has a message.
    begin = min(sent.position for sent in kept.values()) // file_bytes * file_bytes
    assert all(sent.position < begin for place, sent in acknowledged.items() if place not in kept)
    for (queue, offset), sent in kept.items():
        index = offset - firsts[queue]
        assert index < len(found[queue]), f"queue {queue}: offset {offset} was acknowledged and is lost"
        assert found[queue][index] == sent.body, f"queue {queue} has another message at {offset}"
    return begin


async def first_offset(peer: Peer, topic: str, queue: int) -> int:
    answer = await peer.call(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue)})
    assert answer.code == 0, answer
    assert answer.ext is not None
    return int(answer.ext["offset"])


def survivors(found: list[list[bytes]], acknowledged: Acknowledged) -> Acknowledged:
    """The acknowledged messages that are still there. What is not there was the end of the log."""
    kept = {place: sent for place, sent in acknowledged.items() if place[1] < len(found[place[0]])}
    for (queue, offset), sent in kept.items():
        assert found[queue][offset] == sent.body, f"queue {queue} has another message at {offset}"
    end = max((sent.position for sent in kept.values()), default=-1)
    assert all(sent.position > end for place, sent in acknowledged.items() if place not in kept), (
        "a hole in the log"
    )
    return kept
