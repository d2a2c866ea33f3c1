"""The index never takes the broker down: neither by its size after a crash, nor on a disk without space for it.

The store is on a separate tmpfs, with index files of the default size: 420 MB each, almost all of it a hole.
Needs root.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from crash.killable import Broker
from crash.test_full_disk import (
    LEFT_BYTES,
    OK,
    SERVICE_NOT_AVAILABLE,
    disk,
    fill,
    pytestmark,
)
from crash.traffic import QUEUES, send_header
from waiting import until_async
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


def is_found(code: int) -> bool:
    assert code in (OK, NO_MESSAGE)
    return code == OK


async def find_all(address: str, numbers: list[int]) -> None:
    """Waits until each of them is found by its key."""
    async with await Peer.connect(address) as peer:
        for number in numbers:
            await until_async(lambda number=number: find(peer, number), is_found)


async def checkpoint_made(folder: Path) -> None:
    """Waits until a start after a crash would not read the whole log."""
    await until_async(lambda: any((folder / "store/checkpoint").read_bytes()[40:48]))


def take_the_rest(file: Path) -> None:
    """Takes every free page, also while another program frees some."""
    with file.open("ab", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def room(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in (folder / "store/index").iterdir())


async def test_index_needs_no_extra_space_after_a_kill(
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


async def test_full_disk_only_delays_the_index(
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
                    await until_async(lambda: send(peer, len(numbers)), OK.__eq__)
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
