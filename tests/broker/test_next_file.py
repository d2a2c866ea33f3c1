"""Sends while the log has no next file: they wait as data without blocking others, and keep their order.

A directory in its place prevents the creation of the next file.
"""

import asyncio
from pathlib import Path

import pytest

from broker.conftest import Cluster, Start
from broker.talk import pull, send
from rmqpy.protocol.codes import RequestCode
from wire import Frame, Peer

FILE_BYTES = 1 << 20
#: Three fit into a file.
LARGE = b"x" * 300_000
#: Of parked frames of all connections.
PARKED_BYTES_MAX = 64 << 20
PARKED_SENDS_MAX = 4_096
PARKED_SENDS_OF_ONE_MAX = 512
BUSY = "[PC_SYNCHRONIZED]"
TOPIC = "orders"


@pytest.fixture
async def cluster(start: Start) -> Cluster:
    """A broker with one I/O thread, a nearly full log, and no way to create the next file."""
    cluster = await start(mappedFileSizeCommitLog=str(FILE_BYTES))
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, TOPIC)).code == 0
        in_the_way(cluster).mkdir()
        for _ in range(3):
            assert (await send(peer, TOPIC, LARGE)).code == 0
    return cluster


def in_the_way(cluster: Cluster) -> Path:
    return cluster.folder / "rmqpy" / "segment"


def header(queue: int = 0) -> dict[str, str]:
    return {
        "a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "0", "h": "0",
        "m": "false",
    }  # fmt: skip


async def answers(peer: Peer, count: int) -> dict[int, Frame]:
    return {frame.opaque: frame for frame in [await peer.receive() for _ in range(count)]}


def is_busy(answer: Frame) -> bool:
    return answer.code == 2 and (answer.remark or "").startswith(BUSY)


async def test_send_waiting_for_the_next_file_blocks_no_other_connection(
    cluster: Cluster,
) -> None:
    address = cluster.broker.address
    async with await Peer.connect(address) as first, await Peer.connect(address) as other:
        for turn in range(2):
            waiting = asyncio.create_task(first.call(310, header(), LARGE))
            for _ in range(20):
                assert (await send(other, TOPIC)).code == 0, "what fits is stored"
                assert (await pull(other, "g", TOPIC)).code == 0
            assert not waiting.done(), f"turn {turn}: the others waited with it"
            if turn == 0:
                answer = await waiting
                assert is_busy(answer), answer
        waiting.cancel()


async def test_sends_of_a_connection_that_waited_are_stored_in_their_order(cluster: Cluster) -> None:
    address = cluster.broker.address
    async with await Peer.connect(address) as peer, await Peer.connect(address) as other:
        bodies = [LARGE, b"1", b"2", LARGE + b"3", b"4"]
        sent = [await peer.send(310, header(queue=1), body) for body in bodies]
        # By now the broker has read them.
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "1"})).ext == {
            "offset": "0"
        }
        assert (await send(other, TOPIC)).code == 0
        in_the_way(cluster).rmdir()
        found = await answers(peer, len(sent))
        offsets = [(found[opaque].code, (found[opaque].ext or {}).get("queueOffset")) for opaque in sent]
        assert offsets == [(0, str(number)) for number in range(len(bodies))]


async def test_batches_and_returned_messages_wait_likewise(cluster: Cluster) -> None:
    address = cluster.broker.address
    inner = len(LARGE) + 22
    batch = (
        b"".join(part.to_bytes(4, "big") for part in (inner, 0, 0, 0, len(LARGE)))
        + LARGE
        + (0).to_bytes(2, "big")
    )
    async with await Peer.connect(address) as peer:
        found = await pull(peer, "group", TOPIC, 1)
        assert found.code == 0
        at = int.from_bytes(found.body[28:36], "big")
        batched = await peer.send(320, header(queue=1), batch)
        back = await peer.send(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": str(at), "group": "group", "delayLevel": "1", "originTopic": TOPIC},
        )
        # By now the broker has read them.
        assert (await pull(peer, "group", TOPIC)).code == 0
        in_the_way(cluster).rmdir()
        found_answers = await answers(peer, 2)
        assert (found_answers[batched].code, found_answers[back].code) == (0, 0), found_answers


async def test_waiting_sends_are_bounded_and_excess_is_refused_immediately(cluster: Cluster) -> None:
    body = b"y" * 900_000
    beyond = 3
    async with await Peer.connect(cluster.broker.address) as peer:
        sent = [
            await peer.send(310, header(queue=1), body) for _ in range(PARKED_BYTES_MAX // len(body) + beyond)
        ]
        refused = await answers(peer, beyond)
        assert all(map(is_busy, refused.values())), refused
        in_the_way(cluster).rmdir()
        stored = await answers(peer, len(sent) - beyond)
        assert {answer.code for answer in stored.values()} == {0}
        assert list(refused) == sent[-beyond:]


async def test_waiting_sends_of_one_connection_leave_room_for_others(cluster: Cluster) -> None:
    address = cluster.broker.address
    async with await Peer.connect(address) as flood, await Peer.connect(address) as other:
        sent = [
            await flood.send(310, header(queue=1), body) for body in (LARGE, *[b"small"] * PARKED_SENDS_MAX)
        ]
        refused = await answers(flood, len(sent) - PARKED_SENDS_OF_ONE_MAX)
        assert all(map(is_busy, refused.values())), refused
        waiting = asyncio.create_task(other.call(310, header(), LARGE))
        in_the_way(cluster).rmdir()
        assert (await waiting).code == 0
        assert {answer.code for answer in (await answers(flood, PARKED_SENDS_OF_ONE_MAX)).values()} == {0}
