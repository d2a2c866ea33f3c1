"""A controller on a free port, and connections of brokers to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fakereplica import Replica, StartController
from rmqpy.config.controller import ControllerConfig
from rmqpy.controller import ControllerServer
from wire import Peer


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def start(stack: AsyncExitStack, tmp_path: Path) -> StartController:
    """Start a controller with some settings; it stops with the test."""

    async def start(**settings: Any) -> ControllerServer:
        fields: dict[str, Any] = {
            "listen_port": 0,
            "controller_path": str(tmp_path / "controller"),
            "store_path": str(tmp_path / "controller.properties"),
        }
        return await stack.enter_async_context(ControllerServer(ControllerConfig(**fields | settings)))

    return start


@pytest.fixture
async def controller(start: StartController) -> ControllerServer:
    return await start()


@pytest.fixture
async def replica(stack: AsyncExitStack) -> Callable[..., Awaitable[Replica]]:
    """Connect a replica that has applied for its id and sent a heartbeat."""

    async def replica(controller: ControllerServer, broker_id: int, *, oneway: bool = False) -> Replica:
        made = Replica(await stack.enter_async_context(await Peer.connect(controller.address)), broker_id)
        await made.apply()
        await (made.beat_oneway() if oneway else made.beat())
        return made

    return replica
