"""Compacted topics: messages need keys, and consumers read the newest of each."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crash.killable import Broker
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, UpdateAndCreateTopic
from waiting import until_async
from wire import TIMEOUT_S, Frame, Peer, Refusal

from .conftest import Start
from .popping import TOPIC, ack, messages, pop
from .records import Record, records
from .talk import pull, send
from .test_sends_and_pulls import inner

#: Rounds every 100 to 200 ms.
OFTEN = "compactionScheduleInternal"
MILLISECONDS = "100"
MESSAGE_ILLEGAL = 13
NOT_FOUND, RETRY_IMMEDIATELY = 19, 20


async def create(peer: Peer, topic: str = TOPIC) -> None:
    await peer.ask(
        UpdateAndCreateTopic(
            topic=topic, read_queue_nums=1, write_queue_nums=1, attributes="+cleanup.policy=COMPACTION"
        )
    )


@pytest.fixture
async def address(start: Start) -> str:
    cluster = await start(**{OFTEN: MILLISECONDS}, enablePropertyFilter="true")
    return cluster.broker.address


@pytest.fixture
async def peer(address: str) -> AsyncIterator[Peer]:
    async with await Peer.connect(address) as peer:
        await create(peer)
        yield peer


async def put(peer: Peer, key: str, body: str, tag: str = "a") -> int:
    """Store a message; its offset."""
    answer = await send(peer, TOPIC, body.encode(), i=f"KEYS\x01{key}\x02TAGS\x01{tag}\x02")
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["queueOffset"])


async def read(peer: Peer, offset: int = 0, **changes: str) -> list[Record]:
    """All messages from an offset on, as a consumer pulls them."""
    found: list[Record] = []
    while True:
        answer = await pull(peer, "readers", TOPIC, offset, **changes)
        if answer.code == NOT_FOUND:
            return found
        assert answer.code in (0, RETRY_IMMEDIATELY), answer
        found += records(answer.body)
        following = int((answer.ext or {})["nextBeginOffset"])
        assert following > offset
        offset = following


async def values(peer: Peer, offset: int = 0, **changes: str) -> list[tuple[int, str, str]]:
    found = await read(peer, offset, **changes)
    offsets = [record.queue_offset for record in found]
    assert offsets == sorted(set(offsets))
    return [(record.queue_offset, record.properties["KEYS"], record.body.decode()) for record in found]


async def bounds(peer: Peer) -> tuple[int, int]:
    """The first and the last offset of the ordinary queue."""
    offsets = []
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        answer = await peer.call(code, {"topic": TOPIC, "queueId": "0"})
        offsets.append(int((answer.ext or {})["offset"]))
    return offsets[0], offsets[1]


async def fill(peer: Peer, keys: int, each: int) -> None:
    for number in range(each):
        for key in range(keys):
            await put(peer, f"k{key}", f"{key}-{number}")


async def test_after_a_round_the_newest_of_each_key_and_the_tail_remain(peer: Peer) -> None:
    await fill(peer, 3, 1_000)
    await until_async(lambda: has_left(peer, 3))
    left = await values(peer)
    assert {(key, body) for _, key, body in left} == {(f"k{key}", f"{key}-999") for key in range(3)}
    assert await bounds(peer) == (0, 3_000), "the ordinary queue has every message"
    # A hole, also at the end of what a key had.
    assert await values(peer, 1_000) == left
    await put(peer, "k1", "tail")
    assert (await values(peer))[-1] == (3_000, "k1", "tail")


async def has_left(peer: Peer, count: int) -> bool:
    return len(await read(peer)) == count


async def test_a_restart_keeps_what_is_left(tmp_path: Path) -> None:
    broker = Broker.start(tmp_path, f"{OFTEN}={MILLISECONDS}")
    try:
        async with await Peer.connect(broker.address) as peer:
            await create(peer)
            await fill(peer, 3, 300)
            await until_async(lambda: has_left(peer, 3))
            left = await values(peer)
        broker.stop()
        broker = Broker.start(tmp_path, f"{OFTEN}={MILLISECONDS}")
        async with await Peer.connect(broker.address) as peer:
            assert await values(peer) == left
            await put(peer, "k0", "new")
            assert (await values(peer))[-1] == (900, "k0", "new")
        assert list((tmp_path / "store/compaction/compactionLog" / TOPIC / "0").glob("0*"))
        assert '"jobs_0":' in (tmp_path / "store/compaction/position-checkpoint").read_text()
    finally:
        broker.stop()


@pytest.mark.parametrize("properties", ["", "KEYS\x01 \x02", "TAGS\x01a\x02"])
async def test_a_message_without_a_key_is_refused_with_advice(peer: Peer, properties: str) -> None:
    refused = await send(peer, TOPIC, i=properties)
    assert refused.code == MESSAGE_ILLEGAL
    assert "Required message key is missing" in (refused.remark or "")
    assert "set the property KEYS" in (refused.remark or "")
    assert await bounds(peer) == (0, 0)


async def batch(peer: Peer, *properties: str) -> Frame:
    body = b"".join(inner(b"value", text.encode()) for text in properties)
    return await send(peer, TOPIC, body, m="true")


async def test_a_batch_needs_a_key_for_each_message(peer: Peer) -> None:
    assert (await batch(peer, "KEYS\x01a\x02", "TAGS\x01a\x02")).code == MESSAGE_ILLEGAL
    assert await bounds(peer) == (0, 0)
    assert (await batch(peer, "KEYS\x01a\x02", "KEYS\x01b\x02")).code == 0
    assert [key for _, key, _ in await values(peer)] == ["a", "b"]


async def test_an_empty_body_deletes_a_key_and_is_allowed_only_here(peer: Peer) -> None:
    await put(peer, "k0", "value")
    await put(peer, "k1", "value")
    await put(peer, "k0", "")
    assert len(await values(peer)) == 3, "consumers see the deletion before the next round"
    await until_async(lambda: has_left(peer, 1))
    assert await values(peer) == [(1, "k1", "value")]
    await peer.ask(UpdateAndCreateTopic(topic="ordinary", read_queue_nums=1, write_queue_nums=1))
    assert (await send(peer, "ordinary", b"")).code == MESSAGE_ILLEGAL


async def test_filters_and_limits_apply(peer: Peer) -> None:
    for number in range(40):
        await put(peer, f"k{number}", str(number), "a" if number % 4 else "b")
    assert [offset for offset, _, _ in await values(peer, subscription="b")] == list(range(0, 40, 4))
    sql = await pull(peer, "readers", TOPIC, expressionType="SQL92", subscription="TAGS = 'b'")
    assert [record.queue_offset for record in records(sql.body)] == list(range(0, 40, 4))
    few = await pull(peer, "readers", TOPIC, 3, maxMsgNums="2")
    assert [record.queue_offset for record in records(few.body)] == [3, 4]
    assert few.ext is not None
    assert (few.ext["nextBeginOffset"], few.ext["maxOffset"]) == ("5", "40")
    negative = await pull(peer, "readers", TOPIC, -1, maxMsgNums="1")
    assert [record.queue_offset for record in records(negative.body)] == [0]


async def test_a_waiting_pull_gets_the_next_message(peer: Peer, address: str) -> None:
    await put(peer, "k0", "first")
    async with asyncio.timeout(TIMEOUT_S):
        waits = asyncio.ensure_future(
            pull(peer, "readers", TOPIC, 1, sysFlag="6", suspendTimeoutMillis="15000")
        )
        # No event shows that a pull waits.
        await asyncio.sleep(0.05)
        assert not waits.done()
        async with await Peer.connect(address) as other:
            await put(other, "k0", "second")
        assert [record.body for record in records((await waits).body)] == [b"second"]


async def test_pops_read_the_newest_of_each_key(peer: Peer) -> None:
    await fill(peer, 3, 50)
    await until_async(lambda: has_left(peer, 3))
    popped = messages(await pop(peer))
    assert {message.body for message in popped} == {b"0-49", b"1-49", b"2-49"}
    for message in popped:
        assert (await ack(peer, message)).code == 0
    await put(peer, "k0", "tail")
    assert [message.body for message in messages(await pop(peer))] == [b"tail"]


async def test_a_topic_created_again_begins_empty(peer: Peer) -> None:
    await fill(peer, 3, 10)
    assert await read(peer)
    await peer.ask(DeleteTopicInBroker(topic=TOPIC))
    await create(peer)
    assert await read(peer) == []
    assert await put(peer, "k0", "new") == 0
    assert await values(peer) == [(0, "k0", "new")]


async def test_the_policy_is_set_only_at_creation(peer: Peer) -> None:
    for name, change in (
        ("ordinary", ""),
        ("ordinary", "+cleanup.policy=COMPACTION"),
        (TOPIC, "-cleanup.policy"),
    ):
        ask = UpdateAndCreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, attributes=change)
        if change:
            with pytest.raises(Refusal, match=r"unchangeable attribute, key: cleanup\.policy"):
                await peer.ask(ask)
        else:
            await peer.ask(ask)


async def test_without_compaction_such_a_topic_is_refused(start: Start) -> None:
    cluster = await start(enableCompaction="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        with pytest.raises(Refusal, match="needs enableCompaction=true"):
            await create(peer)
