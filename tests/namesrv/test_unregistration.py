"""Brokers that leave a name server: on request, with their connection, or without heartbeats."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakebroker import (
    BrokerMaker,
    Connect,
    FakeBroker,
    members,
    route_names,
    topics,
    until_gone,
)
from rmqpy.clock import HandClock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import (
    BrokerHeartbeat,
)
from rmqpy.protocol.requests.routes import GetAllTopics, GetClusterInfo
from rmqpy.protocol.topics import TopicConfig, TopicTable
from rmqpy.remoting.configuration import Configuration
from rmqpy.routing.brokers import BrokerInfo, BrokerKey
from rmqpy.routing.routes import Routes
from rmqpy.routing.topic_queues import TABLE_BYTES_MAX, BrokerTopics, TopicQueues
from rmqpy.routing.unregistration import BatchUnregistration
from wire import Frame, Peer


async def test_unregistration_removes_the_brokers_topics(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    b = await broker(names=["orders", "refunds"], name="broker-b", cluster="c2", address="10.0.0.2:10911")
    await a.register()
    await b.register()
    await a.unregister()
    assert await route_names(peer, "orders") == ["broker-b"]
    assert await route_names(peer, "payments") is None
    info = await peer.ask(GetClusterInfo())
    assert info.cluster_addr_table == {"c2": ["broker-b"]}
    assert (await peer.ask(GetAllTopics())).topic_list == ["orders", "refunds"]


async def test_brokers_leaving_together_are_removed_in_one_pass(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unregistrations and ends of connections of one turn of the loop cost one look at the topics."""
    routes = Routes(clock, Configuration(NameServerConfig()))
    leaving, passes = BatchUnregistration(routes), []

    def counted(brokers: list[BrokerKey], stopped: set[BrokerKey]) -> None:
        passes.append(len(brokers))
        unregister(brokers, stopped)

    unregister = routes.unregister
    monkeypatch.setattr(routes, "unregister", counted)
    for number in range(50):
        broker = BrokerInfo("c1", f"broker-{number}", 0, f"10.0.0.{number}:10911", "", number)
        routes.register(broker, TopicTable(topic_config_table=topics("orders", f"only-{number}")))
    for number in range(1, 50):
        if number % 2:
            leaving.disconnected(number)
        else:
            leaving.unregistered(BrokerKey("c1", f"broker-{number}", f"10.0.0.{number}:10911"))
    assert passes == [], "not one by one"
    await asyncio.sleep(0)
    assert passes == [49]
    assert set(routes.queues.topics()) == {"orders", "only-0"}
    assert list(routes.cluster_info().broker_addr_table) == ["broker-0"]


async def test_broker_that_returns_immediately_stays(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await a.register()
    sent = encode(a.registration())
    unregistration = Frame(
        104,
        opaque=1,
        ext={"clusterName": "c1", "brokerName": a.name, "brokerAddr": a.address, "brokerId": "0"},
    )
    registration = Frame(103, opaque=2, ext=sent.ext, body=sent.body or b"")
    await a.peer.raw(unregistration.pack() + registration.pack())
    assert [(await a.peer.receive()).code for _ in range(2)] == [0, 0]
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_unregistration_of_a_slave_keeps_the_topics(broker: BrokerMaker, peer: Peer) -> None:
    await (await broker()).register()
    slave = await broker(broker_id=1, address="10.0.0.2:10911")
    await slave.register()
    await slave.unregister()
    assert await members(peer) == {0: "10.0.0.1:10911"}
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_t40_closed_connection_removes_the_broker_immediately(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await a.register()
    assert await route_names(peer, "orders") == ["broker-a"]
    await a.peer.close()
    await until_gone(peer, "orders")
    assert await members(peer) == {}


async def test_old_connection_of_a_returned_broker_is_ignored(
    broker: BrokerMaker, connect: Connect, server: NameServer, peer: Peer
) -> None:
    a, marker = await broker(), await broker(names=["m1", "m2"], name="marker", address="10.0.0.9:10911")
    await a.register()
    again = FakeBroker(await connect(server), topics=a.topics)
    await again.register()
    await marker.register()
    await a.peer.close()
    # Connections are reported closed in order: once the marker is gone, the first one was processed.
    await marker.peer.close()
    await until_gone(peer, "m1")
    assert await route_names(peer, "orders") == ["broker-a"]


@pytest.mark.parametrize(("timeout_ms", "silence"), [(None, 120), (10_000, 10)])
async def test_a_silent_broker_expires(
    broker: BrokerMaker, peer: Peer, clock: HandClock, timeout_ms: int | None, silence: float
) -> None:
    a = await broker(timeout_ms=timeout_ms)
    b = await broker(name="broker-b", address="10.0.0.2:10911", timeout_ms=timeout_ms)
    await a.register()
    await b.register()
    clock.advance(silence)
    await b.peer.ask(BrokerHeartbeat(cluster_name="c1", broker_name="broker-b", broker_addr=b.address))
    assert sorted(await route_names(peer, "orders") or []) == ["broker-a", "broker-b"]
    clock.advance(0.001)
    assert await a.peer.is_closed_by_server()
    assert await route_names(peer, "orders") == ["broker-b"]


@pytest.mark.parametrize(
    ("timeout_ms", "seconds"), [(None, 120), (10_000, 10), (0, 120), (-5, 120), (1 << 62, 3_600)]
)
def test_a_broker_is_kept_for_exactly_its_timeout(
    clock: HandClock, timeout_ms: int | None, seconds: float
) -> None:
    routes = Routes(clock, Configuration(NameServerConfig()))
    broker = BrokerInfo("c1", "broker-a", 0, "10.0.0.1:10911", "", 7, timeout_ms=timeout_ms)
    routes.register(broker, TopicTable())
    clock.advance(seconds)
    assert routes.expire() == []
    clock.advance(0.001)
    assert routes.expire() == [7]
    assert routes.expire() == []


NAMES = st.sets(st.sampled_from("abcdefgh"), max_size=8)


@given(tables=st.dictionaries(st.integers(0, 5), st.tuples(NAMES, NAMES), min_size=1), data=st.data())
def test_leaving_together_equals_leaving_one_by_one(
    tables: dict[int, tuple[set[str], set[str]]], data: st.DataObject
) -> None:
    together, one_by_one = TopicQueues(), TopicQueues()
    for number, (names, static) in tables.items():
        table = TopicTable(
            topic_config_table={name: TopicConfig(topic_name=name) for name in names},
            topic_queue_mapping_info_map={name: {"epoch": number} for name in static},
        )
        registered = BrokerTopics.read(f"broker-{number}", table)
        for queues in (together, one_by_one):
            queues.put(registered.queues)
            queues.put_mappings(f"broker-{number}", registered)
    leaving = data.draw(st.lists(st.sampled_from([f"broker-{number}" for number in tables]), unique=True))
    rest = {f"broker-{number}" for number in tables}.difference(leaving)
    together.sweep(leaving, [])
    for broker in leaving:
        one_by_one.sweep([broker], [])
    for topic in "abcdefgh":
        assert together.of(topic) == one_by_one.of(topic)
        assert together.of(topic).keys() <= rest
        assert together.mapping(topic) == one_by_one.mapping(topic)
    for queues in (together, one_by_one):
        queues.sweep(rest, [])
        assert queues.topics() == []
        # Nothing is counted any more, so there is room up to the bounds.
        queues.check_room(BrokerTopics({}, {}, {"large": TABLE_BYTES_MAX}))
