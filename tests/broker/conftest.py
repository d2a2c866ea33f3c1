"""A name server and a broker on free ports, over real sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.server import written
from rmqpy.testing import SMALL


class Cluster(NamedTuple):
    """The servers of a test."""

    namesrv: str
    broker: Broker
    folder: Path


Start = Callable[..., Awaitable[Cluster]]


def made_broker(folder: Path, namesrv: str, settings: dict[str, str]) -> Broker:
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
    return Broker(broker_config.read(given).config)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts clusters whose broker has these settings; stops them after the test."""
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
