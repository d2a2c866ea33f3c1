"""POP in order: a group gets more of a queue when each message of the last batch is acknowledged, or visible again."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Frame, Peer

from .conftest import Start, made_broker
from .popping import (
    GROUP,
    TOPIC,
    Popped,
    ack,
    batch_ack,
    change,
    messages,
    notification,
    parked_pops,
    pop,
)
from .talk import send

POLLING_TIMEOUT = 210
ORDER_QUEUE = "999"


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def sent(peer: Peer, *bodies: bytes, queue: str = "0") -> None:
    for body in bodies:
        assert (await send(peer, TOPIC, body, e=queue)).code == 0


async def in_order(
    peer: Peer, count: int = 32, *, invisible: int = 60_000, wait: int = 0, **changes: str
) -> Frame:
    return await pop(peer, count, invisible=invisible, wait=wait, order="true", **changes)


async def ordered(
    peer: Peer, count: int = 32, *, invisible: int = 60_000, wait: int = 5_000, **changes: str
) -> list[Popped]:
    return messages(await in_order(peer, count, invisible=invisible, wait=wait, **changes))


def bodies(found: list[Popped]) -> list[bytes]:
    return [message.body for message in found]


async def committed(peer: Peer, queue: int = 0) -> int:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue)}
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int((answer.ext or {})["offset"])


async def test_a_queue_is_blocked_until_its_messages_are_acknowledged_in_any_order(peer: Peer) -> None:
    await sent(peer, b"1", b"2", b"3", b"4")
    first = await ordered(peer, 3)
    assert bodies(first) == [b"1", b"2", b"3"]
    assert {message.handle.split(" ")[3] for message in first} == {ORDER_QUEUE}
    assert await committed(peer) == 0, "it follows acknowledgements, not pops"
    assert (await in_order(peer)).code == POLLING_TIMEOUT
    for message, offset in ((first[2], 0), (first[0], 1), (first[1], 3)):
        assert (await in_order(peer)).code == POLLING_TIMEOUT
        assert (await ack(peer, message)).code == 0
        assert await committed(peer) == offset
    assert bodies(await ordered(peer)) == [b"4"]


async def test_queues_are_blocked_one_by_one(peer: Peer) -> None:
    await sent(peer, b"a")
    await sent(peer, b"b", queue="1")
    assert bodies(await ordered(peer, queueId="0")) == [b"a"]
    assert bodies(await ordered(peer)) == [b"b"]
    assert (await in_order(peer)).code == POLLING_TIMEOUT


async def test_a_waiting_pop_gets_the_next_messages_when_the_last_one_is_acknowledged(start: Start) -> None:
    cluster = await start()
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as other,
    ):
        await sent(peer, b"1", b"2")
        [first] = await ordered(peer, 1)
        waiting = asyncio.create_task(in_order(other, 1, wait=10_000))
        await until_async(lambda: parked_pops(peer), lambda parked: parked == 1)
        began = time.monotonic()
        assert (await ack(peer, first)).code == 0
        assert bodies(messages(await waiting)) == [b"2"]
        assert time.monotonic() - began < 9, "it did not wait for its own end"


async def test_a_batch_comes_again_when_its_time_is_over_with_a_count(peer: Peer) -> None:
    await sent(peer, b"1", b"2")
    began = time.monotonic()
    first = await in_order(peer, 1, invisible=1_000, wait=5_000)
    assert (first.ext or {})["orderCountInfo"] == "0 0 0"
    again = await in_order(peer, 2, wait=5_000)
    took = time.monotonic() - began
    assert bodies(messages(again)) == [b"1", b"2"]
    assert took >= 1.0
    assert (again.ext or {})["orderCountInfo"] == "0 qo0%0 1;0 0 0"
    stale, current = messages(first)[0], messages(again)[0]
    assert (await ack(peer, stale)).code == 0, "a later pop has given it again: nothing happens"
    assert await committed(peer) == 0
    assert (await ack(peer, current)).code == 0
    assert await committed(peer) == 1


async def test_repeating_an_attempt_returns_the_same_messages(peer: Peer) -> None:
    await sent(peer, b"1", b"2", b"3")
    assert bodies(await ordered(peer, 2, attemptId="a")) == [b"1", b"2"]
    assert (await in_order(peer, 2, attemptId="b")).code == POLLING_TIMEOUT
    again = await in_order(peer, 2, wait=5_000, attemptId="a")
    assert bodies(messages(again)) == [b"1", b"2"]
    assert (again.ext or {})["orderCountInfo"] == "0 0 0", "it is not another delivery"


async def test_a_change_moves_the_end_of_the_block(peer: Peer) -> None:
    await sent(peer, b"1", b"2")
    [first] = await ordered(peer, 1)
    answer = await change(peer, first, 1_000)
    assert answer.code == 0
    ext = answer.ext or {}
    assert (ext["popTime"], ext["reviveQid"]) == (first.handle.split(" ")[1], ORDER_QUEUE)
    assert 1_000 <= int(ext["invisibleTime"]) < 60_000
    began = time.monotonic()
    assert bodies(await ordered(peer, 1, wait=15_000)) == [b"1"]
    assert time.monotonic() - began < 15


async def test_a_batch_of_acknowledgements_frees_the_queue(peer: Peer) -> None:
    await sent(peer, b"1", b"2", b"3")
    first = await ordered(peer, 2)
    assert (await batch_ack(peer, *first)).code == 0
    assert bodies(await ordered(peer)) == [b"3"]


async def test_an_acknowledgement_of_another_message_is_refused(peer: Peer) -> None:
    await sent(peer, b"1", b"2")
    [first] = await ordered(peer, 1)
    answer = await ack(peer, first, offset="1")
    assert answer.code == 13
    assert (answer.remark or "").startswith(
        f"offset is illegal, key:{TOPIC}@{GROUP}@0, old:0, commit:1, next:-1"
    )
    assert (await ack(peer, first)).code == 0
    assert (await ack(peer, first)).code == 0, "the group has passed it"
    assert bodies(await ordered(peer)) == [b"2"]


async def test_a_blocked_queue_is_no_news(peer: Peer) -> None:
    await sent(peer, b"1", b"2")
    assert (await notification(peer, wait=5_000, order="true"))["hasMsg"] == "true"
    [first] = await ordered(peer, 1)
    assert (await notification(peer, order="true"))["hasMsg"] == "false"
    assert (await ack(peer, first)).code == 0
    assert (await notification(peer, wait=5_000, order="true"))["hasMsg"] == "true"


async def test_a_reset_frees_the_queue(peer: Peer) -> None:
    await sent(peer, b"1", b"2")
    assert len(await ordered(peer)) == 2
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
    assert (await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)).code == 0
    assert bodies(await ordered(peer)) == [b"1", b"2"]


async def test_blocks_are_in_the_file_and_survive_a_restart(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        await sent(peer, b"1", b"2", b"3")
        first = await ordered(peer, 2, attemptId="a")
        assert (await ack(peer, first[1])).code == 0
        assert (await change(peer, first[0], 30_000)).code == 0
    stored = json.loads((tmp_path / "store/config/consumerOrderInfo.json").read_text())
    info = stored["table"][f"{TOPIC}@{GROUP}"]["0"]
    visible = info.pop("ot")
    assert visible.keys() == {"0"}
    pop_ms = int(first[0].handle.split(" ")[1])
    assert info == {"popTime": pop_ms, "i": 60_000, "o": [0, 1], "oc": {}, "l": pop_ms, "cm": 2, "a": "a"}
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        assert (await in_order(peer)).code == POLLING_TIMEOUT
        assert (await ack(peer, first[0])).code == 0
        assert bodies(await ordered(peer)) == [b"3"]


async def test_a_file_of_apaches_broker_is_read(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        await sent(peer, b"1", b"2")
        assert len(await ordered(peer, 1)) == 1
    path = tmp_path / "store/config/consumerOrderInfo.json"
    now = round(time.time() * 1_000)
    info = f'{{"cm":0,"i":60000,"l":{now},"o":[0],"popTime":{now}}}'
    table = f'{{"{TOPIC}@{GROUP}":{{0:{info}}}}}'
    path.write_text(f'{{"orderInfoCount":1,"orderedConsumptionLevel":"QUEUE","table":{table}}}')
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        assert (await in_order(peer)).code == POLLING_TIMEOUT
        ext = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "0",
            "extraInfo": f"0 {now} 60000 999 0 broker-a 0 0",
        }  # fmt: skip
        assert (await peer.call(RequestCode.ACK_MESSAGE, ext)).code == 0
        assert bodies(await ordered(peer)) == [b"2"]
