"""Names of brokers: a name and id belong to one broker at a time."""

import asyncio

import pytest

from fakebroker import BrokerMaker, members, route_names
from rmqpy.clock import HandClock
from rmqpy.protocol.requests.registration import UnregisterBroker
from rmqpy.protocol.requests.routes import GetClusterInfo
from wire import TIMEOUT_S, Peer


async def test_renamed_broker_is_listed_once(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await a.register()
    a.name = "broker-b"
    await a.register()
    assert await route_names(peer, "orders") == ["broker-b"]
    info = await peer.ask(GetClusterInfo())
    assert list(info.broker_addr_table) == ["broker-b"]
    # The unregistration of the former name arrives late.
    await a.peer.ask(
        UnregisterBroker(cluster_name="c1", broker_name="broker-a", broker_addr=a.address, broker_id=0)
    )
    await a.register()
    assert await route_names(peer, "orders") == ["broker-b"]
    await a.unregister()
    assert await route_names(peer, "orders") is None


async def test_renamed_broker_is_listed_once_after_its_old_connection_ended(
    broker: BrokerMaker, peer: Peer, clock: HandClock
) -> None:
    for way_to_end in ("closed", "silent"):
        a, b = await broker(), await broker(name="broker-b")
        await a.register()
        await b.register()
        assert await route_names(peer, "orders") == ["broker-a", "broker-b"], "as far as can be known, two"
        if way_to_end == "closed":
            await a.peer.close()
        else:
            clock.advance(100)
            await b.register()
            clock.advance(100)
        async with asyncio.timeout(TIMEOUT_S):
            while await route_names(peer, "orders") != ["broker-b"]:
                pass
        await b.unregister()


async def test_broker_with_its_former_name_again_is_listed_once(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    for name in ("broker-a", "broker-b", "broker-a"):
        a.name = name
        await a.register()
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_duplicate_brokers_are_logged_once_per_change(
    broker: BrokerMaker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [record.message for record in caplog.records if "take each other's place" in record.message]

    a, b = await broker(), await broker(address="10.0.0.2:10911")
    slave = await broker(broker_id=1, address="10.0.0.3:10911")
    for one in (a, slave, b, a, b, a):
        await one.register()
    (line,) = told()
    assert "10.0.0.1:10911 and 10.0.0.2:10911" in line
    found = await peer.ask(GetClusterInfo())
    assert found.duplicate_broker_addrs == {"broker-a": ["10.0.0.1:10911", "10.0.0.2:10911"]}
    assert await members(peer) == {0: "10.0.0.1:10911", 1: "10.0.0.3:10911"}
    await b.unregister()
    assert (await peer.ask(GetClusterInfo())).duplicate_broker_addrs is None
    await b.register()
    assert len(told()) == 2


async def test_moved_broker_is_not_a_duplicate(
    broker: BrokerMaker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    a = await broker()
    await a.register()
    await a.unregister()
    b = await broker(address="10.0.0.2:10911")
    await b.register()
    assert "take each other's place" not in caplog.text
    assert await members(peer) == {0: "10.0.0.2:10911"}
