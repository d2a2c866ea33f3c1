"""A broker with a full disk refuses messages, continues to serve reads, and recovers by itself when space is free.

It also starts and stops in order: files that can be computed from the log do not matter for that.

The store is on a separate tmpfs, which the test fills: first to less than the broker leaves free, then to the
last byte. No acknowledged message is lost. Needs root.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.eater import eat
from crash.killable import Broker
from crash.traffic import QUEUES, Acknowledged, AcknowledgedMessage, audit, send_header
from tmpfs import tmpfs
from wire import Peer

DISK_BYTES = 256 << 20
#: Less than the broker wants to be free.
LEFT_BYTES = 32 << 20
TOPIC = "full"
OK, SERVICE_NOT_AVAILABLE = 0, 14
TIMEOUT_SECONDS = 30.0

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


def fill(file: Path, left_bytes: int) -> None:
    """Leave so many bytes free; less than a page is taken for full."""
    room = os.statvfs(file.parent)
    with file.open("ab") as filler:
        os.posix_fallocate(filler.fileno(), filler.tell(), max(1, room.f_bavail * room.f_frsize - left_bytes))


async def send(peer: Peer, number: int, acknowledged: Acknowledged) -> int:
    body = f"message {number}".encode()
    answer = await peer.call(310, send_header(TOPIC, number % QUEUES), body)
    if answer.code == OK:
        assert answer.ext is not None
        place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
        acknowledged[place] = AcknowledgedMessage(body, int(answer.ext["msgId"][-16:], 16))
    return answer.code


async def send_until(code: int, address: str, acknowledged: Acknowledged) -> float:
    """Sends one message after the other until one is answered so; how many seconds that took."""
    began = time.monotonic()
    async with await Peer.connect(address) as peer:
        for number in range(1_000_000):
            answered = await send(peer, number, acknowledged)
            if answered == code:
                break
            assert answered in (OK, SERVICE_NOT_AVAILABLE)
            assert time.monotonic() < began + TIMEOUT_SECONDS, f"no answer {code}"
            await asyncio.sleep(0.01)  # the rate of the load, so that disks do not fill too soon
    return time.monotonic() - began


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_full_disk_refuses_messages_and_takes_them_again(disk: Path, flush: str) -> None:
    acknowledged: Acknowledged = {}
    broker = Broker.start(disk / "data", f"flushDiskType={flush}", "maxHashSlotNum=10000")
    try:
        await send_some(broker.address, acknowledged)
        filler = disk / "filler"
        fill(filler, LEFT_BYTES)
        refused = await send_until(SERVICE_NOT_AVAILABLE, broker.address, acknowledged)
        fill(filler, 0)
        # By a group that the broker has not heard of and cannot note down.
        assert await audit(broker.address, TOPIC, acknowledged) == len(acknowledged)
        filler.unlink()
        served = await send_until(OK, broker.address, acknowledged)
        broker.kill()
        broker = Broker.start(disk / "data", f"flushDiskType={flush}", "maxHashSlotNum=10000")
        count = await audit(broker.address, TOPIC, acknowledged)
    finally:
        broker.kill()
    print(
        f"{flush}: refused {refused:.2f} s after the disk was full, served {served:.2f} s after it was not, ",
        end="",
    )
    print(f"{len(acknowledged)} acknowledged, {count} stored")


@pytest.mark.parametrize(
    "setting", ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", "commitLogWritePath=mapping"]
)
async def test_a_broker_starts_and_stops_in_order_without_a_free_byte(disk: Path, setting: str) -> None:
    """Another program takes every byte, whatever the broker gives back; what was sent last is in no derived file."""
    acknowledged: Acknowledged = {}
    settings = (setting, "maxHashSlotNum=10000", "commitLogRingBytes=20000000")
    filler = disk / "filler"
    broker = Broker.start(disk / "data", *settings)
    try:
        await send_some(broker.address, acknowledged)
        for is_killed in (False, True, True, False):
            fill_up(filler)
            if is_killed:
                broker.kill()
            else:
                broker.stop()
            fill_up(filler)
            broker = Broker.start(disk / "data", *settings)
            assert await audit(broker.address, TOPIC, acknowledged) == len(acknowledged)
            if is_killed:
                filler.unlink()
                await send_until(OK, broker.address, acknowledged)
                await send_some(broker.address, acknowledged)
        filler.unlink()
        await send_until(OK, broker.address, acknowledged)
        broker.stop()
        assert not (disk / "data" / "store" / "abort").exists()
        broker = Broker.start(disk / "data", *settings)
        assert await audit(broker.address, TOPIC, acknowledged) == len(acknowledged)
    finally:
        broker.kill()


def fill_up(file: Path) -> None:
    """Leave no byte, though others write meanwhile."""
    with file.open("ab") as filler:
        while os.statvfs(file.parent).f_bavail:
            eat(filler.fileno(), 0)


async def send_some(address: str, acknowledged: Acknowledged) -> None:
    async with await Peer.connect(address) as peer:
        for number in range(200):
            assert await send(peer, number, acknowledged) == OK
