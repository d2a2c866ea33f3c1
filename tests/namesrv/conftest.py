"""A name server on a free port, with a clock that tests advance."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, StartNameServer, topics
from rmqpy.clock import HandClock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from wire import Peer


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def start(stack: AsyncExitStack, clock: HandClock, tmp_path: Path) -> StartNameServer:
    """Start a name server with some settings; it stops with the test."""

    async def start(**settings: Any) -> NameServer:
        fields: dict[str, Any] = {
            "listen_port": 0,
            "scan_interval_ms": 10,
            "kv_path": str(tmp_path / "kvConfig.json"),
            "store_path": str(tmp_path / "namesrv.properties"),
        }
        return await stack.enter_async_context(NameServer(NameServerConfig(**fields | settings), clock=clock))

    return start


@pytest.fixture
async def server(start: StartNameServer) -> NameServer:
    return await start()


@pytest.fixture
async def connect(stack: AsyncExitStack) -> Connect:
    """Open a connection to a name server; it closes with the test."""

    async def connect(server: NameServer, **options: Any) -> Peer:
        return await stack.enter_async_context(await Peer.connect(server.address, **options))

    return connect


@pytest.fixture
async def peer(connect: Connect, server: NameServer) -> Peer:
    return await connect(server)


@pytest.fixture
async def broker(connect: Connect, server: NameServer) -> BrokerMaker:
    """A broker on a separate connection, with two topics unless others are given."""

    async def broker(names: Sequence[str] = ("orders", "payments"), **fields: Any) -> FakeBroker:
        on = await connect(fields.pop("server", server))
        return FakeBroker(on, **{"topics": topics(*names)} | fields)

    return broker
