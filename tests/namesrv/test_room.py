"""Bounds of a name server: brokers and topics up to them are accepted, and refused beyond."""

import json

import pytest

from fakebroker import BrokerMaker, Connect, StartNameServer, members, route_names, topics
from rmqpy.clock import HandClock
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.routes import QueueData, RegisterTopic, TopicRoute
from rmqpy.protocol.topics import DataVersion
from rmqpy.routing import routes, topic_queues
from wire import Peer


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "are refused" in record.message]


async def test_brokers_are_bounded(
    broker: BrokerMaker, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routes, "BROKERS_MAX", 2)
    made = [await broker(name=f"broker-{number}", address=f"10.0.0.{number}:10911") for number in range(3)]
    for one in made[:2]:
        await one.register()
    for _ in range(2):
        answer = await made[2].try_register()
        assert (answer.code, answer.remark) == (1, "this name server has 2 brokers, which is the limit")
    assert refusals(caplog) == [
        "brokers and topics are refused: this name server has 2 brokers, which is the limit"
    ]
    assert await members(peer, "broker-2") == {}
    await made[0].register()
    await made[0].unregister()
    await made[2].register()
    assert await route_names(peer, "orders") == ["broker-1", "broker-2"]


async def test_topics_are_bounded_and_existing_ones_are_kept(
    broker: BrokerMaker,
    peer: Peer,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(topic_queues, "TABLE_BYTES_MAX", 10_000)
    a, b = await broker(), await broker(name="broker-b", address="10.0.0.2:10911")
    await a.register()
    a.topics |= topics(*(f"topic-{number}" for number in range(40)))
    a.version = DataVersion(counter=2)
    for _ in range(3):
        clock.advance(100)
        answer = await a.try_register()
        assert answer.code == 1
        assert "the limit is" in (answer.remark or "")
    assert len(refusals(caplog)) == 1
    assert await route_names(peer, "orders") == ["broker-a"]
    assert await route_names(peer, "topic-1") is None
    await b.register()
    assert await route_names(peer, "orders") == ["broker-a", "broker-b"]
    a.topics = topics("orders", "payments", *(f"topic-{number}" for number in range(10)))
    await a.register()
    assert await route_names(peer, "topic-1") == ["broker-a"]


async def test_unregistration_frees_room(
    start: StartNameServer, connect: Connect, broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_queues, "TABLE_BYTES_MAX", 2_000)
    server = await start(deletes_missing_topics=True)
    peer = await connect(server)
    for number in range(20):
        a = await broker(["orders", f"t{number}", f"u{number}"], server=server)
        await a.register()
        await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": f"t{number}"})
        a.topics = topics("orders", "payments")
        a.version = DataVersion(counter=number + 9)
        await a.register()
        if number % 2:
            await a.unregister()
    assert (await a.try_register(body_crc32=0)).code == 0


async def test_static_mappings_and_single_topics_are_bounded(
    broker: BrokerMaker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_queues, "TABLE_BYTES_MAX", 10_000)
    a = await broker()
    tree = {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {"orders": {"perm": 6}, "payments": {"perm": 6}},
            "topicQueueMappingInfoMap": {
                "orders": {"currIdMap": {str(number): 1 for number in range(1_000)}}
            },
        }
    }
    answer = await a.try_register(body=json.dumps(tree).encode(), body_crc32=0)
    assert answer.code == 1
    assert await members(peer) == {}
    await a.register()
    body = TopicRoute(queue_datas=[QueueData(broker_name="broker-a", perm=6)])
    codes = []
    for number in range(50):
        ask = RegisterTopic(topic=f"single-{number}", body=body)
        sent = encode(ask)
        codes.append((await peer.call(ask.code, sent.ext, sent.body or b"")).code)
    assert set(codes) == {0, 1}
    assert codes == sorted(codes)


async def test_names_and_addresses_are_bounded(broker: BrokerMaker) -> None:
    for field in ("name", "cluster", "address", "zone"):
        a = await broker(**{field: "x" * 1_025})
        answer = await a.try_register()
        assert (answer.code, answer.remark) == (29, "a name or address has more than 1024 characters")
