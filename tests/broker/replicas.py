"""A master and its slave, with real sockets between them and a name server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.conftest import made_broker
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from rmqpy.protocol.requests.topics import GetAllTopicConfig
from rmqpy.server import written
from rmqpy.testing import SMALL
from wire import Peer, Refusal

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


async def topics(peer: Peer) -> set[str]:
    return set((await peer.ask(GetAllTopicConfig())).body.topic_config_table)


async def offset(peer: Peer) -> int | None:
    """The committed offset of the group in the first queue of the topic."""
    try:
        ask = QueryConsumerOffset(
            consumer_group="billing", topic="orders", queue_id=0, set_zero_if_not_found=False
        )
        return (await peer.ask(ask)).offset
    except Refusal:
        return None


def commit(where: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=where)


async def log_end(peer: Peer) -> int:
    return int((await peer.ask(GetBrokerRuntimeInfo())).table["commitLogMaxOffset"])
