"""Delayed and timed messages survive kills: each acknowledged one is delivered, none before its time.

Senders delay messages by two levels, or name times; at random moments the process gets SIGKILL and is restarted,
a last time after everything is due. Deliveries that were not saved yet may repeat. The seed is printed;
`RMQPY_SEED` repeats it.
"""

import asyncio
import os
import random
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from crash.killable import Broker
from wire import Peer

KILLS = 3
SENDERS = 8
TOPIC = "delayed"
DELAYS_MS = {1: 300, 2: 900}
SETTINGS = ("messageDelayLevel=300ms 900ms", "flushDelayOffsetInterval=100", "timerFlushIntervalMs=100")
#: Properties that ask for the delay of a level.
KINDS = {"levels": "DELAY\x01{level}\x02", "timers": "TIMER_DELAY_MS\x01{delay}\x02"}
TIMEOUT_SECONDS = 60
#: Positions in a record with IPv4 hosts.
STORED_AT, BODY_AT = 56, 84


async def send_until_killed(
    address: str, name: str, kind: str, acknowledged: set[bytes], started: asyncio.Event
) -> None:
    """One sender; each body says which level it waits on and when it was sent."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with await Peer.connect(address) as peer:
            for number in range(1_000_000):
                level = 1 + number % 2
                body = f"{name}/{number}/{level}/{time.time_ns() // 1_000_000}".encode()
                header = {
                    "a": "s",
                    "b": TOPIC,
                    "c": "TBW102",
                    "d": "1",
                    "e": "0",
                    "f": "0",
                    "g": "0",
                    "h": "0",
                }
                asked = KINDS[kind].format(level=level, delay=DELAYS_MS[level])
                answer = await peer.call(310, header | {"i": asked, "m": "false"}, body)
                assert answer.code == 0, answer
                acknowledged.add(body)
                started.set()


async def load_and_kill(
    broker: Broker, name: str, kind: str, moment: float, acknowledged: set[bytes]
) -> None:
    started = asyncio.Event()
    async with asyncio.TaskGroup() as senders:
        for index in range(SENDERS):
            senders.create_task(
                send_until_killed(broker.address, f"{name}-{index}", kind, acknowledged, started)
            )
        await asyncio.wait_for(started.wait(), 30)
        # The moment of death is what varies.
        await asyncio.sleep(moment)
        broker.kill()


async def collect(address: str, wanted: set[bytes]) -> list[tuple[bytes, int]]:
    """Bodies with their store times, read until all that is wanted has come."""
    found: list[tuple[bytes, int]] = []
    missing, offset = set(wanted), 0
    header = {
        "consumerGroup": "auditors", "topic": TOPIC, "queueId": "0", "maxMsgNums": "1024", "sysFlag": "6",
        "maxMsgBytes": str(4 << 20), "commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*",
        "subVersion": "0",
    }  # fmt: skip
    deadline = time.monotonic() + TIMEOUT_SECONDS
    async with await Peer.connect(address) as peer:
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} of {len(wanted)} messages were not delivered"
            answer = await peer.call(11, header | {"queueOffset": str(offset)})
            assert answer.ext is not None
            offset = int(answer.ext["nextBeginOffset"])
            rest = answer.body if answer.code == 0 else b""
            while rest:
                (size,) = struct.unpack_from(">i", rest)
                (stored_at,) = struct.unpack_from(">q", rest, STORED_AT)
                (length,) = struct.unpack_from(">i", rest, BODY_AT)
                body = rest[BODY_AT + 4 : BODY_AT + 4 + length]
                found.append((body, stored_at))
                missing.discard(body)
                rest = rest[size:]
    return found


@pytest.mark.timeout(120 + TIMEOUT_SECONDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_delayed_messages_survive_kills_and_none_comes_early(
    tmp_path: Path, flush: str, kind: str
) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged: set[bytes] = set()
    settings = (f"flushDiskType={flush}", *SETTINGS)
    broker = Broker.start(tmp_path, *settings)
    try:
        for kill in range(KILLS):
            await load_and_kill(broker, f"round-{kill}", kind, moments.uniform(0.3, 1.2), acknowledged)
            broker = Broker.start(tmp_path, *settings)
        delivered = await collect(broker.address, acknowledged)
    finally:
        broker.kill()
    print(
        f"seed {seed}, {flush}, {kind}: {len(acknowledged)} acknowledged, {len(delivered)} delivered, {KILLS} kills"
    )
    assert len(acknowledged) > KILLS * SENDERS
    for body, stored_at in delivered:
        _, _, level, sent_at = body.split(b"/")
        assert stored_at >= int(sent_at) + DELAYS_MS[int(level)], "delivered before its time"
