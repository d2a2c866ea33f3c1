"""Notifications to brokers that may act for their master: the smallest id of their group has changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, StartNameServer, topics
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.kv import UpdateNameServerConfig
from wire import TIMEOUT_S, Frame, Peer

NOTIFY = 905


class NotifiedBroker:
    """A port of a broker, and the notifications that arrive there."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Frame] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def next(self) -> dict[str, str]:
        frame = await asyncio.wait_for(self.heard.get(), TIMEOUT_S)
        assert (frame.code, frame.flag & 2) == (NOTIFY, 2), "one-way"
        return frame.ext or {}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            while True:
                self.heard.put_nowait(await peer.receive())
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            writer.close()


@pytest.fixture
async def ports() -> AsyncIterator[list[NotifiedBroker]]:
    async with AsyncExitStack() as stack:
        made = [NotifiedBroker() for _ in range(3)]
        for broker_port in made:
            stack.push_async_callback(broker_port.stop)
        yield made


async def members(
    server: NameServer, broker: BrokerMaker, ports: list[NotifiedBroker], **fields: Any
) -> list[FakeBroker]:
    """Master and two slaves of one group, registered, slaves first."""
    made = [
        await broker(
            server=server, broker_id=known, address=await broker_port.start(), **{"acting": True} | fields
        )
        for known, broker_port in enumerate(ports)
    ]
    for each in made[1:]:
        await each.register()
    return made


async def test_members_are_notified_of_joining_and_leaving_brokers(
    start: StartNameServer, broker: BrokerMaker, ports: list[NotifiedBroker]
) -> None:
    server = await start(tells_smallest=True)
    master, first, second = await members(server, broker, ports)
    await master.register()
    came = {
        "minBrokerId": "0",
        "brokerName": "broker-a",
        "minBrokerAddr": master.address,
        "haBrokerAddr": master.address.replace("10911", "10912"),
    }
    assert [await broker_port.next() for broker_port in ports[1:]] == [came, came], (
        "a broker is not told of itself"
    )
    await master.peer.close()
    left = {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "minBrokerAddr": first.address,
        "offlineBrokerAddr": master.address,
    }
    assert [await broker_port.next() for broker_port in ports[1:]] == [left, left]
    await first.unregister()
    last = await ports[2].next()
    assert (last["minBrokerId"], last["offlineBrokerAddr"]) == ("2", first.address)
    await second.unregister()
    assert all(broker_port.heard.empty() for broker_port in ports)


async def test_brokers_are_notified_only_if_enabled_and_slaves_may_act(
    start: StartNameServer, connect: Connect, broker: BrokerMaker, ports: list[NotifiedBroker]
) -> None:
    server = await start()
    master, first, second = await members(server, broker, ports)
    await master.register()
    await master.unregister()
    for each in (first, second):
        await each.unregister()
    await (await connect(server)).ask(UpdateNameServerConfig(body="notifyMinBrokerIdChanged=true\n"))
    for each in (first, second):
        each.acting = False
        await each.register()
    await first.unregister()
    # Notifications arrive in order: the first one is of a group whose members may act.
    for each in (first, second):
        each.name, each.acting, each.topics = "broker-b", True, topics("orders", "payments")
        await each.register()
    await first.unregister()
    assert (await ports[2].next())["brokerName"] == "broker-b"
