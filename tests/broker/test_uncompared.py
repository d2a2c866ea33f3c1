"""Slaves with `haMasterAddress` and silent name servers: they follow only logs that were compared."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.processes import free_ports
from broker.conftest import made_broker
from broker.replicas import made_slave
from broker.talk import send
from rmqpy.broker import Broker
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus, MasterConnection
from waiting import until_async
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")

#: An address without a name server.
NOWHERE = "127.0.0.1:1"


async def stored(master: Broker, *bodies: bytes) -> None:
    async with await Peer.connect(master.address) as peer:
        for body in bodies:
            assert (await send(peer, "orders", body=body)).code in (0, 11)


def neighbours() -> dict[str, str]:
    """A port, and the one above it for slaves; the ones below are for VIP clients."""
    port = free_ports(4) + 2
    return {"listenPort": str(port), "haListenPort": str(port + 1)}


def log_of(folder: Path, end: int) -> bytes:
    files = sorted((folder / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


async def status(broker: Broker) -> HaStatus:
    async with await Peer.connect(broker.address) as peer:
        return await peer.ask(GetBrokerHaStatus())


async def followed(slave: Broker) -> MasterConnection:
    return (await status(slave)).ha_client_runtime_info


@asynccontextmanager
async def master_with_another_log(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A slave's folder and its master's have other bytes of one length; the master runs."""
    async with made_broker(folder / "before", NOWHERE, {}) as first:
        await stored(first, b"x" * 100, b"y" * 100)
    (folder / "before" / "store").rename(folder / "slave")
    async with made_broker(folder, NOWHERE, {**neighbours(), **settings}) as master:
        await stored(master, b"z" * 100, b"z" * 100, b"z" * 100)
        yield master


async def test_slave_does_not_follow_an_unrelated_log_without_name_servers(tmp_path: Path) -> None:
    async with (
        master_with_another_log(tmp_path, brokerRole="SYNC_MASTER") as master,
        made_slave(tmp_path, NOWHERE, haMasterAddress=master.replica_address) as slave,
    ):
        told = await until_async(lambda: followed(slave), lambda told: bool(told.fault))
        assert not told.is_connected
        assert told.is_diverged, told.fault
        at_master = await status(master)
        assert (at_master.in_sync_slave_nums, at_master.ha_connection_info) == (0, [])
        end = told.max_offset
        await stored(master, b"more")
        assert (await followed(slave)).max_offset == end


async def test_slave_follows_a_compared_log_without_name_servers(
    tmp_path: Path,
) -> None:
    async with made_broker(tmp_path, NOWHERE, neighbours()) as master:
        await stored(master, b"one", b"two")
        async with made_slave(tmp_path, NOWHERE, haMasterAddress=master.replica_address) as slave:
            await until_async(lambda: followed(slave), lambda told: bool(told.is_connected))
            assert (await followed(slave)).fault is None
            await stored(master, b"three")
            end = (await status(master)).master_commit_log_max_offset
            await until_async(lambda: followed(slave), lambda told: told.max_offset == end)
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "store", end)


async def test_slave_does_not_follow_a_master_it_cannot_query(tmp_path: Path) -> None:
    async with (
        made_broker(tmp_path / "other", NOWHERE, {"brokerName": "broker-b", **neighbours()}) as other,
        made_slave(tmp_path, NOWHERE, haMasterAddress=other.replica_address) as slave,
    ):
        await stored(other, b"one")
        told = await until_async(lambda: followed(slave), lambda told: bool(told.fault))
        assert "no name server has returned the master's address" in str(told.fault)
        assert "not the master of broker-a" in str(told.fault)
        assert (told.is_connected, told.max_offset) == (False, 0)


async def test_a_port_for_slaves_without_a_master_behind_it_is_not_followed(tmp_path: Path) -> None:
    """Sends bytes that look like a log to any peer."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(struct.pack(">qi", 0, 64) + bytes(64))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        made_slave(tmp_path, NOWHERE, haMasterAddress=f"127.0.0.1:{port}") as slave,
    ):
        told = await until_async(lambda: followed(slave), lambda told: bool(told.fault))
        assert "did not report its role" in str(told.fault)
        assert told.max_offset == 0
