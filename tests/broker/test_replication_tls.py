"""Replication through TLS: a slave follows a master that enforces it, and one without TLS is refused and told why."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import certificates
import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, until
from certificates import Files, write
from rmqpy.admin.replicas import ReplicaState
from rmqpy.broker import Broker
from rmqpy.config import namesrv as namesrv_config
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Of all servers."""
    return write(tmp_path / "tls")


@asynccontextmanager
async def cluster(folder: Path, files: Files) -> AsyncIterator[tuple[str, Broker]]:
    """A name server that takes both kinds of connections, and a master that does not."""
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
            await until(lambda: states(our(namesrv, files)), has_all)
            # By another authority: who trusts the one before alone gets no further.
            certificates.replace(files, write(tmp_path / "next"))
            await asyncio.to_thread(
                certificates.wait_until_shown, files.cert, namesrv, master.address, slave.address
            )
            # The connection that was there goes on.
            await sent(our(namesrv, files), 10)
            await until(lambda: states(our(namesrv, files)), has_all)
        # New ones have the new certificates at both ends.
        async with made_slave(tmp_path, namesrv, **settings):
            await sent(our(namesrv, files), 10)
            await until(lambda: states(our(namesrv, files)), has_all)


async def test_a_running_slave_connects_to_a_master_that_comes_back_with_another_authority_s_certificate(
    tmp_path: Path, files: Files
) -> None:
    async with (
        cluster(tmp_path, files) as (namesrv, master),
        made_slave(tmp_path, namesrv, **master_settings(files)) as slave,
    ):
        await sent(our(namesrv, files), 10)
        await until(lambda: states(our(namesrv, files)), has_all)
        certificates.replace(files, write(tmp_path / "next"))
        await asyncio.to_thread(
            certificates.wait_until_shown, files.cert, namesrv, master.address, slave.address
        )
        await master.stop()
        async with made_broker(tmp_path, namesrv, master_settings(files)):
            await sent(our(namesrv, files), 10)
            await until(lambda: states(our(namesrv, files)), has_all)


async def test_a_slave_without_tls_is_refused_and_says_why(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:

    async def log() -> str:
        return caplog.text

    def is_said(text: str) -> bool:
        both = "may be a port that wants TLS", "not encrypted, and tls.server.mode is enforcing"
        return all(each in text for each in both)

    async with cluster(tmp_path, files) as (namesrv, _), made_slave(tmp_path, namesrv) as slave:
        await sent(our(namesrv, files), 3)
        await until(log, is_said)
        async with await Peer.connect(slave.address) as peer:
            assert int((await peer.ask(GetBrokerRuntimeInfo())).table["commitLogMaxOffset"]) == 0
            status = (await peer.ask(GetBrokerHaStatus())).ha_client_runtime_info
            assert not status.is_connected
