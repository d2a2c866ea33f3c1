"""A master and its slave, with real sockets between them and a name server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from broker.conftest import made_broker
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config.replication import SLAVE, ReplicationConfig
from rmqpy.server import written
from rmqpy.testing import SMALL
from wire import TIMEOUT_S

T = TypeVar("T")


def made_slave(folder: Path, namesrv: str, **replication: Any) -> Broker:
    """A slave of `broker-a` in a folder, not started."""
    given = {
        "brokerName": "broker-a",
        "brokerClusterName": "c1",
        "namesrvAddr": namesrv,
        "listenPort": "0",
        "storePathRootDir": str(folder / "slave"),
        **written(SMALL),
    }
    config = broker_config.read(given).config
    return Broker(
        dataclasses.replace(
            config, replication=ReplicationConfig(role=SLAVE, **{"broker_id": 1, **replication})
        )
    )


@asynccontextmanager
async def pair(folder: Path, namesrv: str, **replication: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master that was there before its slave."""
    async with (
        made_broker(folder, namesrv, {}) as master,
        made_slave(folder, namesrv, **replication) as slave,
    ):
        yield master, slave


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """The answer, once it is as wanted."""
    async with asyncio.timeout(TIMEOUT_S):
        while not wanted(answer := await ask()):  # noqa: ASYNC110 - it is in another process, or as good as
            await asyncio.sleep(0.01)
    return answer
