"""Delay levels: accepted requests, and the file of their progress."""

import asyncio
import struct
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.errors import ConfigError, StoreError
from rmqpy.namesrv import NameServer
from rmqpy.protocol import fastjson
from rmqpy.testing import HandClock
from wire import TIMEOUT_S, Peer

from .conftest import Start, made_broker
from .records import arrival, records
from .talk import pull, send

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


async def test_delayed_message_is_pending_under_its_level_and_arrives_unchanged(start: Start) -> None:
    cluster = await start(messageDelayLevel="1h 300ms")
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await send(
            peer, "later", b"body", e="2", i="DELAY\x012\x02TAGS\x01A\x02TIMER_DELAY_MS\x015\x02"
        )
        assert answer.ext is not None
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
        found = await pull(peer, "readers", SCHEDULE, queueId="1")
        [waiting] = records(found.body)
        assert waiting.properties["REAL_TOPIC"] == "later"
        assert "TIMER_DELAY_MS" not in waiting.properties
        header = {"queueId": "2", "subscription": "A", "sysFlag": "6", "suspendTimeoutMillis": "10000"}
        answer = await pull(peer, "readers", "later", **header)
        (stored_at,) = struct.unpack_from(">q", answer.body, 56)
        (sent_at,) = struct.unpack_from(">q", found.body, 56)
        assert stored_at - sent_at >= 300
        assert records(answer.body)[0].body == b"body"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_message_without_level_is_not_delayed(start: Start, level: str) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "now", i=f"DELAY\x01{level}\x02")).code == 0
        assert (await arrival(peer, "now")).body == b"hello"


async def test_invalid_delay_level_is_refused(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "now", i="DELAY\x01soon\x02")).code == 13


async def test_delivery_is_saved_at_stop_and_not_repeated(start: Start, tmp_path: Path) -> None:
    """With a level that is counted from 1 and an offset that counts messages, as Apache's file has them."""
    cluster = await start(messageDelayLevel="100ms 1h")
    async with await Peer.connect(cluster.broker.address) as peer:
        for level in ("1", "1", "2"):
            await send(peer, "later", i=f"DELAY\x01{level}\x02")
        await arrival(peer, "later")
        await arrival(peer, "later", 1)
    await cluster.broker.stop()
    text = (cluster.folder / "config/delayOffset.json").read_text()
    assert fastjson.loads(text)["offsetTable"] == {"1": 2}
    async with (
        made_broker(tmp_path, cluster.namesrv, {"messageDelayLevel": "100ms 1h"}) as again,
        await Peer.connect(again.address) as peer,
    ):
        await send(peer, "later", b"third", i="DELAY\x011\x02")
        assert (await arrival(peer, "later", 2)).body == b"third"
        assert (await pull(peer, "readers", "later", 3)).code == 19


async def test_progress_of_a_removed_level_is_kept_without_repeats(start: Start, tmp_path: Path) -> None:
    cluster = await start(messageDelayLevel="100ms 100ms")
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "later", b"once", i="DELAY\x012\x02")
        await arrival(peer, "later")
    await cluster.broker.stop()
    for levels in ("100ms", "100ms 100ms"):
        settings = {"messageDelayLevel": levels}
        async with (
            made_broker(tmp_path, cluster.namesrv, settings) as again,
            await Peer.connect(again.address) as peer,
        ):
            # Behind it, what waits for the same time at the latest has been delivered.
            await send(peer, "marker", levels.encode(), i="DELAY\x019\x02")
            await arrival(peer, "marker", 0 if levels == "100ms" else 1)
            assert len(records((await pull(peer, "readers", "later")).body)) == 1, levels
        text = (cluster.folder / "config/delayOffset.json").read_text()
        assert "2" in fastjson.loads(text)["offsetTable"], f"{levels}: {text}"


async def test_message_of_a_removed_level_is_delivered_at_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv:
        settings = {"messageDelayLevel": "1s 1h"}
        async with (
            made_broker(tmp_path, namesrv.address, settings, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            assert (await send(peer, "later", i="DELAY\x012\x02")).code == 0
        settings = {"messageDelayLevel": "1s"}
        async with (
            made_broker(tmp_path, namesrv.address, settings, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            await asyncio.to_thread(clock.advance, 3_599.0)
            assert (await pull(peer, "readers", "later")).code != 0
            await asyncio.to_thread(clock.advance, 1.0)
            assert (await arrival(peer, "later")).body == b"hello"
    assert "1 delayed message waits in level 2, which messageDelayLevel lacks" in caplog.text


@pytest.mark.parametrize(
    ("properties", "room"), [("DELAY\x011\x02", "level 1"), ("TIMER_DELAY_SEC\x0160\x02", "a timed message")]
)
async def test_start_is_refused_if_a_pending_message_exceeds_the_log_limit(
    tmp_path: Path, properties: str, room: str
) -> None:
    settings = {"messageDelayLevel": "1m"}
    ring = {"commitLogRingBytes": str(1 << 19), "maxMessageSize": "60000"}
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv:
        async with (
            made_broker(tmp_path, namesrv.address, settings) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            assert (await send(peer, "later", bytes(200_000), i=properties)).code == 0
        with pytest.raises(StoreError, match=f"{room}.*commitLogRingBytes"):
            async with made_broker(tmp_path, namesrv.address, settings | ring):
                pass
        async with made_broker(tmp_path, namesrv.address, settings):
            pass


class Delivered:
    """A delivery that has got this far."""

    def __init__(self, offsets: dict[int, int]) -> None:
        self.now = offsets

    def delay_offsets(self) -> dict[int, int]:
        return dict(self.now)


async def test_the_file_is_written_when_something_was_delivered(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text(
        '{"dataVersion":{"counter":5,"stateVersion":0,"timestamp":7},"offsetTable":{1:0,3:19,4:7}}'
    )
    file, delivery = DelayFile(path, HandClock()), Delivered({3: 19, 4: 7})
    file.load()
    assert file.offsets == {3: 19, 4: 7}, "a level at 0 is one that was never used"
    file.follow(delivery)
    await asyncio.wait_for(file.save(), TIMEOUT_S)
    assert "1:0" in path.read_text(), "nothing was delivered, and the file is left alone"
    delivery.now = {3: 20, 4: 7}
    await asyncio.wait_for(file.save(), TIMEOUT_S)
    written = path.stat().st_mtime_ns
    await asyncio.wait_for(file.save(), TIMEOUT_S)
    assert path.stat().st_mtime_ns == written
    again = DelayFile(path, HandClock())
    again.load()
    assert again.offsets == {3: 20, 4: 7}
    delivery.now = {3: 21}
    await asyncio.wait_for(file.save(), TIMEOUT_S)
    again.load()
    assert again.offsets == {3: 21, 4: 7}, "a level that the delivery does not know keeps its progress"
    assert fastjson.loads(path.read_text())["dataVersion"]["counter"] == 7


def test_delay_levels_are_parsed_like_the_original() -> None:
    assert StoreConfig().delays_ms[:4] == (1_000, 5_000, 10_000, 30_000)
    assert (len(StoreConfig().delays_ms), StoreConfig().delays_ms[17]) == (18, 7_200_000)
    assert StoreConfig(delay_levels="250ms 1d").delays_ms == (250, 86_400_000)


@pytest.mark.parametrize("levels", ["", "1", "1x", "0s", "-1s", " ".join(["1s"] * 129)])
def test_invalid_delay_levels_prevent_the_start(levels: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        StoreConfig(delay_levels=levels)
