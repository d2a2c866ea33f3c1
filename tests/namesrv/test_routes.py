"""Answers to clients and tools: routes, clusters, lists of topics."""

import json
from typing import Any

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, StartNameServer, topics
from golden import golden, golden_frame
from rmqpy.clock import HandClock
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.kv import PutKv, UpdateNameServerConfig
from rmqpy.protocol.requests.routes import (
    AddWritePermission,
    DeleteTopic,
    GetAllTopics,
    GetBrokerMembers,
    GetRoute,
    GetSystemTopics,
    GetTopicsByCluster,
    GetUnitSubscribedCommonTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    QueueData,
    RegisterTopic,
    TopicRoute,
    WipeWritePermission,
)
from rmqpy.protocol.topics import DataVersion
from rmqpy.protocol.unserved import UNSERVED_BY_NAME_SERVER
from wire import BINARY, Frame, Peer, Refusal, loose


@pytest.fixture
async def captured(start: StartNameServer, connect: Connect) -> Peer:
    """A name server with the tables of the captured one."""
    server = await start(order_topics_to_clients=True)
    table = topics("PT", queues=2) | topics("ADM2", queues=8)
    ba = FakeBroker(await connect(server), name="ba", cluster="C1", address="127.0.0.1:48911", topics=table)
    await ba.register()
    await ba.peer.ask(PutKv(namespace="ORDER_TOPIC_CONFIG", key="ADM2", value="ba:8"))
    return await connect(server)


@pytest.mark.parametrize(
    "name",
    [
        "105_route_v0",
        "105_route_v317",
        "105_route_v317_std",
        "105_route_v400",
        "105_route_v401",
        "105_route_v513",
        "105_route_not_found",
        "105_route_order_conf",
        "106_cluster_info",
        "901_member_group",
    ],
)
async def test_t2_t3_an_answer_has_the_bytes_of_the_original(captured: Peer, name: str) -> None:
    await captured.raw(golden(name)["request"])
    answer, expected = await captured.receive(), golden_frame(name, "reply")
    assert answer.body == expected.body
    assert (answer.code, answer.opaque, answer.flag, answer.version) == (
        expected.code, expected.opaque, 1, expected.version,
    )  # fmt: skip
    if answer.code:
        assert answer.remark == expected.remark


@pytest.mark.parametrize("encoding", [0, BINARY])
@pytest.mark.parametrize(
    ("version", "strict", "is_strict"),
    [
        (400, None, False), (401, None, True), (513, None, True), (513, "false", True), (317, "true", True),
        (0, None, False), (0, "false", False),
    ],
)  # fmt: skip
async def test_t2_old_clients_get_bare_keys_and_new_ones_strict_json(
    captured: Peer, version: int, strict: str | None, is_strict: bool, encoding: int
) -> None:
    ext = {"topic": "PT"} | ({"acceptStandardJsonOnly": strict} if strict else {})
    body = (await captured.call(105, ext, version=version, encoding=encoding)).body
    assert (b'{"0":"' in body, b'{0:"' in body) == (is_strict, not is_strict)


async def test_t2_go_needs_addresses_and_queues_without_blanks(captured: Peer) -> None:
    body = (await captured.call(105, {"topic": "PT"}, version=317)).body
    assert b'"brokerAddrs":{0:"127.0.0.1:48911"}' in body
    assert b'"queueDatas":[{' in body


async def test_t1_t24_every_answer_carries_a_real_version_and_a_language_java_knows(captured: Peer) -> None:
    for code in (105, 106, 9999, 205):
        answer = await captured.call(code, {"topic": "PT"})
        assert (answer.version, answer.language) == (513, "OTHER")


async def test_names_that_are_not_ascii_travel_as_utf8(captured: Peer, connect: Connect) -> None:
    await captured.ask(PutKv(namespace="ORDER_TOPIC_CONFIG", key="PT", value="größe:</4>"))
    body = (await captured.call(105, {"topic": "PT"})).body
    assert '"orderTopicConf":"größe:</4>"'.encode() in body


async def test_order_topics_are_shown_to_clients_only_if_configured(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await peer.ask(PutKv(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4"))
    registered = await a.register()
    assert registered.body is not None
    assert registered.body.table == {"orders": "broker-a:4"}
    assert (await peer.ask(GetRoute(topic="orders"))).body.order_topic_conf is None


async def test_order_topics_are_hidden_from_brokers_if_configured(
    start: StartNameServer, connect: Connect, broker: BrokerMaker
) -> None:
    server = await start(order_topics_to_brokers=False)
    a = await broker(server=server)
    await (await connect(server)).ask(PutKv(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4"))
    assert (await a.register()).body is None


async def test_routes_are_refused_until_brokers_had_time_to_register(
    start: StartNameServer, connect: Connect, clock: HandClock, broker: BrokerMaker
) -> None:
    server = await start(waits_for_brokers=True, wait_seconds=45)
    peer = await connect(server)
    await (await broker(server=server)).register()
    frame = await peer.call(105, {"topic": "orders"})
    assert (frame.code, frame.remark) == (1, "name server not ready")
    clock.advance(45)
    assert (await peer.call(105, {"topic": "orders"})).code == 0


async def test_waiting_for_brokers_can_be_switched_on_and_off_while_it_runs(
    start: StartNameServer, connect: Connect, broker: BrokerMaker
) -> None:
    server = await start()
    peer = await connect(server)
    await (await broker(server=server)).register()
    for settings, code in (
        ("needWaitForService=true\n", 1),
        ("waitSecondsForService=0\n", 0),
        ("waitSecondsForService=45\n", 1),
        ("needWaitForService=false\n", 0),
    ):
        await peer.ask(UpdateNameServerConfig(body=settings))
        assert (await peer.call(105, {"topic": "orders"})).code == code, settings


async def test_a_zone_sees_its_own_brokers_and_groups_without_master(broker: BrokerMaker, peer: Peer) -> None:
    for name, zone, broker_id in (("a", "z1", 0), ("b", "z2", 0), ("c", "z2", 1)):
        address = f"10.0.0.{ord(name)}:10911"
        member = await broker(name=name, zone=zone, broker_id=broker_id, address=address, acting=True)
        await member.register()

    async def seen(**fields: Any) -> set[str]:
        route = (await peer.ask(GetRoute(topic="orders", **fields))).body
        assert {queue.broker_name for queue in route.queue_datas} == {
            group.broker_name for group in route.broker_datas
        }
        return {group.broker_name for group in route.broker_datas}

    assert await seen() == {"a", "b", "c"}
    assert await seen(zone_mode=True, zone_name="z1") == {"a", "c"}
    assert await seen(zone_name="z1") == {"a", "b", "c"}


async def test_t3_cluster_info_has_bare_keys_for_every_client(broker: BrokerMaker, peer: Peer) -> None:
    await (await broker()).register()
    await (await broker(broker_id=1, address="10.0.0.2:10911")).register()
    body = (await peer.call(106, version=513)).body
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in body
    assert loose(body)["clusterAddrTable"] == {"c1": ["broker-a"]}


async def test_members_of_an_unknown_group_are_an_empty_map(peer: Peer) -> None:
    found = await peer.ask(GetBrokerMembers(cluster_name="c1", broker_name="absent"))
    assert found.broker_member_group.broker_addrs == {}


# ---- topics ----


async def test_lists_of_topics(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker(names=["plain"])
    a.topics |= topics("unit", flags=1) | topics("subscribed", flags=2) | topics("both", flags=3)
    await a.register()
    b = await broker(names=["plain", "other"], name="broker-b", cluster="c2", address="10.0.0.2:10911")
    await b.register()

    async def listed(ask: Any) -> set[str]:
        return set((await peer.ask(ask)).topic_list)

    assert await listed(GetAllTopics()) == {"plain", "unit", "subscribed", "both", "other"}
    assert await listed(GetTopicsByCluster(cluster="c2")) == {"plain", "other"}
    assert await listed(GetTopicsByCluster(cluster="c3")) == set()
    assert await listed(GetUnitTopics()) == {"unit", "both"}
    assert await listed(GetUnitSubscribedTopics()) == {"subscribed", "both"}
    assert await listed(GetUnitSubscribedCommonTopics()) == {"subscribed"}
    assert await listed(GetSystemTopics()) == {"c1", "broker-a", "c2", "broker-b"}
    assert (await peer.ask(GetSystemTopics())).broker_addr == "10.0.0.1:10911"


async def test_list_of_all_topics_is_current(broker: BrokerMaker, peer: Peer) -> None:
    async def listed() -> set[str]:
        return set((await peer.ask(GetAllTopics())).topic_list)

    a = await broker()
    b = await broker(names=["refunds", "returns"], name="broker-b", address="10.0.0.2:10911")
    assert await listed() == set()
    await a.register()
    assert await listed() == await listed() == {"orders", "payments"}
    await b.register()
    assert await listed() == {"orders", "payments", "refunds", "returns"}
    await peer.ask(DeleteTopic(topic="returns"))
    assert await listed() == {"orders", "payments", "refunds"}
    await a.unregister()
    assert await listed() == {"refunds"}
    await peer.ask(UpdateNameServerConfig(body="enableAllTopicList=false"))
    with pytest.raises(Refusal, match="disable"):
        await listed()


async def test_lists_can_be_switched_off(start: StartNameServer, connect: Connect) -> None:
    peer = await connect(await start(lists_all_topics=False, lists_topics=False))
    for code in (206, 224, 311, 312, 313):
        frame = await peer.call(code, {"cluster": "c1"})
        assert (frame.code, frame.remark) == (1, "disable")


async def test_a_topic_is_deleted_everywhere_or_in_one_cluster(broker: BrokerMaker, peer: Peer) -> None:
    await (await broker()).register()
    await (await broker(name="broker-b", cluster="c2", address="10.0.0.2:10911")).register()
    await peer.ask(DeleteTopic(topic="orders", cluster_name="c1"))
    route = (await peer.ask(GetRoute(topic="orders"))).body
    assert [queue.broker_name for queue in route.queue_datas] == ["broker-b"]
    await peer.ask(DeleteTopic(topic="orders", cluster_name="c2"))
    await peer.ask(DeleteTopic(topic="payments"))
    await peer.ask(DeleteTopic(topic="never there"))
    assert (await peer.ask(GetAllTopics())).topic_list == []


async def test_queues_of_one_topic_are_added_at_brokers_that_are_registered(
    broker: BrokerMaker, peer: Peer
) -> None:
    await (await broker()).register()
    queues = [
        QueueData(broker_name=name, read_queue_nums=3, perm=6) for name in ("broker-a", "absent", "broker-a")
    ]
    await peer.ask(RegisterTopic(topic="fresh", body=TopicRoute(queue_datas=queues)))
    route = (await peer.ask(GetRoute(topic="fresh"))).body
    assert [(queue.broker_name, queue.read_queue_nums) for queue in route.queue_datas] == [("broker-a", 3)]


async def test_write_permission_is_wiped_until_the_next_changed_table(
    broker: BrokerMaker, peer: Peer
) -> None:
    a = await broker()
    await a.register()

    async def permission() -> list[int]:
        return [queue.perm for queue in (await peer.ask(GetRoute(topic="orders"))).body.queue_datas]

    assert (await peer.ask(WipeWritePermission(broker_name="broker-a"))).wipe_topic_count == 2
    assert await permission() == [4]
    await a.register()
    assert await permission() == [4], "an unchanged table does not restore it"
    a.version = DataVersion(counter=2, timestamp=1)
    await a.register()
    assert await permission() == [6]


async def test_adding_write_permission_opens_read_only_topics_too(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    a.topics = topics("orders", "payments", perm=4)
    await a.register()
    assert (await peer.ask(AddWritePermission(broker_name="broker-a"))).add_topic_count == 2
    assert (await peer.ask(GetRoute(topic="orders"))).body.queue_datas[0].perm == 6
    assert (await peer.ask(AddWritePermission(broker_name="absent"))).add_topic_count == 0


# ---- invalid requests ----


async def test_a_route_without_a_topic_is_refused(peer: Peer) -> None:
    frame = await peer.call(105, {})
    assert (frame.code, frame.remark) == (1, "the custom field <topic> is null")


@pytest.mark.parametrize("code", [10, 34, 105_000, 0, -1])
async def test_foreign_request_code_is_refused(peer: Peer, code: int) -> None:
    frame = await peer.call(code, {"topic": "t"})
    assert frame.code == 3
    assert (frame.remark or "").startswith(f" request type {code} not supported")


async def test_every_code_is_served_or_refused_by_its_name(peer: Peer) -> None:
    served = {
        100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327,
        901, 904,
    }  # fmt: skip
    for code in RequestCode:
        frame = await peer.call(code)
        assert (frame.code != 3) == (code in served), code.name
        if frame.code == 3:
            expected = f" request type {code} not supported: {code.name} is not served by this name server"
            expected += f", as {UNSERVED_BY_NAME_SERVER[code]}"
            assert frame.remark == expected


async def test_t8_a_oneway_request_is_never_answered(peer: Peer) -> None:
    for code in (105, 106, 9999):
        await peer.send(code, {}, flag=2)
    opaque = await peer.send(106)
    assert (await peer.receive()).opaque == opaque


async def test_t9_many_requests_in_flight_are_matched_by_their_number(captured: Peer) -> None:
    opaques = [await captured.send(105, {"topic": "PT"}, opaque=number) for number in range(-300, 300)]
    answers: list[Frame] = [await captured.receive() for _ in opaques]
    assert {answer.opaque for answer in answers} == set(opaques)
    assert {json.loads(answer.body)["queueDatas"][0]["writeQueueNums"] for answer in answers} == {2}


async def test_malformed_body_is_refused_and_the_connection_continues(server: NameServer, peer: Peer) -> None:
    for body in (b"\xff", b"[1,2", b"{" * 1000, b'{"queueDatas":7}', b""):
        with pytest.raises(Refusal) as refusal:
            await refused(peer, body)
        assert refusal.value.code in (1, 29)
    assert (await peer.call(106)).code == 0


async def refused(peer: Peer, body: bytes) -> None:
    frame = await peer.call(217, {"topic": "t"}, body)
    if frame.code:
        raise Refusal(frame)
