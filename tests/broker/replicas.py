"""A master and its slave, with real sockets between them and a name server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.conftest import made_broker
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.server import written
from rmqpy.testing import SMALL
from wire import TIMEOUT_S

T = TypeVar("T")


def made_slave(folder: Path, namesrv: str, **settings: str) -> Broker:
    """A slave of `broker-a` in a folder, not started."""
    return _made(folder, namesrv, {"brokerRole": "SLAVE", "brokerId": "1", **settings})


def made_promoted(folder: Path, namesrv: str) -> Broker:
    """A master in the folder of the slave."""
    return _made(folder, namesrv, {})


def _made(folder: Path, namesrv: str, settings: dict[str, str]) -> Broker:
    given = {
        "brokerName": "broker-a",
        "brokerClusterName": "c1",
        "namesrvAddr": namesrv,
        "listenPort": "0",
        "storePathRootDir": str(folder / "slave"),
        **written(SMALL),
        **settings,
    }
    return Broker(broker_config.read(given).config)


@asynccontextmanager
async def pair(folder: Path, namesrv: str, **settings: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master that was there before its slave."""
    async with (
        made_broker(folder, namesrv, {}) as master,
        made_slave(folder, namesrv, **settings) as slave,
    ):
        yield master, slave


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """The answer, once it is as wanted."""
    async with asyncio.timeout(TIMEOUT_S):
        while not wanted(answer := await ask()):  # noqa: ASYNC110 - it is in another process, or as good as
            await asyncio.sleep(0.01)
    return answer
