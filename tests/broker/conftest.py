"""A name server and a broker on free ports, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqpy.broker import Broker
from rmqpy.clock import Clock
from rmqpy.config import broker as broker_config
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.server import written
from rmqpy.testing import SMALL
from wire import TIMEOUT_S


class Cluster(NamedTuple):
    """The servers of a test."""

    namesrv: str
    broker: Broker
    folder: Path


async def samples(cluster: Cluster, name: str) -> list[str]:
    """The lines of a metric of a broker that has an `httpPort`."""
    host, _, port = (cluster.broker.http_address or "").rpartition(":")

    def get() -> str:
        connection = HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        connection.request("GET", "/metrics")
        with connection.getresponse() as response:
            return response.read().decode()

    return [line for line in (await asyncio.to_thread(get)).splitlines() if line.startswith(name)]


Start = Callable[..., Awaitable[Cluster]]


def made_broker(folder: Path, namesrv: str, settings: dict[str, str], clock: Clock | None = None) -> Broker:
    """A broker in a folder, not started."""
    given = {
        "brokerName": "broker-a",
        "brokerClusterName": "c1",
        "namesrvAddr": namesrv,
        "listenPort": "0",
        "storePathRootDir": str(folder / "store"),
        **written(SMALL),
        **settings,
    }
    return Broker(broker_config.read(given).config, clock=clock)


@pytest.fixture
def tries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between retries of brokers and name servers."""
    monkeypatch.setattr("rmqpy.control.replicas.follower.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("rmqpy.control.registration.RETRY_SECONDS_MIN", 0.05)
    monkeypatch.setattr("rmqpy.control.replicas.succession.NOTIFY_SECONDS", 0.05)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start clusters whose broker has these settings, and stop them after the test."""
    async with AsyncExitStack() as running:

        async def started(**settings: str) -> Cluster:
            server = await running.enter_async_context(
                NameServer(NameServerConfig(listen_port=0, kv_path="", store_path=""))
            )
            broker = await running.enter_async_context(made_broker(tmp_path, server.address, settings))
            return Cluster(server.address, broker, tmp_path / "store")

        yield started


@pytest.fixture
async def cluster(start: Start) -> Cluster:
    """One of each with the defaults."""
    return await start()
