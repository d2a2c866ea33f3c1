"""Pending timed messages, and log files that expire meanwhile."""

import asyncio
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol import troubles
from rmqpy.protocol.requests.brokers import DeleteExpiredCommitLog, GetBrokerRuntimeInfo, UpdateBrokerConfig
from rmqpy.protocol.requests.offsets import GetMinOffset
from rmqpy.testing import HandClock
from wire import TIMEOUT_S, Peer

from .conftest import Cluster, made_broker, samples
from .records import arrival
from .talk import send
from .test_cleaning import BODY, TINY_FILES

DELAYED, TIMED = "DELAY\x011\x02", f"TIMER_DELAY_SEC\x01{5 * 3_600}\x02"
SETTINGS = {
    **TINY_FILES,
    "fileReservedTime": "1",
    "messageDelayLevel": "5h",
    # A timed message is not stored again on its way.
    "timerRollWindowSlot": "600000",
    "httpPort": "0",
}


async def fill(peer: Peer) -> None:
    """Ten messages in four files of the log."""
    for _ in range(10):
        assert (await send(peer, "orders", BODY)).code == 0


async def first_of(peer: Peer) -> int:
    """The first offset of the queue, once expired files are deleted."""
    await peer.ask(DeleteExpiredCommitLog())
    return (await peer.ask(GetMinOffset(topic="orders", queue_id=0))).offset


@pytest.mark.parametrize("properties", [DELAYED, TIMED])
async def test_expired_file_with_a_pending_message_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, properties: str
) -> None:
    clock = HandClock()
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv:
        async with (
            made_broker(tmp_path, namesrv.address, SETTINGS, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            assert (await send(peer, "later", i=properties)).code == 0
            await fill(peer)
        # Also for a start that finds an expired file before it has read how far delivery has got.
        await asyncio.to_thread(clock.advance, 2 * 3_600.0)
        hours = ";".join(f"{hour:02}" for hour in range(24))
        settings = SETTINGS | {"deleteWhen": hours}
        async with (
            made_broker(tmp_path, namesrv.address, settings, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            await fill(peer)
            assert await first_of(peer) == 0
            await asyncio.to_thread(clock.advance, 3 * 3_600.0)
            assert (await arrival(peer, "later")).body == b"hello"
            # The slot of the wheel ends, in which it lay.
            await asyncio.to_thread(clock.advance, 2.0)
            async with asyncio.timeout(TIMEOUT_S):
                while await first_of(peer) == 0:
                    pass
    assert "expired, but kept: the message at position" in caplog.text


@pytest.mark.parametrize(("properties", "room"), [(DELAYED, "level 1"), (TIMED, "timed")])
async def test_messages_dropped_with_an_expired_file_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, properties: str, room: str
) -> None:
    clock = HandClock()
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv,
        made_broker(tmp_path, namesrv.address, SETTINGS, clock) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        assert (await send(peer, "later", i=properties)).code == 0
        await fill(peer)
        await asyncio.to_thread(clock.advance, 2 * 3_600.0)
        await fill(peer)
        await peer.ask(UpdateBrokerConfig(body="deleteWaitingEnable=true\n"))
        assert await first_of(peer) > 0
        await asyncio.to_thread(clock.advance, 3 * 3_600.0)
        # What is due later in the same room comes all the same.
        assert (await send(peer, "later", b"next", i=properties)).code == 0
        await asyncio.to_thread(clock.advance, 5 * 3_600.0)
        assert (await arrival(peer, "later")).body == b"next"
        cluster = Cluster(namesrv.address, broker, tmp_path / "store")
        [sample] = await samples(cluster, "rmqpy_undelivered_total")
        assert float(sample.rpartition(" ")[2]) == 1
        table = (await peer.ask(GetBrokerRuntimeInfo())).table
        [trouble] = [each for each in troubles.read(table) if each.check == "waiting messages of broker-a"]
        assert "1 message was not delivered" in trouble.finding.found
    [line] = [line for line in caplog.messages if "not delivered" in line]
    assert room in line
    assert "is gone from the log" in line
