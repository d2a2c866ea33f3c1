"""Brokers that may act for their master are told when the smallest id of their group changes, where that is wanted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, StartNameServer, topics
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.kv import UpdateNameServerConfig
from wire import PATIENCE, Frame, Peer

NOTIFY = 905


class Told:
    """A broker's port: what name servers say there."""

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
        frame = await asyncio.wait_for(self.heard.get(), PATIENCE)
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
async def ports() -> AsyncIterator[list[Told]]:
    async with AsyncExitStack() as stack:
        made = [Told() for _ in range(3)]
        for told in made:
            stack.push_async_callback(told.stop)
        yield made


async def members(
    server: NameServer, broker: BrokerMaker, ports: list[Told], **fields: Any
) -> list[FakeBroker]:
    """Master and two slaves of one group, registered, slaves first."""
    made = [
        await broker(server=server, broker_id=known, address=await told.start(), **{"acting": True} | fields)
        for known, told in enumerate(ports)
    ]
    for each in made[1:]:
        await each.register()
    return made


async def test_members_hear_who_left_and_who_came(
    start: StartNameServer, broker: BrokerMaker, ports: list[Told]
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
    assert [await told.next() for told in ports[1:]] == [came, came], "the newcomer is not told of itself"
    await master.peer.close()
    left = {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "minBrokerAddr": first.address,
        "offlineBrokerAddr": master.address,
    }
    assert [await told.next() for told in ports[1:]] == [left, left]
    await first.unregister()
    last = await ports[2].next()
    assert (last["minBrokerId"], last["offlineBrokerAddr"]) == ("2", first.address)
    await second.unregister()
    assert all(told.heard.empty() for told in ports)


async def test_nobody_is_told_unless_it_is_wanted_and_a_slave_may_act(
    start: StartNameServer, connect: Connect, broker: BrokerMaker, ports: list[Told]
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
    # What is told comes in order: the first thing heard is of a group whose members may act.
    for each in (first, second):
        each.name, each.acting, each.topics = "broker-b", True, topics("orders", "payments")
        await each.register()
    await first.unregister()
    assert (await ports[2].next())["brokerName"] == "broker-b"
