"""Brokers whose clock is set, or was ahead when their store was written."""

import struct
import time
from pathlib import Path

from broker.conftest import made_broker
from broker.records import records
from broker.talk import pull, send
from crash.killable import Broker
from rmqpy.clock import HandClock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol import fastjson
from waiting import until_async
from wire import Frame, Peer

MESSAGES = 20
YEAR_MS = 365 * 86_400_000
#: Of a record with IPv4 hosts.
STORED_AT = 56
#: What is made from the log, or vouches for its bytes.
DERIVED = ("consumequeue", "index", "checkpoint", "rmqpy")


def shift(folder: Path, by_ms: int) -> int:
    """Adds this to the store time of every record of a store that nobody has open; returns how many there are.

    What remains is what a broker leaves that ran by such a clock and was killed.
    """
    (log,) = folder.glob("**/commitlog/00000000000000000000")
    shifted, at = 0, 0
    with log.open("r+b") as file:
        while (size := struct.unpack(">i", file.read(4))[0]) > 0:
            file.seek(at + STORED_AT)
            (stored_at,) = struct.unpack(">q", file.read(8))
            file.seek(at + STORED_AT)
            file.write(struct.pack(">q", stored_at + by_ms))
            shifted, at = shifted + 1, at + size
            file.seek(at)
    for name in DERIVED:
        path = log.parent.parent / name
        for file_path in sorted(path.rglob("*"), reverse=True) if path.is_dir() else [path]:
            file_path.rmdir() if file_path.is_dir() else file_path.unlink()
    return shifted


async def all_of(peer: Peer, topic: str, count: int) -> Frame:
    """The answer to a pull that has so many messages, as soon as there are."""
    return await until_async(
        lambda: pull(peer, "readers", topic),
        lambda answer: answer.code == 0 and len(records(answer.body)) >= count,
    )


async def test_delayed_messages_of_a_fast_clock_are_delivered_after_its_correction(
    tmp_path: Path,
) -> None:
    # Through the mapping, so that all records are in the log file after a kill.
    broker = Broker.start(tmp_path, "messageDelayLevel=1h", "commitLogWritePath=mapping")
    async with await Peer.connect(broker.address) as peer:
        for number in range(MESSAGES):
            sent = await send(peer, "later", f"{number}".encode(), i="DELAY\x011\x02", e="0")
            assert sent.code == 0
    broker.kill()
    assert shift(tmp_path, YEAR_MS) == MESSAGES
    broker = Broker.start(tmp_path, "messageDelayLevel=5s")
    try:
        async with await Peer.connect(broker.address) as peer:
            answer = await all_of(peer, "later", MESSAGES)
            assert [int(each.body) for each in records(answer.body)] == list(range(MESSAGES))
            (stored_at,) = struct.unpack_from(">q", answer.body, STORED_AT)
            assert stored_at <= time.time_ns() // 1_000_000, "the copies are stored by the clock as it is"
            # The next one waits as long as it asked for.
            assert (await send(peer, "later", b"after", i="DELAY\x011\x02", e="0")).code == 0
            assert (await pull(peer, "readers", "later", MESSAGES)).code == 19
    finally:
        broker.kill()


async def test_broker_reports_its_uptime_and_clock_after_a_clock_change(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    booted_ms = clock.wall_ms()
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as names,
        made_broker(tmp_path, names.address, {}, clock) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        clock.advance(90)
        for by_ms in (0, -YEAR_MS, YEAR_MS):
            clock.set_wall(booted_ms + 90_000 + by_ms)
            table = fastjson.loads((await peer.call(28, {})).body)["table"]
            assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 30 seconds ]"
            assert int(table["bootTimestamp"]) == booted_ms + by_ms, "tools take the sum for its clock"
