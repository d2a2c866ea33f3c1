"""Registration of brokers at a name server."""

import json

import pytest

from fakebroker import (
    BrokerMaker,
    Connect,
    FakeBroker,
    StartNameServer,
    members,
    route_names,
    topics,
    until_gone,
)
from golden import golden, golden_frame
from rmqpy.clock import HandClock
from rmqpy.protocol.requests.registration import (
    QueryDataVersion,
    RegisterBroker,
    Registration,
    VersionCompared,
    unpack,
)
from rmqpy.protocol.requests.routes import GetAllTopics, GetRoute
from rmqpy.protocol.topics import DataVersion
from rmqpy.routing import handlers
from wire import Peer


async def test_a_registered_broker_is_in_the_route_of_its_topics(broker: BrokerMaker, peer: Peer) -> None:
    await (await broker()).register()
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [(queue.broker_name, queue.read_queue_nums, queue.perm) for queue in route.queue_datas] == [
        ("broker-a", 4, 6)
    ]
    assert [(group.cluster, group.broker_addrs) for group in route.broker_datas] == [
        ("c1", {0: "10.0.0.1:10911"})
    ]


async def test_the_registration_of_the_original_is_answered_as_the_original_answers(peer: Peer) -> None:
    await peer.raw(golden("103_register_broker")["request"])
    answer, expected = await peer.receive(), golden_frame("103_register_broker", "reply")
    # Apache's server sends an empty `extFields` where we send none: parsers cannot distinguish them.
    assert (answer.code, answer.opaque, answer.remark, answer.ext or {}, answer.body) == (
        0, expected.opaque, None, expected.ext, expected.body,
    )  # fmt: skip
    assert await route_names(peer, "ONE") == ["bx"]


async def test_the_registration_of_a_real_broker_is_taken(peer: Peer) -> None:
    await peer.raw(golden("client_103_rpc_C2S")["request"])
    assert (await peer.receive()).code == 0
    assert await members(peer, "bc", "C3") == {0: "127.0.0.1:47911"}
    assert "SCHEDULE_TOPIC_XXXX" in (await peer.ask(GetAllTopics())).topic_list


async def test_the_unregistration_of_the_original_is_answered_as_the_original_answers(peer: Peer) -> None:
    await peer.raw(golden("104_unregister_broker")["request"])
    answer, expected = await peer.receive(), golden_frame("104_unregister_broker", "reply")
    assert (answer.code, answer.remark, answer.ext, answer.body) == (0, None, expected.ext, expected.body)


async def test_t14_a_body_that_does_not_match_its_checksum_is_refused(
    broker: BrokerMaker, peer: Peer
) -> None:
    a = await broker()
    answer = await a.try_register(body_crc32=12345)
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert await route_names(peer, "orders") is None
    await a.register(body_crc32=0)
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_t31_a_single_topic_before_the_whole_table_is_refused(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker(names=["orders"])
    answer = await a.try_register()
    assert (answer.code, answer.remark) == (1, "register broker failed")
    assert await members(peer) == {}
    a.topics = topics("orders", "payments")
    await a.register()
    a.topics, a.version = topics("refunds"), DataVersion(counter=2, timestamp=1)
    await a.register()
    assert await route_names(peer, "refunds") == ["broker-a"], "later on a single topic adds to the table"
    assert await route_names(peer, "orders") == ["broker-a"]


@pytest.mark.parametrize(
    ("version", "perm"),
    [
        (DataVersion(counter=1, timestamp=1), 6),
        (DataVersion(counter=2, timestamp=1), 4),
        (DataVersion(counter=1, timestamp=2), 4),
        (DataVersion(counter=1, timestamp=1, state_version=1), 4),
    ],
)
async def test_t32_topics_are_taken_over_when_any_part_of_the_version_changed(
    broker: BrokerMaker, peer: Peer, version: DataVersion, perm: int
) -> None:
    a = await broker()
    await a.register()
    a.topics, a.version = topics("orders", "payments", perm=4), version
    await a.register()
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [queue.perm for queue in route.queue_datas] == [perm]


async def test_t32_a_topic_that_is_missing_comes_back_without_a_changed_version(
    broker: BrokerMaker, peer: Peer
) -> None:
    a = await broker()
    await a.register()
    await peer.call(216, {"topic": "orders"})
    assert await route_names(peer, "orders") is None
    await a.register()
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_repeated_table_counts_as_a_heartbeat_and_is_not_parsed(
    broker: BrokerMaker, peer: Peer, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(ask: RegisterBroker, version: int) -> Registration:
        read.append(ask.broker_addr)
        return unpack(ask, version)

    monkeypatch.setattr(handlers, "unpack", counted)
    a = await broker()
    for _ in range(5):
        await a.register()
        clock.advance(100)
    assert (len(read), await route_names(peer, "orders")) == (1, ["broker-a"])
    a.version = DataVersion(counter=2)
    await a.register()
    await a.register(ha_server_addr="10.0.0.7:10912")
    slave = await broker(broker_id=1, address="10.0.0.2:10911")
    assert (await slave.register()).ha_server_addr == "10.0.0.7:10912"
    assert len(read) == 4


async def test_the_next_smallest_slave_brings_its_topics_though_its_table_is_unchanged(
    broker: BrokerMaker, peer: Peer
) -> None:
    first = await broker(broker_id=1, address="10.0.0.2:10911", acting=True)
    second = await broker(["orders", "strange"], broker_id=2, address="10.0.0.3:10911", acting=True)
    await first.register()
    await second.register()
    assert await route_names(peer, "strange") is None
    await first.unregister()
    await second.register()
    assert await route_names(peer, "strange") == ["broker-a"]


async def test_broker_with_an_outdated_state_is_silently_ignored(broker: BrokerMaker, peer: Peer) -> None:
    old = await broker(version=DataVersion(state_version=4))
    await old.register()
    new = await broker(address="10.0.0.2:10911", version=DataVersion(state_version=5))
    await new.register()
    answer = await old.try_register()
    assert (answer.code, answer.ext, answer.body) == (0, None, b"")
    assert await members(peer) == {0: "10.0.0.2:10911"}
    compared = await old.peer.ask(
        QueryDataVersion(
            cluster_name="c1", broker_name="broker-a", broker_addr=old.address, broker_id=0, body=old.version
        )
    )
    assert compared == VersionCompared(changed=True), "nothing is remembered of it"
    old.version = DataVersion(state_version=5)
    await old.register()
    assert await members(peer) == {0: "10.0.0.1:10911"}


async def test_an_address_has_one_id(broker: BrokerMaker, peer: Peer) -> None:
    master = await broker()
    await master.register()
    slave = await broker(broker_id=1, address="10.0.0.2:10911")
    answer = await slave.register()
    assert (answer.master_addr, answer.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")
    await master.unregister()
    slave.broker_id = 0
    answer = await slave.register()
    assert answer.master_addr is None
    assert await members(peer) == {0: "10.0.0.2:10911"}


async def test_topics_are_taken_from_the_master_only(broker: BrokerMaker, peer: Peer) -> None:
    slave = await broker(names=["orders", "strange"], broker_id=1, address="10.0.0.2:10911")
    await slave.register()
    assert await route_names(peer, "strange") is None
    assert await members(peer) == {1: "10.0.0.2:10911"}


async def test_the_smallest_slave_that_may_act_for_its_master_brings_its_topics_for_reading(
    start: StartNameServer, connect: Connect, broker: BrokerMaker
) -> None:
    server = await start(acting_master=True)
    peer = await connect(server)
    slave = await broker(server=server, broker_id=1, address="10.0.0.2:10911", acting=True)
    await slave.register()
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [queue.perm for queue in route.queue_datas] == [4]
    assert [group.broker_addrs for group in route.broker_datas] == [{0: "10.0.0.2:10911"}], "shown as master"
    assert await members(peer) == {1: "10.0.0.2:10911"}
    other = await broker(
        ["orders", "strange"], server=server, broker_id=2, address="10.0.0.3:10911", acting=True
    )
    await other.register()
    assert await route_names(peer, "strange") is None, "not the smallest"
    await other.unregister()
    master = await broker(server=server, acting=True)
    await master.register()
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [queue.perm for queue in route.queue_datas] == [6]
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    await master.unregister()
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [queue.perm for queue in route.queue_datas] == [4]


async def test_version_query_reports_changes_and_counts_as_a_heartbeat(
    broker: BrokerMaker, peer: Peer, clock: HandClock
) -> None:
    a = await broker()

    async def compare(version: DataVersion) -> VersionCompared:
        return await a.peer.ask(
            QueryDataVersion(
                cluster_name="c1", broker_name="broker-a", broker_addr=a.address, broker_id=0, body=version
            )
        )

    assert await compare(a.version) == VersionCompared(changed=True)
    await a.register()
    assert await compare(a.version) == VersionCompared(changed=False, body=a.version)
    assert await compare(DataVersion(counter=9)) == VersionCompared(changed=True, body=a.version)
    for _ in range(3):
        clock.advance(100)
        await compare(a.version)
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_registration_removes_topics_if_configured(
    start: StartNameServer, connect: Connect, broker: BrokerMaker
) -> None:
    server = await start(deletes_missing_topics=True)
    peer = await connect(server)
    a = await broker(server=server)
    await a.register()
    a.topics = topics("orders", "refunds")
    await a.register()
    assert await route_names(peer, "payments") is None
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_static_topic_mappings_travel_with_the_route(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    mapping = {"bname": "broker-a", "currIdMap": {"0": 1}, "topic": "orders", "totalQueues": 4}
    tree = {
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1},
            "topicConfigTable": {"orders": {"perm": 6}, "payments": {"perm": 6}},
            "topicQueueMappingInfoMap": {"orders": mapping},
        }
    }
    await a.register(body=json.dumps(tree).encode(), body_crc32=0)
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert (await peer.ask(GetRoute(topic="payments"))).body.topic_queue_mapping_by_broker is None
    # The topic was deleted and created again as an ordinary one.
    await a.register()
    assert (await peer.ask(GetRoute(topic="orders"))).body.topic_queue_mapping_by_broker is None


async def test_name_servers_do_not_know_each_other(
    start: StartNameServer, connect: Connect, broker: BrokerMaker
) -> None:
    first, second = await start(), await start()
    a = await broker(server=first)
    await a.register()
    assert await route_names(await connect(first), "orders") == ["broker-a"]
    assert await route_names(await connect(second), "orders") is None
    also = FakeBroker(await connect(second), topics=a.topics)
    await also.register()
    await a.peer.close()
    await until_gone(await connect(first), "orders")
    assert await route_names(await connect(second), "orders") == ["broker-a"]
