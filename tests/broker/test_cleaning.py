"""Deletion of old files: on demand, and by settings that change while the broker runs."""

import asyncio
from pathlib import Path

import pytest

from broker.conftest import Cluster, Start
from broker.talk import pull, send
from rmqpy.config import broker as broker_config
from rmqpy.errors import ConfigError
from rmqpy.protocol.requests.brokers import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    UpdateBrokerConfig,
)
from rmqpy.protocol.requests.offsets import GetMaxOffset, GetMinOffset
from wire import TIMEOUT_S, Peer

PULL_OFFSET_MOVED = 21
#: A file of the log holds three of these.
BODY = bytes(20_000)
TINY_FILES = {"mappedFileSizeCommitLog": str(1 << 16), "mappedFileSizeConsumeQueue": str(20 * 2)}


async def fill(cluster: Cluster, peer: Peer) -> None:
    """Ten messages in four files of the log."""
    for _ in range(10):
        assert (await send(peer, "orders", BODY)).code == 0


async def ends(peer: Peer) -> tuple[int, int]:
    """First and next offset of the queue."""
    first = await peer.ask(GetMinOffset(topic="orders", queue_id=0))
    end = await peer.ask(GetMaxOffset(topic="orders", queue_id=0))
    return first.offset, end.offset


def files(folder: Path) -> list[str]:
    """Files of log and queue."""
    found = [*(folder / "commitlog").iterdir(), *(folder / "consumequeue/orders/0").iterdir()]
    return sorted(str(path.relative_to(folder)) for path in found)


async def test_expired_files_are_deleted_on_demand_and_pulls_are_moved_past_them(
    start: Start,
) -> None:
    cluster = await start(**TINY_FILES, fileReservedTime="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await fill(cluster, peer)
        await peer.ask(DeleteExpiredCommitLog())
        first, end = await ends(peer)
        assert (first > 0, end) == (True, 10)
        assert not {f"commitlog/{0:020}", f"consumequeue/orders/0/{0:020}"} & set(files(cluster.folder))
        moved = await pull(peer, "billing", "orders", 0)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (PULL_OFFSET_MOVED, str(first))
        assert (await pull(peer, "billing", "orders", first)).code == 0
        await peer.ask(CleanExpiredConsumeQueue())
        assert await ends(peer) == (first, 10)


async def test_no_file_is_deleted_early(start: Start) -> None:
    cluster = await start(**TINY_FILES)
    async with await Peer.connect(cluster.broker.address) as peer:
        await fill(cluster, peer)
        await peer.ask(DeleteExpiredCommitLog())
        await peer.ask(CleanExpiredConsumeQueue())
        assert await ends(peer) == (0, 10)


async def test_changed_retention_applies_immediately(start: Start) -> None:
    cluster = await start(**TINY_FILES)
    async with await Peer.connect(cluster.broker.address) as peer:
        await fill(cluster, peer)
        hours = ";".join(f"{hour:02}" for hour in range(24))
        await peer.ask(UpdateBrokerConfig(body=f"fileReservedTime=0\ndeleteWhen={hours}\n"))
        async with asyncio.timeout(TIMEOUT_S):
            while (await ends(peer))[0] == 0:
                pass
        assert (await ends(peer))[1] == 10


@pytest.mark.parametrize("hours", ["", "24", "-1", "4,5", "04;x"])
def test_invalid_hours_are_refused(hours: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        broker_config.read({"deleteWhen": hours})
