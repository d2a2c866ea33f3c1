"""POP: messages are delivered one by one, hidden for a time, and redelivered unless they are acknowledged."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmqpy.protocol.codes import RequestCode
from wire import Frame, Peer

from .conftest import Start, made_broker
from .popping import GROUP, RETRY, TOPIC, Popped, ack, batch_ack, change, messages, pop
from .talk import send

NO_MESSAGE, POLLING_TIMEOUT = 208, 210
#: The longest delay of a redelivery.
LATE_S = 0.1


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def sent(peer: Peer, *bodies: bytes, queue: str = "0") -> None:
    for body in bodies:
        assert (await send(peer, TOPIC, body, e=queue)).code == 0


async def popped(peer: Peer, count: int = 32, *, invisible: int = 60_000, wait: int = 5_000) -> list[Popped]:
    return messages(await pop(peer, count, invisible=invisible, wait=wait))


async def test_a_message_is_hidden_until_it_is_acknowledged_or_its_time_is_over(peer: Peer) -> None:
    await sent(peer, b"one", b"two")
    began = time.monotonic()
    first, second = await popped(peer, invisible=1_500)
    assert [first.body, second.body] == [b"one", b"two"]
    assert (await pop(peer)).code == POLLING_TIMEOUT
    assert (await ack(peer, first)).code == 0
    again = await popped(peer, invisible=1_500)
    took = time.monotonic() - began
    assert [(message.body, message.reconsume_times) for message in again] == [(b"two", 1)]
    assert took >= 1.5, "it was hidden"
    assert (again[0].topic, again[0].popped_from) == (TOPIC, RETRY)
    assert again[0].properties["ORIGIN_GROUP"] == GROUP
    assert again[0].properties["1ST_POP_TIME"] == second.handle.split(" ")[1]
    assert again[0].properties["UNIQ_KEY"] == second.properties["UNIQ_KEY"]
    assert (await ack(peer, again[0])).code == 0
    assert (await pop(peer, wait=2_500)).code == POLLING_TIMEOUT


async def test_two_consumers_never_get_the_same_message(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, *(b"%d" % number for number in range(200)))

        async def work() -> list[bytes]:
            found: list[bytes] = []
            async with await Peer.connect(cluster.broker.address) as worker:
                while batch := messages(await pop(worker, 7)):
                    found += [message.body for message in batch]
            return found

        bodies = [body for each in await asyncio.gather(*(work() for _ in range(8))) for body in each]
    assert sorted(map(int, bodies)) == list(range(200))


async def test_waiting_consumer_gets_the_next_message_alone(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"first")
        assert len(await popped(peer)) == 1
        workers = [await Peer.connect(cluster.broker.address) for _ in range(5)]
        try:
            waiting = [asyncio.create_task(pop(worker, wait=1_500)) for worker in workers]
            await sent(peer, b"second", queue="1")
            codes = [answer.code for answer in await asyncio.gather(*waiting)]
        finally:
            for worker in workers:
                await worker.close()
        assert sorted(codes) == [0] + [POLLING_TIMEOUT] * 4


async def test_changed_invisible_time_counts_from_now(peer: Peer) -> None:
    await sent(peer, b"long", b"short")
    [long] = await popped(peer, 1, invisible=3_000)
    [short] = await popped(peer, 1, invisible=30_000)
    answer = await change(peer, long, 60_000)
    assert answer.code == 0
    assert answer.ext is not None
    assert answer.ext["invisibleTime"] == "60000"
    began = time.monotonic()
    assert (await change(peer, short, 0)).code == 0
    [again] = await popped(peer)
    assert (again.body, again.reconsume_times) == (b"short", 1)
    assert time.monotonic() - began < 15, "it is visible at once"
    assert (await pop(peer, wait=3_500)).code == POLLING_TIMEOUT, "the other one stays hidden"


async def test_unacknowledged_part_of_a_batch_is_redelivered(peer: Peer) -> None:
    await sent(peer, *(b"%d" % number for number in range(20)))
    batch = await popped(peer, invisible=3_000)
    assert (await batch_ack(peer, *batch[::2])).code == 0
    again: list[bytes] = []
    while len(again) < 10:
        again += [message.body for message in await popped(peer)]
    assert sorted(map(int, again)) == list(range(1, 20, 2))


async def test_repeatedly_failing_message_becomes_a_dead_letter(peer: Peer) -> None:
    group = b'{"groupName":"%s","retryMaxTimes":2,"consumeEnable":true}' % GROUP.encode()
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == 0
    await sent(peer, b"poison")
    for times in range(3):
        [message] = await popped(peer, invisible=1_000)
        assert (message.body, message.reconsume_times) == (b"poison", times)
    dead = await pop(peer, wait=5_000, topic=f"%DLQ%{GROUP}", consumerGroup="undertaker")
    assert dead.code == 0
    assert b"poison" in dead.body
    assert (await pop(peer)).code == POLLING_TIMEOUT


async def test_unacknowledged_messages_are_redelivered_after_a_restart(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        await sent(peer, b"done", b"open")
        done, _ = await popped(peer, invisible=1_500)
        assert (await ack(peer, done)).code == 0
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        assert [message.body for message in await popped(peer)] == [b"open"]
        assert (await pop(peer, wait=1_000)).code == POLLING_TIMEOUT


async def test_tags_and_sql_filter_popped_messages(peer: Peer) -> None:
    for tag in ("a", "b", "a"):
        assert (await send(peer, TOPIC, tag.encode(), i=f"TAGS\x01{tag}\x02UNIQ_KEY\x01{tag}\x02")).code == 0
    found = messages(await pop(peer, exp="b"))
    assert [message.body for message in found] == [b"b"]
    assert (await pop(peer)).code == POLLING_TIMEOUT, "what was passed over is gone for this group"
    assert (await pop(peer, expType="SQL92", exp="a = ")).code == 23


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": "33"}, 29),
        ({"queueId": "999"}, 29),
        ({"invisibleTime": "0"}, 29),
        ({"invisibleTime": "-5"}, 29),
        ({"invisibleTime": str(2**62)}, 29),
        ({"topic": "nowhere"}, 17),
        ({"bornTime": "1"}, POLLING_TIMEOUT),
        ({"maxMsgNums": "-1"}, POLLING_TIMEOUT),
        ({"invisibleTime": "x"}, 1),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused(
    peer: Peer, changes: dict[str, str], code: int
) -> None:
    await sent(peer, b"one")
    assert (await pop(peer, **changes)).code == code
    assert len(await popped(peer)) == 1, "nothing was handed out"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, 17),
        ({"queueId": "999"}, 13),
        ({"queueId": "-1"}, 13),
        ({"offset": "99"}, NO_MESSAGE),
        ({"offset": "-1"}, NO_MESSAGE),
        ({"extraInfo": "1 2 3"}, 1),
        ({"extraInfo": "0 1 1000 77 0 broker-a 0 0"}, 1),
    ],
)
async def test_an_acknowledgement_that_names_no_message_is_refused(
    peer: Peer, changes: dict[str, str], code: int
) -> None:
    await sent(peer, b"one")
    [message] = await popped(peer)
    assert (await ack(peer, message, **changes)).code == code
    assert (await ack(peer, message)).code == 0
    assert (await ack(peer, message)).code == 0, "an acknowledgement may be repeated"


async def test_an_empty_batch_is_refused(peer: Peer) -> None:
    for body in (b"", b"{}", b'{"acks":[]}', b"no JSON"):
        assert (await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == NO_MESSAGE


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_pop_and_acknowledgement_work_in_both_flush_modes(start: Start, flush: str) -> None:
    cluster = await start(flushDiskType=flush)
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"one", b"two")
        batch = await popped(peer, invisible=3_000)
        assert [message.body for message in batch] == [b"one", b"two"]
        assert (await ack(peer, batch[0])).code == 0
        assert [message.body for message in await popped(peer)] == [b"two"]


async def test_message_is_redelivered_when_its_invisible_time_ends(peer: Peer) -> None:
    await sent(peer, b"one")
    await popped(peer, invisible=1_000)
    late = []
    for _ in range(3):
        [message] = await popped(peer, invisible=1_000, wait=3_000)
        _, popped_ms, *_ = message.handle.split(" ")
        late.append(int(popped_ms))
    gaps = [(after - before) / 1_000 - 1.0 for before, after in itertools.pairwise(late)]
    assert min(gaps) < LATE_S, gaps
    assert all(gap >= 0 for gap in gaps), gaps


async def test_closed_consumer_frees_its_waiting_pop(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"first")
        await popped(peer)
        async with await Peer.connect(cluster.broker.address) as gone:
            lost = asyncio.create_task(pop(gone, wait=10_000))
            await asyncio.sleep(0)
        lost.cancel()
        waiting = asyncio.create_task(pop(peer, wait=5_000))
        async with await Peer.connect(cluster.broker.address) as sender:
            await sent(sender, b"second")
        answer: Frame = await waiting
        assert [message.body for message in messages(answer)] == [b"second"]
