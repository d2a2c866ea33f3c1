"""Masters whose replies wait for slaves: they report whether enough replicas have the message."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.conftest import made_broker
from broker.replicas import log_end, made_slave
from broker.talk import send
from rmqpy.broker import Broker
from waiting import until_async
from wire import Frame, Peer

DONE, SYSTEM_ERROR, NO_SLAVE, SLAVES_LATE = 0, 1, 11, 12
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "300", "haSendHeartbeatInterval": "100"}


@asynccontextmanager
async def sync_master(folder: Path, namesrv: str, **settings: str) -> AsyncIterator[tuple[Broker, Peer]]:
    master = made_broker(folder, namesrv, {**SYNC, **settings})
    async with master, await Peer.connect(master.address) as peer:
        yield master, peer


class MuteSlave:
    """Says where its log ends, and confirms nothing until it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, master: Broker, end: int) -> "MuteSlave":
        host, _, port = master.replica_address.rpartition(":")
        slave = cls(*await asyncio.open_connection(host, int(port)))
        slave.report(end)
        return slave

    def report(self, end: int) -> None:
        self._writer.write(struct.pack(">q", end))

    def close(self) -> None:
        self._writer.close()


async def until_code(peer: Peer, wanted: int) -> Frame:
    """Send until the answer has this code: slaves come or go meanwhile."""
    return await until_async(lambda: send(peer, "orders"), lambda answer: answer.code == wanted)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_reply_reports_a_missing_slave_immediately_and_success_after_a_copy(
    tmp_path: Path, namesrv: str, flush: str
) -> None:
    async with sync_master(tmp_path, namesrv, flushDiskType=flush, slaveTimeout="20000") as (_, peer):
        alone = await send(peer, "orders")
        assert alone.code == NO_SLAVE
        assert (alone.ext or {})["queueOffset"] == "0", "it is stored"
        async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
            await until_code(peer, DONE)
            assert {(await send(peer, "orders")).code for _ in range(20)} == {DONE}
            assert await log_end(at_slave) == await log_end(peer), "it is in the slave's log by then"
        await until_code(peer, NO_SLAVE)


async def test_unresponsive_slave_delays_only_sync_replies(tmp_path: Path, namesrv: str) -> None:
    async with sync_master(tmp_path, namesrv) as (master, peer):
        await send(peer, "orders")
        slave = await MuteSlave.connect(master, await log_end(peer))
        began = asyncio.get_running_loop().time()
        await until_code(peer, SLAVES_LATE)
        assert asyncio.get_running_loop().time() - began >= 0.3
        # Reads are not held up, nor sends that do not ask to wait.
        assert (await send(peer, "orders", i="WAIT\x01false\x02")).code == DONE
        slave.report(await log_end(peer))
        async with await Peer.connect(master.address) as other:
            end = await log_end(other)
            pending = asyncio.create_task(until_code(peer, DONE))
            while not pending.done():
                slave.report(await log_end(other))
                # Other tasks run meanwhile; each report frees what was sent before it.
                await asyncio.sleep(0.01)
            await pending
            assert await log_end(other) > end
        slave.close()


async def test_with_too_few_replicas_messages_are_refused_and_not_stored(
    tmp_path: Path, namesrv: str
) -> None:
    async with sync_master(tmp_path, namesrv, minInSyncReplicas="2") as (_, peer):
        refused = await send(peer, "orders")
        assert refused.code == SYSTEM_ERROR
        assert "IN_SYNC_REPLICAS_NOT_ENOUGH" in (refused.remark or "")
        assert await log_end(peer) == 0
        async with made_slave(tmp_path, namesrv):
            await until_code(peer, DONE)
