"""The index never takes the broker down: not by its room after a crash, and not where a disk has none for it.

The store lies on a tmpfs of its own, with index files of the default size: 420 MB each, of which nearly all are a hole.
Needs root.
"""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from crash.killable import Broker
from crash.test_full_disk import (
    LEFT_BYTES,
    OK,
    SERVICE_NOT_AVAILABLE,
    TIMEOUT_SECONDS,
    disk,
    fill,
    pytestmark,
)
from crash.traffic import QUEUES, send_header
from wire import Peer

__all__ = ["disk", "pytestmark"]

TOPIC = "indexed"
SIZES = ("maxHashSlotNum=5000000", "maxIndexNum=20000000")
NO_MESSAGE = 22
#: A thousand keys use a thousand pages of slots at most.
ROOM_MAX_BYTES = 8 << 20


async def send(peer: Peer, number: int) -> int:
    header = send_header(TOPIC, number % QUEUES) | {"i": f"KEYS\x01key-{number}\x02"}
    return (await peer.call(310, header, b"body")).code


async def find(peer: Peer, number: int) -> int:
    ask = {"topic": TOPIC, "key": f"key-{number}", "maxNum": "32"}
    return (await peer.call(12, ask | {"beginTimestamp": "0", "endTimestamp": str(1 << 62)})).code


async def find_all(address: str, numbers: list[int]) -> None:
    """Waits until each of them is found by its key."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    async with await Peer.connect(address) as peer:
        for number in numbers:
            while (code := await find(peer, number)) != OK:
                assert code == NO_MESSAGE
                assert time.monotonic() < deadline, f"message {number} is not found by its key"
                await asyncio.sleep(0.05)


async def checkpoint_made(folder: Path) -> None:
    """Waits until a start after a crash would not read the whole log."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any((folder / "store/checkpoint").read_bytes()[40:48]):
        assert time.monotonic() < deadline, "no checkpoint"
        await asyncio.sleep(0.05)


def take_the_rest(file: Path) -> None:
    """Takes every free page, also while another program frees some."""
    with file.open("ab", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def room(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in (folder / "store/index").iterdir())


async def test_after_a_kill_the_index_takes_no_more_room_and_the_broker_starts_with_little_left(
    disk: Path,
) -> None:
    folder = disk / "data"
    broker = Broker.start(folder, *SIZES)
    try:
        async with await Peer.connect(broker.address) as peer:
            for number in range(1000):
                assert await send(peer, number) == OK
        await checkpoint_made(folder)
        broker.kill()
        before = room(folder)
        fill(disk / "filler", LEFT_BYTES)
        broker = Broker.start(folder, *SIZES)
        await find_all(broker.address, list(range(1000)))
        after = room(folder)
    finally:
        broker.kill()
    print(f"room of the index: {before} bytes when it was killed, {after} after the start")
    assert after <= ROOM_MAX_BYTES


async def test_where_there_is_no_room_messages_are_not_indexed_until_there_is_and_nothing_else_happens(
    disk: Path,
) -> None:
    filler, numbers = disk / "filler", list(range(200))
    broker = Broker.start(disk / "data", *SIZES)
    try:
        async with await Peer.connect(broker.address) as peer:
            for number in numbers:
                assert await send(peer, number) == OK
            before = len(numbers)
            while len(numbers) == before:
                take_the_rest(filler)
                # Until the broker looks at the disk, the log takes messages: its room is its own.
                while (code := await send(peer, len(numbers))) == OK:
                    numbers.append(len(numbers))
                assert code == SERVICE_NOT_AVAILABLE
                if len(numbers) == before:
                    # It looked while the disk was being filled.
                    filler.unlink()
                    while await send(peer, len(numbers)) != OK:  # noqa: ASYNC110 - the broker tells nobody
                        await asyncio.sleep(0.05)
                    numbers.append(len(numbers))
                    before = len(numbers)
            for number in numbers[:200]:
                assert await find(peer, number) == OK
        print(f"{len(numbers)} messages, {len(numbers) - before} of them on the full disk")
        filler.unlink()
        await find_all(broker.address, numbers)
        assert broker.process.poll() is None
        broker.process.terminate()
        assert await asyncio.to_thread(broker.process.wait, 30) == 0
        broker = Broker.start(disk / "data", *SIZES)
        await find_all(broker.address, numbers)
    finally:
        broker.kill()
