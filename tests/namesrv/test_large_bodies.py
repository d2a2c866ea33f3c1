"""Large bodies: only their sender waits for them."""

import asyncio
import zlib
from struct import pack

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, members, route_names
from held_reading import reading_held
from rmqpy.namesrv import NameServer
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import TOPICS_MAX, UnregisterBroker
from rmqpy.protocol.requests.routes import GetAllTopics
from rmqpy.remoting import pending_requests
from wire import Peer


def in_dialect(topics: int) -> bytes:
    """A table of topics that only Java's parser accepts: single quotes and bare names. 100 bytes per topic."""
    table = ",".join(
        f"'topic-{number:08}':{{topicName:'topic-{number:08}',perm:6,readQueueNums:4,writeQueueNums:4,}}"
        for number in range(topics)
    )
    return (
        f"{{topicConfigSerializeWrapper:{{dataVersion:{{counter:1}},topicConfigTable:{{{table}}}}}}}".encode()
    )


def compressed(topics: int) -> bytes:
    """The same compressed, with the smallest possible topics."""

    def part(text: str) -> bytes:
        return pack(">i", len(text)) + text.encode()

    lines = b"".join(part(f"{number:x} 1 1 6 SINGLE_TAG") for number in range(topics))
    return zlib.compress(part("{}") + pack(">i", topics) + lines + part("[]") + pack(">i", 0))


async def send_registration(broker: FakeBroker, body: bytes, **changes: object) -> int:
    """Send it and do not wait; the opaque."""
    ask = broker.registration(body=body, body_crc32=0, **changes)
    ext, _ = encode(ask)
    return await broker.peer.send(ask.code, ext, body)


@pytest.mark.parametrize("form", ["dialect", "compressed"])
async def test_others_are_answered_while_a_brokers_table_is_parsed(
    broker: BrokerMaker, peer: Peer, form: str
) -> None:
    a, b = await broker(), await broker(name="broker-b", address="10.0.0.2:10911")
    body = in_dialect(20_000) if form == "dialect" else compressed(80_000)
    with reading_held():
        await send_registration(a, body, compressed=form == "compressed")
        answer = asyncio.ensure_future(a.peer.receive())
        for _ in range(20):
            await b.register()
            assert await route_names(peer, "orders") == ["broker-b"]
        assert not answer.done()
    assert (await answer).code == 0
    assert len((await peer.ask(GetAllTopics())).topic_list) > 20_000


async def test_broker_that_unregisters_behind_its_table_is_removed(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    await send_registration(a, in_dialect(2_000))
    ask = UnregisterBroker(cluster_name="c1", broker_name="broker-a", broker_addr=a.address, broker_id=0)
    ext, _ = encode(ask)
    opaque = await a.peer.send(ask.code, ext)
    assert [(await a.peer.receive()).code for _ in range(2)] == [0, 0]
    assert opaque == 1
    assert await members(peer) == {}


async def test_broker_whose_connection_ends_behind_its_table_is_removed(
    broker: BrokerMaker, peer: Peer
) -> None:
    a, b = await broker(), await broker(name="broker-b", address="10.0.0.2:10911")
    await send_registration(a, in_dialect(5_000))
    await a.peer.close()
    # It is parsed after the previous one, and by then the end of that connection was reported.
    await b.register(body=in_dialect(5_001), body_crc32=0)
    async with asyncio.timeout(30):
        while await members(peer):
            pass
    assert await route_names(peer, "topic-00000007") == ["broker-b"]


async def test_broker_is_limited_to_a_hundred_thousand_topics(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    answer = await a.try_register(body=compressed(TOPICS_MAX + 1), body_crc32=0, compressed=True)
    assert (answer.code, answer.remark) == (29, "the broker has 100001 topics, more than 100000")
    body = b'{"topicConfigSerializeWrapper":{"x":[' + b"[]," * 1_300_000 + b"[]]}}"
    answer = await a.try_register(body=body, body_crc32=0)
    assert answer.code == 29
    assert "values" in (answer.remark or "")


async def test_body_size_is_limited_per_request(peer: Peer) -> None:
    ext = {"clusterName": "c1", "brokerName": "b", "brokerAddr": "a", "brokerId": "0"}
    answer = await peer.call(322, ext, b" " * ((1 << 20) + 1))
    remark = "the body of QUERY_DATA_VERSION has 1048577 bytes; at most 1048576 are allowed"
    assert (answer.code, answer.remark) == (29, remark)
    assert (await peer.call(322, ext, b" " * 900_000 + b"{}")).code == 0


async def test_requests_in_flight_are_limited_per_connection(
    server: NameServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "REQUESTS_PER_CONNECTION_MAX", 4)
    flood, other = await connect(server), await connect(server)
    put = {"namespace": "n", "key": "k", "value": "v"}
    for _ in range(100):
        await flood.send(100, put)
    assert (await other.call(100, put)).code == 0
    answers = [await flood.receive() for _ in range(100)]
    assert {answer.code for answer in answers} == {0, 2}
    assert all((answer.remark or "").startswith("[OVERLOAD]") for answer in answers if answer.code == 2)
    assert (await flood.call(100, put)).code == 0


async def test_bytes_in_flight_are_limited_per_connection(
    server: NameServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "BYTES_PER_CONNECTION_MAX", 100_000)
    flood = await connect(server)
    put = {"namespace": "n", "key": "k", "value": "v" * 60_000}
    for _ in range(20):
        await flood.send(100, put)
    answers = [await flood.receive() for _ in range(20)]
    assert {answer.code for answer in answers} == {0, 2}
    assert (await flood.call(100, put | {"value": "v" * 200_000})).code == 0, "one is always taken"
