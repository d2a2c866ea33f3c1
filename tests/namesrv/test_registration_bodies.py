"""Registrations in other forms: compressed, of early releases, with binary headers, malformed."""

import struct
import zlib
from collections.abc import Sequence

import pytest

from fakebroker import BrokerMaker, Connect, FakeBroker, route_names, topics
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.routes import GetRoute
from wire import BINARY, Frame, Peer


def compressed(
    *lines: str,
    version: str = '{"counter":1,"stateVersion":0,"timestamp":1}',
    mappings: Sequence[str] = (),
) -> bytes:
    def part(text: str) -> bytes:
        return struct.pack(">i", len(text.encode())) + text.encode()

    return zlib.compress(
        part(version)
        + struct.pack(">i", len(lines))
        + b"".join(map(part, lines))
        + part("[]")
        + struct.pack(">i", len(mappings))
        + b"".join(map(part, mappings))
    )


async def test_a_compressed_body_is_read(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    body = compressed('orders 4 2 6 SINGLE_TAG {"message.type":"NORMAL"}', "payments 1 1 4 MULTI_TAG {}")
    await a.register(compressed=True, body=body, body_crc32=0)
    (queue,) = (await peer.ask(GetRoute(topic="orders"))).body.queue_datas
    assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (4, 2, 6)


async def test_mappings_of_a_compressed_body_are_read(broker: BrokerMaker, peer: Peer) -> None:
    a = await broker()
    mapping = '{"bname":"broker-a","currIdMap":{0:1},"epoch":7,"topic":"orders","totalQueues":4}'
    lines = ("orders 4 4 6 SINGLE_TAG {}", "payments 1 1 6 SINGLE_TAG {}")
    await a.register(compressed=True, body=compressed(*lines, mappings=[mapping]), body_crc32=0)
    found = (await peer.ask(GetRoute(topic="orders"))).body.topic_queue_mapping_by_broker
    expected = {"bname": "broker-a", "currIdMap": {"0": 1}, "epoch": 7, "topic": "orders", "totalQueues": 4}
    assert found == {"broker-a": expected}


@pytest.mark.parametrize("size", [(128 << 10) - 1, 128 << 10, (128 << 10) + 1, 1_000_000])
async def test_a_compressed_body_of_any_size_is_read_whole(
    broker: BrokerMaker, peer: Peer, size: int
) -> None:
    def line(name: str, spaces: int = 0) -> str:
        return f"{name} 4 2 6 SINGLE_TAG {{{' ' * spaces}}}"

    def unfolded(*lines: str) -> int:
        return len(zlib.decompress(compressed(*lines)))

    a = await broker()
    each = unfolded(line("topic-00000")) - unfolded()
    lines = [line(f"topic-{number:05}") for number in range((size - unfolded()) // each - 1)]
    lines.append(line("the-last-one", size - unfolded(*lines, line("the-last-one"))))
    assert unfolded(*lines) == size
    await a.register(compressed=True, body=compressed(*lines), body_crc32=0)
    for name in ("topic-00000", "the-last-one"):
        (queue,) = (await peer.ask(GetRoute(topic=name))).body.queue_datas
        assert queue.read_queue_nums == 4


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
        compressed("orders 4 2 6 SINGLE_TAG " + "[" * 100_000, "payments 1 1 4 MULTI_TAG {}"),
        compressed("orders 4 2 6 SINGLE_TAG [1]", "payments 1 1 4 MULTI_TAG {}"),
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
        "deep attributes",
        "attributes that are a list",
    ],
)
async def test_a_malformed_compressed_body_is_refused(broker: BrokerMaker, peer: Peer, body: bytes) -> None:
    a = await broker()
    answer = await a.try_register(compressed=True, body=body, body_crc32=0)
    assert answer.code == 1
    assert "malformed" in (answer.remark or "")
    await a.register()


@pytest.mark.parametrize("number", ["-1", "2147483648", "9" * 4_000])
async def test_a_route_has_no_number_that_a_client_cannot_read(
    broker: BrokerMaker, peer: Peer, number: str
) -> None:
    a = await broker()
    body = compressed(f"orders {number} 2 6 SINGLE_TAG {{}}", "payments 1 1 4 MULTI_TAG {}")
    answer = await a.try_register(compressed=True, body=body, body_crc32=0)
    assert answer.code == 29
    assert (await peer.call(105, {"topic": "payments"})).code == 17, "nothing of it was taken"


async def test_a_compressed_body_unfolds_to_a_hundred_times_its_size_at_most(broker: BrokerMaker) -> None:
    a = await broker()
    # Valid except for its unpacked size: 8 MiB in 8 KiB.
    body = compressed("orders 4 2 6 SINGLE_TAG {" + " " * (8 << 20) + "}", "payments 1 1 4 MULTI_TAG {}")
    answer = await a.try_register(compressed=True, body=body, body_crc32=0)
    assert answer.code == 1
    assert "truncated or too large" in (answer.remark or "")


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
