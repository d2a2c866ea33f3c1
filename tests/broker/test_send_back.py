"""Returned messages: the destinations and contents of their copies, byte by byte."""

from collections.abc import AsyncIterator

import pytest

from broker.records import GROUP, Record, arrival, records
from broker.talk import pull, send
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq, UnlockBatchMq
from rmqpy.protocol.requests.queues import MessageQueue
from wire import Frame, Peer

from .conftest import Start

#: Levels from 3 on are those of retries: the first two come at once, the third never within a test.
LEVELS = "1h 1h 100ms 100ms 1h"


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start(messageDelayLevel=LEVELS)
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def stored(peer: Peer, topic: str = "orders", body: bytes = b"hello") -> Record:
    """A message as its consumer gets it."""
    assert (await send(peer, topic, body, i="TAGS\x01paid\x02KEYS\x01k1\x02WAIT\x01true\x02")).code == 0
    return records((await pull(peer, GROUP, topic)).body)[-1]


async def send_back(peer: Peer, position: int, **changes: str) -> Frame:
    """CONSUMER_SEND_MSG_BACK, as a Java consumer sends it."""
    ext = {
        "offset": str(position),
        "group": GROUP,
        "delayLevel": "0",
        "originMsgId": "",
        "originTopic": "orders",
    }
    return await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"unitMode": "false"} | changes)


async def test_returned_message_is_redelivered_through_the_retry_topic(peer: Peer) -> None:
    first = await stored(peer)
    assert (await send_back(peer, first.position)).code == 0
    again = await arrival(peer, f"%RETRY%{GROUP}")
    assert (again.body, again.reconsume_times) == (b"hello", 1)
    properties = again.properties
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["ORIGIN_MESSAGE_ID"].endswith(f"{first.position:016X}")
    assert (properties["TAGS"], properties["KEYS"], properties["WAIT"]) == ("paid", "k1", "false")
    # What is left of its wait, as consumers of an Apache broker see it.
    assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == (
        "3",
        f"%RETRY%{GROUP}",
        "0",
    )


async def test_each_return_waits_on_the_next_level_and_keeps_the_origin(peer: Peer) -> None:
    first = await stored(peer)
    await send_back(peer, first.position)
    again = await arrival(peer, f"%RETRY%{GROUP}")
    await send_back(peer, again.position)
    third = await arrival(peer, f"%RETRY%{GROUP}", 1)
    assert (third.reconsume_times, third.properties["DELAY"]) == (2, "4")
    for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID"):
        assert third.properties[name] == again.properties[name]


async def test_level_beyond_the_maximum_is_the_last_one(peer: Peer) -> None:
    first = await stored(peer)
    assert (await send_back(peer, first.position, delayLevel="99")).code == 0
    [waiting] = records((await pull(peer, GROUP, "SCHEDULE_TOPIC_XXXX", queueId="4")).body)
    assert (waiting.properties["DELAY"], waiting.reconsume_times) == ("5", 1)


@pytest.mark.parametrize("changes", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
async def test_message_goes_to_the_dead_letters_after_its_last_attempt(
    peer: Peer, changes: dict[str, str]
) -> None:
    first = await stored(peer)
    assert (await send_back(peer, first.position, **changes)).code == 0
    dead = await arrival(peer, f"%DLQ%{GROUP}")
    assert (dead.body, dead.reconsume_times) == (b"hello", 1)
    assert (dead.properties["DELAY"], dead.properties["RETRY_TOPIC"]) == ("0", "orders")
    assert "REAL_TOPIC" not in dead.properties


async def test_old_clients_do_not_set_the_limit(peer: Peer) -> None:
    first = await stored(peer)
    ext = {"offset": str(first.position), "group": GROUP, "delayLevel": "0", "maxReconsumeTimes": "0"}
    answer = await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext, version=120)
    assert answer.code == 0
    assert (await arrival(peer, f"%RETRY%{GROUP}")).reconsume_times == 1


async def test_group_limit_applies_if_the_client_sends_none(peer: Peer) -> None:
    await peer.ask(
        UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name=GROUP, retry_max_times=1))
    )
    await send_back(peer, (await stored(peer)).position)
    await send_back(peer, (await arrival(peer, f"%RETRY%{GROUP}")).position)
    assert (await arrival(peer, f"%DLQ%{GROUP}")).reconsume_times == 2


async def test_a_group_without_retry_queues_drops_what_it_returns(peer: Peer) -> None:
    await peer.ask(
        UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name=GROUP, retry_queue_nums=0))
    )
    first = await stored(peer)
    assert (await send_back(peer, first.position)).code == 0
    waiting = await pull(peer, GROUP, "SCHEDULE_TOPIC_XXXX", queueId="2")
    assert (waiting.code, waiting.body) == (19, b"")


@pytest.mark.parametrize("position", [-1, 7, 1 << 40])
async def test_missing_message_is_code_1(peer: Peer, position: int) -> None:
    await stored(peer)
    answer = await send_back(peer, position)
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {position}")


async def test_forbidden_group_is_code_26(start: Start) -> None:
    cluster = await start(autoCreateSubscriptionGroup="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send_back(peer, 0)).code == 26


async def test_sync_flush_confirms_a_return_too(start: Start) -> None:
    cluster = await start(flushDiskType="SYNC_FLUSH", messageDelayLevel=LEVELS)
    async with await Peer.connect(cluster.broker.address) as peer:
        first = await stored(peer)
        assert (await send_back(peer, first.position)).code == 0
        assert (await arrival(peer, f"%RETRY%{GROUP}")).reconsume_times == 1


async def test_retries_of_an_ordered_group_become_dead_letters(peer: Peer) -> None:
    await stored(peer)
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
    batch = LockBatch(consumer_group=GROUP, client_id="me", mq_set=[queue])
    await peer.ask(LockBatchMq(body=batch))
    properties = "DELAY\x014\x02TAGS\x01paid\x02"
    for times, topic in [("1", f"%DLQ%{GROUP}"), ("2", f"%RETRY%{GROUP}")]:
        answer = await send(peer, f"%RETRY%{GROUP}", times.encode(), i=properties, j=times, l="16")
        assert answer.code == 0, answer
        found = await arrival(peer, topic)
        assert found.body == times.encode()
        assert found.properties["DELAY"] == ("-1" if "DLQ" in topic else "4")
        await peer.ask(UnlockBatchMq(body=batch))
