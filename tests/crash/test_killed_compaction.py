"""A broker killed while it compacts under load keeps the newest acknowledged value of each key, once."""

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from broker.records import Record, records
from broker.talk import pull, send
from crash.killable import Broker
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from waiting import until_async
from wire import Peer

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
TOPIC = "profiles"
KEYS = 20
SETTINGS = ("compactionScheduleInternal=100", "compactionBytesPerSecond=0")
RETRY_IMMEDIATELY, NOT_FOUND = 20, 19


async def load(address: str, seconds: float, broker: Broker, last: dict[str, int]) -> None:
    """Send growing values of each key until the kill; note the last acknowledged one."""

    async def one(key: str) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with await Peer.connect(address) as peer:
                for value in range(last.get(key, -1) + 1, 1 << 60):
                    answer = await send(peer, TOPIC, str(value).encode(), i=f"KEYS\x01{key}\x02")
                    assert answer.code == 0, answer.remark
                    last[key] = value

    async with asyncio.TaskGroup() as tasks:
        for number in range(KEYS):
            tasks.create_task(one(f"k{number}"))
        # The moment of the kill.
        await asyncio.sleep(seconds)
        broker.kill()


async def read(peer: Peer) -> list[Record]:
    found: list[Record] = []
    offset = 0
    while (answer := await pull(peer, "readers", TOPIC, offset)).code != NOT_FOUND:
        assert answer.code in (0, RETRY_IMMEDIATELY), answer
        found += records(answer.body)
        offset = int((answer.ext or {})["nextBeginOffset"])
    return found


def check(found: list[Record], last: dict[str, int]) -> None:
    offsets = [record.queue_offset for record in found]
    assert offsets == sorted(set(offsets)), "a message appears once, in its order"
    newest: dict[str, int] = {}
    for record in found:
        key, value = record.properties["KEYS"], int(record.body)
        # A value may be stored twice, if its acknowledgement was lost with the broker.
        assert value >= newest.get(key, -1), f"{key}: {value} behind {newest[key]}"
        newest[key] = value
    lost = {key: value for key, value in last.items() if newest.get(key, -1) < value}
    assert not lost, f"lost: {lost}"


@pytest.mark.timeout(60 + 10 * KILLS)
async def test_the_newest_acknowledged_value_of_each_key_survives_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    last: dict[str, int] = {}
    broker = Broker.start(tmp_path, *SETTINGS)
    try:
        async with await Peer.connect(broker.address) as peer:
            await peer.ask(
                UpdateAndCreateTopic(
                    topic=TOPIC,
                    read_queue_nums=1,
                    write_queue_nums=1,
                    attributes="+cleanup.policy=COMPACTION",
                )
            )
        for _ in range(KILLS):
            await load(broker.address, moments.uniform(0.3, 0.9), broker, last)
            broker = Broker.start(tmp_path, *SETTINGS)
            async with await Peer.connect(broker.address) as peer:
                check(await read(peer), last)
        async with await Peer.connect(broker.address) as peer:

            async def is_compacted() -> bool:
                return len(await read(peer)) == KEYS

            await until_async(is_compacted)
            check(await read(peer), last)
    finally:
        broker.kill()
    print(f"seed {seed}: {sum(last.values())} acknowledged")
    assert sum(last.values()) > KILLS * KEYS * 10
