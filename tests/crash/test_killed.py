"""A broker killed while it is being written to keeps every message it acknowledged, in order and whole.

64 senders, each on a connection of its own, send as fast as they are answered; at a random moment the process gets
SIGKILL and is started again on what it left. Small segments make the log roll over while it happens. The number of
kills is `RMQPY_KILLS`; the seed of the moments is printed, and `RMQPY_SEED` repeats them.
"""

import asyncio
import os
import random
import struct
import zlib
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from crash.killable import Broker
from wire import Frame, Peer

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
SENDERS = 64
TOPIC, QUEUES = "killed", 4
#: Header bits of a pull: it carries its subscription.
CARRIES_SUBSCRIPTION = 4
#: Position of the body's length in a record with IPv4 hosts.
BODY_AT = 84

Acknowledged = dict[tuple[int, int], bytes]


def send_header(queue: int) -> dict[str, str]:
    letters = {"a": "senders", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(queue), "f": "0"}
    return letters | {"g": "0", "h": "0", "i": "KEYS\x01k\x02", "m": "false"}


async def send_until_killed(address: str, name: str, acknowledged: Acknowledged, started: asyncio.Event) -> None:
    """One sender: each message says who sent it and which one it is, with a size that varies."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with await Peer.connect(address) as peer:
            for number in range(1_000_000):
                body = f"{name}/{number}/".encode() + bytes([number % 251]) * (number * 37 % 900)
                answer = await peer.call(310, send_header(number % QUEUES), body)
                assert answer.code == 0, answer
                assert answer.ext is not None
                acknowledged[int(answer.ext["queueId"]), int(answer.ext["queueOffset"])] = body
                started.set()


def pull_header(queue: int, offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "auditors",
        "topic": TOPIC,
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


async def read_queue(peer: Peer, queue: int) -> list[bytes]:
    """Every body of a queue, from its first offset; each record is checked on the way."""
    bodies: list[bytes] = []
    last_physical = -1
    while True:
        answer = await peer.call(11, pull_header(queue, len(bodies)))
        if answer.code != 0:
            assert answer.code in (19, 21), answer
            assert answer.ext is not None
            assert answer.ext["maxOffset"] == str(len(bodies))
            return bodies
        last_physical = take_records(answer, queue, bodies, last_physical)


def take_records(answer: Frame, queue: int, bodies: list[bytes], last_physical: int) -> int:
    at = 0
    while at < len(answer.body):
        size, _, crc, queue_id, _, offset, physical = struct.unpack_from(">iiiiiqq", answer.body, at)
        (length,) = struct.unpack_from(">i", answer.body, at + BODY_AT)
        body = answer.body[at + BODY_AT + 4 : at + BODY_AT + 4 + length]
        assert (queue_id, offset) == (queue, len(bodies)), "a queue has a hole or a repetition"
        assert physical > last_physical, "a queue runs against the log"
        assert zlib.crc32(body) & 0x7FFF_FFFF == crc, "a torn body was served"
        bodies.append(body)
        last_physical, at = physical, at + size
    return last_physical


async def load_and_kill(broker: Broker, round_name: str, moment: float, acknowledged: Acknowledged) -> None:
    started = asyncio.Event()
    async with asyncio.TaskGroup() as senders:
        for index in range(SENDERS):
            name = f"{round_name}-{index}"
            senders.create_task(send_until_killed(broker.address, name, acknowledged, started))
        await asyncio.wait_for(started.wait(), 30)
        # Not a wait for a condition: the moment of death is what varies.
        await asyncio.sleep(moment)
        broker.kill()


async def audit(broker: Broker, acknowledged: Acknowledged) -> int:
    """Every acknowledged message stands at its place. Returns how many messages there are in all."""
    by_queue: dict[int, dict[int, bytes]] = defaultdict(dict)
    for (queue, offset), body in acknowledged.items():
        by_queue[queue][offset] = body
    count = 0
    async with await Peer.connect(broker.address) as peer:
        for queue in range(QUEUES):
            found = await read_queue(peer, queue)
            count += len(found)
            for offset, body in by_queue[queue].items():
                assert offset < len(found), f"queue {queue} ends at {len(found)}, offset {offset} was acknowledged"
                assert found[offset] == body, f"queue {queue} has another message at {offset}"
    return count


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_was_acknowledged_survives_kills(tmp_path: Path, flush: str) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged: Acknowledged = {}
    count = 0
    broker = Broker.start(tmp_path, f"flushDiskType={flush}")
    try:
        for kill in range((KILLS + 1) // 2):
            await load_and_kill(broker, f"round-{kill}", moments.uniform(0.05, 0.4), acknowledged)
            broker = Broker.start(tmp_path, f"flushDiskType={flush}")
            count = await audit(broker, acknowledged)
    finally:
        broker.kill()
    print(f"seed {seed}, {flush}: {len(acknowledged)} acknowledged, {count} stored, {(KILLS + 1) // 2} kills")
    assert len(acknowledged) > KILLS * SENDERS
