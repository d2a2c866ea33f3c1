"""Brokers come, stay and go: what a name server believes of them."""

import asyncio
import json
import struct
import zlib

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, StartNameServer, topics
from golden import golden, golden_frame
from rmqpy.clock import HandClock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    Registration,
    VersionCompared,
    unpack,
)
from rmqpy.protocol.requests.routes import GetAllTopics, GetBrokerMembers, GetClusterInfo, GetRoute
from rmqpy.protocol.topics import DataVersion, TopicTable
from rmqpy.routing import handlers
from rmqpy.routing.configuration import Configuration
from rmqpy.routing.departures import Departures
from rmqpy.routing.routes import Address, Leaver, Newcomer, Routes
from wire import BINARY, Frame, Peer, Refusal


async def route_names(peer: Peer, topic: str) -> list[str] | None:
    """Names of the brokers a topic is at, `None` where the name server knows no route."""
    try:
        found = await peer.ask(GetRoute(topic=topic))
    except Refusal as refusal:
        return None if refusal.code == 17 else pytest.fail(str(refusal))
    return [queue.broker_name for queue in found.body.queue_datas]


async def members(peer: Peer, name: str = "broker-a", cluster: str = "c1") -> dict[int, str]:
    found = await peer.ask(GetBrokerMembers(cluster_name=cluster, broker_name=name))
    return found.broker_member_group.broker_addrs


async def until_gone(peer: Peer, topic: str) -> None:
    """Wait until a topic has no route any more."""
    async with asyncio.timeout(10):
        while await route_names(peer, topic) is not None:
            pass


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
    # The original sends an empty `extFields` where we send none: readers cannot tell them apart.
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


async def test_a_table_that_was_sent_before_is_a_sign_of_life_and_not_read_again(
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


async def test_a_broker_whose_state_is_older_than_the_holders_is_silently_left_out(
    broker: BrokerMaker, peer: Peer
) -> None:
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
    welcome = await slave.register()
    assert (welcome.master_addr, welcome.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")
    await master.unregister()
    slave.broker_id = 0
    welcome = await slave.register()
    assert welcome.master_addr is None
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


async def test_a_broker_that_unregisters_takes_its_topics_along(broker: BrokerMaker, peer: Peer) -> None:
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


async def test_brokers_that_leave_together_are_taken_out_in_one_pass(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goodbyes and ends of connections of one turn of the loop cost one look at the topics."""
    routes = Routes(clock, Configuration(NameServerConfig()))
    departures, passes = Departures(routes), []

    def counted(leavers: list[Leaver]) -> None:
        passes.append(len(leavers))
        unregister(leavers)

    unregister = routes.unregister
    monkeypatch.setattr(routes, "unregister", counted)
    for number in range(50):
        newcomer = Newcomer("c1", f"broker-{number}", 0, f"10.0.0.{number}:10911", "", number)
        routes.register(newcomer, TopicTable(topic_config_table=topics("orders", f"only-{number}")))
    for number in range(1, 50):
        if number % 2:
            departures.disconnected(number)
        else:
            departures.unregistered(Leaver(Address("c1", f"10.0.0.{number}:10911"), f"broker-{number}"))
    assert passes == [], "not one by one"
    await asyncio.sleep(0)
    assert passes == [49]
    assert set(routes.topics()) == {"orders", "only-0"}
    assert list(routes.cluster_info().broker_addr_table) == ["broker-0"]


async def test_a_broker_that_says_goodbye_and_comes_back_at_once_stays(
    broker: BrokerMaker, peer: Peer
) -> None:
    a = await broker()
    await a.register()
    sent = encode(a.registration())
    goodbye = Frame(
        104,
        opaque=1,
        ext={"clusterName": "c1", "brokerName": a.name, "brokerAddr": a.address, "brokerId": "0"},
    )
    hello = Frame(103, opaque=2, ext=sent.ext, body=sent.body or b"")
    await a.peer.raw(goodbye.pack() + hello.pack())
    assert [(await a.peer.receive()).code for _ in range(2)] == [0, 0]
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_a_slave_that_unregisters_leaves_the_topics(broker: BrokerMaker, peer: Peer) -> None:
    await (await broker()).register()
    slave = await broker(broker_id=1, address="10.0.0.2:10911")
    await slave.register()
    await slave.unregister()
    assert await members(peer) == {0: "10.0.0.1:10911"}
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_t40_a_closed_connection_removes_the_broker_at_once(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await a.register()
    assert await route_names(peer, "orders") == ["broker-a"]
    await a.peer.close()
    await until_gone(peer, "orders")
    assert await members(peer) == {}


async def test_an_old_connection_of_a_broker_that_came_back_means_nothing(
    broker: BrokerMaker, connect: Connect, server: NameServer, peer: Peer
) -> None:
    a, marker = await broker(), await broker(names=["m1", "m2"], name="marker", address="10.0.0.9:10911")
    await a.register()
    again = FakeBroker(await connect(server), topics=a.topics)
    await again.register()
    await marker.register()
    await a.peer.close()
    # Connections are reported closed in order: once the marker is gone, the first one has been dealt with.
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


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(None, 120), (10_000, 10), (0, 120), (-5, 120)])
def test_a_broker_is_believed_in_for_exactly_its_timeout(
    clock: HandClock, timeout_ms: int | None, seconds: float
) -> None:
    routes = Routes(clock, Configuration(NameServerConfig()))
    newcomer = Newcomer("c1", "broker-a", 0, "10.0.0.1:10911", "", 7, timeout_ms=timeout_ms)
    routes.register(newcomer, TopicTable())
    clock.advance(seconds)
    assert routes.expire() == []
    clock.advance(0.001)
    assert routes.expire() == [7]
    assert routes.expire() == []


async def test_asking_for_the_version_tells_whether_to_register_and_is_a_sign_of_life(
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


async def test_a_registration_may_remove_topics_where_the_setting_says_so(
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


# ---- other forms of the body ----


def compressed(*lines: str, version: str = '{"counter":1,"stateVersion":0,"timestamp":1}') -> bytes:
    def part(text: str) -> bytes:
        return struct.pack(">i", len(text.encode())) + text.encode()

    return zlib.compress(
        part(version)
        + struct.pack(">i", len(lines))
        + b"".join(map(part, lines))
        + part("[]")
        + struct.pack(">i", 0)
    )


async def test_a_compressed_body_is_read(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    body = compressed('orders 4 2 6 SINGLE_TAG {"message.type":"NORMAL"}', "payments 1 1 4 MULTI_TAG {}")
    await a.register(compressed=True, body=body, body_crc32=0)
    (queue,) = (await peer.ask(GetRoute(topic="orders"))).body.queue_datas
    assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (4, 2, 6)


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        compressed("orders 4 2 6 SINGLE_TAG {}")[:-8],
        compressed("orders four 2 6 SINGLE_TAG {}", "payments 1 1 4 MULTI_TAG {}"),
        compressed("orders 4 2 6 NO_TAG {}", "payments 1 1 4 MULTI_TAG {}"),
        compressed("orders 4"),
        zlib.compress(struct.pack(">i", 2_000_000_000) + b"{}"),
        zlib.compress(struct.pack(">i", -1) + b"{}"),
        zlib.compress(bytes(65 << 20)),
    ],
    ids=[
        "no zlib",
        "cut off",
        "no number",
        "no filter type",
        "too short",
        "huge length",
        "negative length",
        "bomb",
    ],
)
async def test_a_malformed_compressed_body_is_refused(broker: BrokerMaker, peer: Peer, body: bytes) -> None:
    a = await broker()
    answer = await a.try_register(compressed=True, body=body, body_crc32=0)
    assert answer.code == 1
    assert "malformed" in (answer.remark or "")
    await a.register()


async def test_a_broker_of_the_earliest_releases_sends_the_topic_table_alone(
    broker: BrokerMaker, peer: Peer
) -> None:
    a = await broker()
    body = b'{"dataVersion":{"counter":1},"topicConfigTable":{"orders":{"perm":6},"payments":{"perm":6}}}'
    frame = await a.peer.call(
        103,
        {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "brokerId": "0", "clusterName": "c1",
         "haServerAddr": "10.0.0.1:10912"},
        body,
        version=36,
    )  # fmt: skip
    assert frame.code == 0
    assert await route_names(peer, "orders") == ["broker-a"]


async def test_a_registration_with_a_binary_header_is_answered_with_one(
    connect: Connect, server: NameServer, peer: Peer
) -> None:
    a = FakeBroker(await connect(server, encoding=BINARY), topics=topics("orders", "payments"))
    answer: Frame = await a.try_register()
    assert (answer.code, answer.encoding) == (0, BINARY)
    assert await route_names(peer, "orders") == ["broker-a"]


@pytest.mark.parametrize(
    ("missing", "remark"),
    [
        ("brokerName", "the custom field <brokerName> is null"),
        ("brokerId", "the custom field <brokerId> is null"),
    ],
)
async def test_a_registration_without_a_required_field_is_refused(
    peer: Peer, missing: str, remark: str
) -> None:
    ext = {
        "brokerName": "b",
        "brokerAddr": "1.2.3.4:1",
        "brokerId": "0",
        "clusterName": "c",
        "haServerAddr": "",
    }
    del ext[missing]
    answer = await peer.call(103, ext, b"{}")
    assert (answer.code, answer.remark) == (1, remark)


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
