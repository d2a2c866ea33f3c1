"""Replication through TLS: a slave follows a master that enforces it; without TLS it is refused with the reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import certificates
import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave
from certificates import Files, write
from rmqpy.admin.replicas import ReplicaState
from rmqpy.broker import Broker
from rmqpy.config import namesrv as namesrv_config
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from waiting import until_async
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Of all servers."""
    return write(tmp_path / "tls")


@asynccontextmanager
async def cluster(folder: Path, files: Files) -> AsyncIterator[tuple[str, Broker]]:
    """A name server that accepts both kinds of connections, and a master that does not."""
    given = {"listenPort": "0", "kvConfigPath": "", "configStorePath": "", "tls.server.mode": "permissive"}
    config = namesrv_config.read(given | certificates.settings(files)).config
    async with (
        NameServer(config) as server,
        made_broker(folder, server.address, master_settings(files)) as master,
    ):
        yield server.address, master


def master_settings(files: Files) -> dict[str, str]:
    return certificates.settings(files, tls_enable="true", tls_server_mode="enforcing")


def our(namesrv: str, files: Files) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=namesrv, tls=rmqpy.TLS(ca=files.ca))


async def sent(config: rmqpy.ClientConfig, count: int) -> None:
    async with rmqpy.AsyncProducer(config) as producer:
        for number in range(count):
            await producer.send("orders", str(number).encode())


async def states(config: rmqpy.ClientConfig) -> list[ReplicaState]:
    async with rmqpy.AsyncAdmin(config) as admin:
        return await admin.replicas("broker-a")


def has_all(found: list[ReplicaState]) -> bool:
    return len(found) == 2 and bool(found[1].in_sync) and found[1].log_end == found[0].log_end


async def test_a_slave_follows_an_enforcing_master_also_when_certificates_are_replaced(
    tmp_path: Path, files: Files
) -> None:
    async with cluster(tmp_path, files) as (namesrv, master):
        settings = master_settings(files)
        async with made_slave(tmp_path, namesrv, **settings) as slave:
            await sent(our(namesrv, files), 10)
            await until_async(lambda: states(our(namesrv, files)), has_all)
            # Another authority: a slave that trusts only the previous one cannot connect.
            certificates.replace(files, write(tmp_path / "next"))
            await asyncio.to_thread(
                certificates.wait_until_shown, files.cert, namesrv, master.address, slave.address
            )
            # The existing connection continues.
            await sent(our(namesrv, files), 10)
            await until_async(lambda: states(our(namesrv, files)), has_all)
        # New ones have the new certificates at both ends.
        async with made_slave(tmp_path, namesrv, **settings):
            await sent(our(namesrv, files), 10)
            await until_async(lambda: states(our(namesrv, files)), has_all)


async def test_slave_reconnects_to_a_master_with_a_new_authority(tmp_path: Path, files: Files) -> None:
    async with (
        cluster(tmp_path, files) as (namesrv, master),
        made_slave(tmp_path, namesrv, **master_settings(files)) as slave,
    ):
        await sent(our(namesrv, files), 10)
        await until_async(lambda: states(our(namesrv, files)), has_all)
        certificates.replace(files, write(tmp_path / "next"))
        await asyncio.to_thread(
            certificates.wait_until_shown, files.cert, namesrv, master.address, slave.address
        )
        await master.stop()
        async with made_broker(tmp_path, namesrv, master_settings(files)):
            await sent(our(namesrv, files), 10)
            await until_async(lambda: states(our(namesrv, files)), has_all)


async def test_slave_without_tls_is_refused_with_the_reason(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:

    async def log() -> str:
        return caplog.text

    def is_said(text: str) -> bool:
        both = "the port may require TLS", "not encrypted, and tls.server.mode is enforcing"
        return all(each in text for each in both)

    async with cluster(tmp_path, files) as (namesrv, _), made_slave(tmp_path, namesrv) as slave:
        await sent(our(namesrv, files), 3)
        await until_async(log, is_said)
        async with await Peer.connect(slave.address) as peer:
            assert int((await peer.ask(GetBrokerRuntimeInfo())).table["commitLogMaxOffset"]) == 0
            status = (await peer.ask(GetBrokerHaStatus())).ha_client_runtime_info
            assert not status.is_connected
