"""The port for slaves, with and without access control: admission to the log, and slaves that count as copies."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.conftest import made_broker
from broker.replicas import made_slave
from broker.signing import SignedPeer, add_user, entry, signed
from broker.talk import send
from rmqpy.broker import Broker
from rmqpy.protocol.replica_findings import of_master
from rmqpy.protocol.requests.replicas import (
    ExchangeBrokerHaInfo,
    GetBrokerHaStatus,
    HaStatus,
    MasterConnection,
)
from waiting import until_async
from wire import Peer, Refusal

pytestmark = pytest.mark.usefixtures("tries_soon")

INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": INNER,
}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "300"}
DONE, NO_SLAVE = 0, 11
#: As many as there may be slaves.
SLAVES_MAX = 64
SOON_SECONDS = 20.0


@asynccontextmanager
async def guarded(folder: Path, namesrv: str, **settings: str) -> AsyncIterator[tuple[Broker, SignedPeer]]:
    """A master with access control that promises a copy, and its super user."""
    async with (
        made_broker(folder, namesrv, {**ON, **SYNC, **settings}) as master,
        await signed(master.address, "inner") as root,
    ):
        yield master, root


async def connected(master: Broker, first: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = master.replica_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(first)
    return reader, writer


def position(end: int) -> bytes:
    return struct.pack(">q", end)


async def status(peer: Peer) -> HaStatus:
    return await peer.ask(GetBrokerHaStatus())


async def test_unauthenticated_slave_does_not_count_as_a_copy(tmp_path: Path, namesrv: str) -> None:
    async with guarded(tmp_path, namesrv) as (master, root):
        assert (await send(root, "orders")).code == NO_SLAVE
        end = (await status(root)).master_commit_log_max_offset
        for first in (position(end), position(0)):
            reader, writer = await connected(master, first)
            async with asyncio.timeout(SOON_SECONDS):
                assert await reader.read() == b"", "it gets nothing of the log"
            writer.close()
            assert (await send(root, "orders")).code == NO_SLAVE
        told = await until_async(lambda: status(root), lambda told: bool(told.refused_slaves))
        assert (told.in_sync_slave_nums, told.ha_connection_info) == (0, [])
        assert "haTrustedAddresses" in str(told.refused_slaves)
        checks = {trouble.check: trouble for trouble in of_master("broker-a", told)}
        assert "haTrustedAddresses" in str(checks["port for slaves of broker-a"].finding)
        assert "log of broker-a" not in checks, "nothing is known of its log"


async def test_connection_must_identify_as_a_slave_within_a_second(tmp_path: Path, namesrv: str) -> None:
    async with guarded(tmp_path, namesrv) as (master, _):
        began = asyncio.get_running_loop().time()
        reader, writer = await connected(master)
        async with asyncio.timeout(SOON_SECONDS):
            assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - began >= 0.9
        writer.close()


@pytest.mark.parametrize("access", [{}, ON])
async def test_silent_connections_block_no_slave(
    tmp_path: Path, namesrv: str, access: dict[str, str]
) -> None:
    # Those that were there before are there when the slave comes.
    settings = {**access, **SYNC, "haHousekeepingInterval": "60000"}
    async with (
        made_broker(tmp_path, namesrv, settings) as master,
        await signed(master.address, "inner" if access else "") as peer,
    ):
        silent = [await connected(master) for _ in range(SLAVES_MAX + 6)]
        assert (await send(peer, "orders")).code == NO_SLAVE
        async with made_slave(tmp_path, namesrv, **access):
            told = await until_async(lambda: status(peer), lambda told: told.in_sync_slave_nums == 1)
            assert len(told.ha_connection_info) == 1
            assert (await send(peer, "orders")).code == DONE
        for _, writer in silent:
            writer.close()


async def test_slave_with_a_ticket_counts_as_a_copy(tmp_path: Path, namesrv: str) -> None:
    async with guarded(tmp_path, namesrv) as (_, root):
        async with made_slave(tmp_path, namesrv, **ON):
            await until_async(lambda: status(root), lambda told: told.in_sync_slave_nums == 1)
            assert (await send(root, "orders")).code == DONE
        await until_async(lambda: status(root), lambda told: not told.ha_connection_info)
        assert (await send(root, "orders")).code == NO_SLAVE


async def test_ticket_requires_a_super_user(tmp_path: Path, namesrv: str) -> None:
    async with guarded(tmp_path, namesrv) as (master, root):
        await add_user(root, "operator", entry("*", "All"))
        ask = ExchangeBrokerHaInfo(wants_ticket=True)
        for user in ("", "operator"):
            async with await signed(master.address, user) as peer:
                with pytest.raises(Refusal) as refused:
                    await peer.ask(ask)
                assert refused.value.code == 16
        assert (await root.ask(ExchangeBrokerHaInfo())).ticket is None
        ticket = bytes.fromhex((await root.ask(ask)).ticket or "")
        assert len(ticket) == 16
        reader, _ = await connected(master, b"\xffticket\0" + ticket + position(0))
        assert await reader.readexactly(8) == b"\xfftaken\0\0"
        await until_async(lambda: status(root), lambda told: len(told.ha_connection_info) == 1)


async def test_slave_without_a_ticket_reports_it(tmp_path: Path, namesrv: str) -> None:
    other = {**ON, "innerClientAuthenticationCredentials": INNER.replace("inner", "another")}

    async def followed(peer: Peer) -> MasterConnection:
        return (await status(peer)).ha_client_runtime_info

    async with guarded(tmp_path, namesrv) as (_, root):
        await add_user(root, "another", entry("*", "All"))
        async with (
            made_slave(tmp_path, namesrv, **other) as slave,
            await signed(slave.address, "another") as at_slave,
        ):
            told = await until_async(lambda: followed(at_slave), lambda told: bool(told.fault))
            assert "innerClientAuthenticationCredentials" in str(told.fault)
            assert (await status(root)).in_sync_slave_nums == 0


async def test_a_slave_of_a_trusted_address_needs_no_ticket(tmp_path: Path, namesrv: str) -> None:
    """As Apache's, which has none."""
    async with guarded(tmp_path, namesrv, haTrustedAddresses="10.0.0.5, 127.0.0.1") as (master, root):
        assert (await send(root, "orders")).code == NO_SLAVE
        reader, writer = await connected(master, position(0))
        assert len(await reader.readexactly(12)) == 12
        await until_async(lambda: status(root), lambda told: len(told.ha_connection_info) == 1)
        writer.close()
