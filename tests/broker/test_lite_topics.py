"""Lite topics: many small ordered queues under one parent, for the clients that subscribe to them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.lite import (
    COMPLETE_REMOVE,
    PARTIAL_REMOVE,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteOffset,
    TriggerLiteDispatch,
)
from rmqpy.protocol.requests.offsets import GetMaxOffset
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, UpdateAndCreateTopic
from rmqpy.testing import HandClock
from waiting import until_async
from wire import TIMEOUT_S, Peer, Refusal

from .conftest import Start, made_broker
from .lites import (
    GROUP,
    LITE,
    PARENT,
    PoppedLite,
    ack,
    bodies,
    change,
    messages,
    pop,
    pop_fields,
    publish,
    replace,
    set_up,
    subscribe,
)
from .records import records
from .talk import pull, send

LATE = round(TIMEOUT_S * 1_000)
NO_MESSAGE, POLLING_TIMEOUT, INVALID, NOT_ALLOWED = 208, 210, 29, 604
NO_TOPIC, NO_GROUP, LMQ_QUOTA, SUBSCRIPTION_QUOTA = 17, 26, 2017, 2018
UNSUBSCRIBE = 200_073


def queue(name: str) -> str:
    return f"%LMQ%${PARENT}${name}"


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start(**LITE)
    async with await Peer.connect(cluster.broker.address) as peer:
        await set_up(peer)
        yield peer


async def test_a_message_is_in_its_topic_and_in_its_lite_topic(peer: Peer) -> None:
    forged = "__LITE_TOPIC\x01x\x02INNER_MULTI_DISPATCH\x01%LMQ%other\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"
    await publish(peer, "x", b"1", i=forged)
    await publish(peer, "x", b"2", e="3")
    assert (await send(peer, PARENT, b"plain")).code == 0
    for name, expected in ((queue("x"), 2), ("%LMQ%other", 0)):
        assert (await peer.ask(GetMaxOffset(topic=name, queue_id=0))).offset == expected
    answer = await pull(peer, "readers", PARENT)
    assert [record.body for record in records(answer.body)] == [b"1", b"plain"]


async def test_two_clients_share_lite_topics_and_get_each_message_once(peer: Peer) -> None:
    names = [f"s{number}" for number in range(20)]
    for client in ("c1", "c2"):
        await subscribe(peer, client, *names)
    for number in range(3):
        for name in names:
            await publish(peer, name, f"{name}-{number}".encode())
    found: list[PoppedLite] = []
    clients: dict[str, set[str]] = {"c1": set(), "c2": set()}
    while len(found) < 60:
        for client, lite_topics in clients.items():
            given = await pop(peer, client, 7)
            for message in given:
                lite_topics.add(message.lite_topic)
                assert (await ack(peer, message)).code == 0
            found += given
    for name in names:
        of_name = [message for message in found if message.lite_topic == name]
        assert [message.body for message in of_name] == [f"{name}-{number}".encode() for number in range(3)]
        assert [message.offset for message in of_name] == [0, 1, 2]
    assert all(clients.values()), "each client has got some"
    assert (await pop(peer, "c1"), await pop(peer, "c2")) == ([], [])


async def test_a_waiting_pop_wakes_up_on_arrival(peer: Peer, start: Start) -> None:
    await subscribe(peer, "c1", "x", "y")
    await peer.send(RequestCode.POP_LITE_MESSAGE, pop_fields("c1", wait=LATE))
    # Sent on the same connection, and served after the pop was parked.
    other = await send(peer, PARENT, b"other", i="__LITE_TOPIC\x01other\x02")
    assert other.code == 0
    await send_only(peer, "y", b"hello")
    frames = [await peer.receive(), await peer.receive()]
    [popped] = [messages(frame) for frame in frames if frame.body]
    assert [(message.lite_topic, message.body) for message in popped] == [("y", b"hello")]


async def send_only(peer: Peer, lite_topic: str, body: bytes) -> None:
    """Send a message without waiting for the answer."""
    ext = {
        "a": "p", "b": PARENT, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": f"__LITE_TOPIC\x01{lite_topic}\x02", "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip
    await peer.send(RequestCode.SEND_MESSAGE_V2, ext, body)


async def test_the_committed_offset_follows_acknowledgements_and_the_rest_comes_again(peer: Peer) -> None:
    for number in range(3):
        await publish(peer, "x", str(number).encode())
    await subscribe(peer, "c1", "x", begin=LiteOffset(type="POLICY", value=1))
    first = await pop(peer, "c1", invisible=500)
    assert [message.count for message in first] == [0, 0, 0]
    assert await bodies(peer, "c1") == [], "the queue is blocked"
    assert (await ack(peer, first[1])).code == 0
    assert (await ack(peer, first[0])).code == 0
    assert await committed(peer, "x") == 2
    [again] = await pop(peer, "c1", wait=LATE)
    assert (again.body, again.count) == (b"2", 1)
    assert (await ack(peer, first[2])).code == 0, "a late acknowledgement changes nothing"
    assert await committed(peer, "x") == 2
    assert (await ack(peer, again)).code == 0
    assert await committed(peer, "x") == 3
    await publish(peer, "x", b"3")
    assert await bodies(peer, "c1") == [b"3"]


async def committed(peer: Peer, name: str) -> int:
    info = await peer.ask(GetLiteGroupInfo(group=GROUP, lite_topic=name))
    assert info.lite_topic_offset_wrapper is not None
    return info.lite_topic_offset_wrapper.consumer_offset


async def test_an_acknowledgement_makes_the_next_messages_an_event(peer: Peer) -> None:
    await subscribe(peer, "c1", "x")
    for number in range(4):
        await publish(peer, "x", str(number).encode())
    for number in range(4):
        [message] = await pop(peer, "c1", 1)
        assert message.body == str(number).encode()
        assert (await ack(peer, message)).code == 0


async def test_a_change_hides_one_message_or_the_whole_lite_topic(peer: Peer) -> None:
    await subscribe(peer, "c1", "x")
    for number in range(2):
        await publish(peer, "x", str(number).encode())
    first, second = await pop(peer, "c1", invisible=60_000)
    assert (await ack(peer, first)).code == 0
    answer = await change(peer, second, 100)
    assert answer.code == 0
    assert (answer.ext or {})["reviveQid"] == "999"
    [again] = await pop(peer, "c1", wait=LATE, invisible=100)
    assert (again.body, again.count) == (b"1", 1)
    await publish(peer, "x", b"2")
    assert (await change(peer, again, 60_000, suspend="true")).code == 0
    assert await bodies(peer, "c1", wait=300) == []
    assert (await change(peer, second, 0)).code == 0, "an old handle changes nothing"
    assert await bodies(peer, "c1") == []


async def test_the_last_subscriber_of_an_exclusive_group_takes_over(start: Start) -> None:
    cluster = await start(**LITE)
    async with (
        await Peer.connect(cluster.broker.address) as one,
        await Peer.connect(cluster.broker.address) as two,
    ):
        await set_up(one, model="Exclusive", reset_offset_exclusive="true")
        await subscribe(one, "c1", "x", "y")
        await publish(one, "x", b"1")
        [message] = await pop(one, "c1")
        assert (await ack(one, message)).code == 0
        await subscribe(two, "c2", "x")
        await publish(one, "x", b"2")
        notices = [frame for frame in one.pushed if frame.code == UNSUBSCRIBE]
        assert [frame.ext for frame in notices] == [
            {"liteTopic": "x", "consumerGroup": GROUP, "clientId": "c1"}
        ]
        assert await bodies(two, "c2", wait=LATE) == [b"1", b"2"], "from the beginning"
        assert await bodies(one, "c1") == []
        await publish(one, "y", b"3")
        assert await bodies(one, "c1", wait=LATE) == [b"3"]
        # A client that missed the notice is told again, and does not get the lite topic back.
        await replace(one, "c1", "x", "y")
        await publish(one, "x", b"4")
        assert len([frame for frame in one.pushed if frame.code == UNSUBSCRIBE]) == 2
        info = await one.ask(GetLiteTopicInfo(parent_topic=PARENT, lite_topic="x"))
        assert [(each.client_id, each.group) for each in info.subscriber] == [("c2", GROUP)]


async def test_subscriptions_are_added_replaced_and_removed(peer: Peer) -> None:
    await subscribe(peer, "c1", "a", "b")
    await subscribe(peer, "c1", "c")
    assert await subscribed(peer) == {"a", "b", "c"}
    await subscribe(peer, "c1", "b", action=PARTIAL_REMOVE)
    assert await subscribed(peer) == {"a", "c"}
    await replace(peer, "c1", "c", "d")
    assert await subscribed(peer) == {"c", "d"}
    await publish(peer, "a", b"1")
    await publish(peer, "d", b"2")
    assert await bodies(peer, "c1") == [b"2"]
    await subscribe(peer, "c1", action=COMPLETE_REMOVE)
    with pytest.raises(Refusal):
        await subscribed(peer)


async def test_a_lite_topic_begins_again_after_an_unsubscription_if_its_group_says_so(start: Start) -> None:
    cluster = await start(**LITE)
    async with await Peer.connect(cluster.broker.address) as peer:
        await set_up(peer, reset_offset_unsubscribe="true")
        await subscribe(peer, "c1", "x")
        await publish(peer, "x", b"1")
        [message] = await pop(peer, "c1")
        assert (await ack(peer, message)).code == 0
        await subscribe(peer, "c1", "x", action=PARTIAL_REMOVE)
        await subscribe(peer, "c1", "x")
        assert await bodies(peer, "c1") == [b"1"]


async def subscribed(peer: Peer) -> set[str]:
    info = await peer.ask(GetLiteClientInfo(parent_topic=PARENT, group=GROUP, client_id="c1"))
    assert info.lite_topic_count == len(info.lite_topic_set)
    return {name.removeprefix(queue("")) for name in info.lite_topic_set}


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (LiteOffset(type="POLICY", value=1), [b"0", b"1", b"2"]),
        (LiteOffset(type="POLICY", value=2), []),
        (LiteOffset(type="OFFSET", value=1), [b"1", b"2"]),
        (LiteOffset(type="TAIL_N", value=2), [b"0", b"1", b"2"]),
        (LiteOffset(type="TIMESTAMP", value=0), [b"0", b"1", b"2"]),
        (None, [b"2"]),
    ],
)
async def test_a_group_begins_where_its_client_wants(
    peer: Peer, begin: LiteOffset | None, expected: list[bytes]
) -> None:
    await subscribe(peer, "c0", "x", begin=LiteOffset(type="POLICY", value=1))
    for number in range(3):
        await publish(peer, "x", str(number).encode())
    for message in (await pop(peer, "c0"))[:2]:
        assert (await ack(peer, message)).code == 0
    await subscribe(peer, "c0", action=COMPLETE_REMOVE)
    if begin is None:
        # Its progress, once the third message is visible again.
        await subscribe(peer, "c1", "x", begin=LiteOffset(type="OFFSET", value=2))
    else:
        await subscribe(peer, "c1", "x", begin=begin)
    assert await bodies(peer, "c1") == expected


async def test_events_of_a_client_that_leaves_go_to_another_one(peer: Peer) -> None:
    for client in ("c1", "c2"):
        await subscribe(peer, client, "x")
    for number in range(4):
        await publish(peer, "x", str(number).encode())
    for client in ("c1", "c2"):
        await pop(peer, client, 1, invisible=100)
    await subscribe(peer, "c1", action=COMPLETE_REMOVE)
    assert await bodies(peer, "c2", wait=LATE) == [b"0", b"1", b"2", b"3"]


async def test_silent_clients_lose_their_subscriptions(start: Start) -> None:
    settings = {"liteSubscriptionCheckTimeoutMills": "1000", "liteSubscriptionCheckInterval": "100"}
    cluster = await start(**LITE, **settings)
    async with await Peer.connect(cluster.broker.address) as peer:
        await set_up(peer)
        await subscribe(peer, "c1", "x")

        async def count() -> int:
            return (await peer.ask(GetBrokerLiteInfo())).lite_subscription_count

        assert await count() == 1
        await until_async(count, lambda found: found == 0)


async def test_in_flight_messages_stay_hidden_after_a_restart_and_none_is_lost(
    tmp_path: Path, namesrv: str
) -> None:
    async with (
        made_broker(tmp_path, namesrv, LITE) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        await set_up(peer)
        await subscribe(peer, "c1", "x", begin=LiteOffset(type="POLICY", value=1))
        for number in range(3):
            await publish(peer, "x", str(number).encode())
        first, _, _ = await pop(peer, "c1", invisible=2_000)
        assert (await ack(peer, first)).code == 0
    async with (
        made_broker(tmp_path, namesrv, LITE) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        await replace(peer, "c1", "x")
        await publish(peer, "x", b"3")
        again = await pop(peer, "c1", wait=LATE)
        assert [message.body for message in again] == [b"1", b"2", b"3"]
        assert [message.offset for message in again] == [1, 2, 3]


async def test_lite_topics_end_after_their_last_message(tmp_path: Path, namesrv: str) -> None:
    clock = HandClock(1_700_000_000_000)
    settings = LITE | {"minLiteTTl": "1000", "liteTtlCheckInterval": "100"}
    async with (
        made_broker(tmp_path, namesrv, settings, clock) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        await set_up(peer, minutes=1)

        async def lite_topics() -> int:
            return (await peer.ask(GetParentTopicInfo(topic=PARENT))).lite_topic_count

        await subscribe(peer, "c1", "old", "new")
        await publish(peer, "old", b"1")
        [message] = await pop(peer, "c1")
        assert (await ack(peer, message)).code == 0
        clock.advance(40)
        await publish(peer, "new", b"2")
        assert await lite_topics() == 2
        clock.advance(40)
        await until_async(lite_topics, lambda count: count == 1)
        assert (await peer.ask(GetMaxOffset(topic=queue("old"), queue_id=0))).offset == 0
        await until_async(lambda: subscribed(peer), lambda names: names == {"new"})
        await publish(peer, "old", b"3")
        await replace(peer, "c1", "old")
        [message] = await pop(peer, "c1")
        assert (message.body, message.offset) == (b"3", 0)
    # Deleted ones stay deleted, and the age of the others is that of their last message.
    async with (
        made_broker(tmp_path, namesrv, settings, clock) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        assert (await peer.ask(GetParentTopicInfo(topic=PARENT))).lite_topic_count == 2
        clock.advance(50)

        async def ends() -> list[int]:
            asks = [GetMaxOffset(topic=queue(name), queue_id=0) for name in ("old", "new")]
            return [(await peer.ask(ask)).offset for ask in asks]

        await until_async(ends, lambda found: found == [1, 0])


async def test_lite_topics_are_deleted_with_their_parent(peer: Peer) -> None:
    await publish(peer, "x", b"1")
    await peer.ask(DeleteTopicInBroker(topic=PARENT))
    assert (await peer.ask(GetMaxOffset(topic=queue("x"), queue_id=0))).offset == 0
    await set_up(peer)
    await publish(peer, "x", b"2")
    await subscribe(peer, "c1", "x")
    [message] = await pop(peer, "c1")
    assert (message.body, message.offset) == (b"2", 0)


async def test_administrators_see_lite_topics_clients_and_lag(peer: Peer) -> None:
    await subscribe(peer, "c1", "x", "y")
    for number in range(3):
        await publish(peer, "x", str(number).encode())
    info = await peer.ask(GetBrokerLiteInfo())
    assert (info.current_lmq_num, info.lite_subscription_count, info.event_map_size) == (1, 2, 2)
    assert (info.topic_meta, info.group_meta) == ({PARENT: -1}, {PARENT: [GROUP]})
    parent = await peer.ask(GetParentTopicInfo(topic=PARENT))
    assert (parent.lite_topic_count, parent.groups, parent.ttl) == (1, [GROUP], -1)
    topic = await peer.ask(GetLiteTopicInfo(parent_topic=PARENT, lite_topic="x"))
    assert (topic.topic_offset.max_offset, topic.sharding_to_broker) == (3, True)
    [message, *_] = await pop(peer, "c1")
    assert (await ack(peer, message)).code == 0
    lag = await peer.ask(GetLiteGroupInfo(group=GROUP, lite_topic="x"))
    assert (lag.total_lag_count, lag.parent_topic) == (2, PARENT)
    lags = await peer.ask(GetLiteGroupInfo(group=GROUP))
    assert [(each.lite_topic, each.lag_count) for each in lags.lag_count_top_k] == [(queue("x"), 2)]
    await peer.ask(TriggerLiteDispatch(group=GROUP, client_id="c1"))
    assert (await peer.ask(GetBrokerLiteInfo())).event_map_size == 2


async def test_requests_that_contradict_the_rules_are_refused(peer: Peer) -> None:
    await publish(peer, "x", b"1")
    await subscribe(peer, "c1", "x")
    [message] = await pop(peer, "c1")
    for changes, code in (
        ({"topic": "unknown"}, NO_TOPIC),
        ({"consumerGroup": "TOOLS_CONSUMER"}, INVALID),
        ({"maxMsgNum": "33"}, INVALID),
        ({"bornTime": "1"}, POLLING_TIMEOUT),
    ):
        answer = await peer.call(RequestCode.POP_LITE_MESSAGE, pop_fields("c1") | changes)
        assert answer.code == code, (changes, answer.remark)
    for more, code in (
        ({"offset": "9"}, NO_MESSAGE),
        ({"queueId": "1"}, INVALID),
        ({"liteTopic": "$"}, NO_MESSAGE),
    ):
        assert (await ack(peer, message, **more)).code == code
    assert (await ack(peer, message)).code == 0
    refused = await send(peer, PARENT, i="__LITE_TOPIC\x01a/b\x02")
    assert refused.code == 13
    assert "lite topic" in (refused.remark or "")
    for group, code in (("unknown", NOT_ALLOWED), ("TOOLS_CONSUMER", INVALID)):
        with pytest.raises(Refusal) as refusal:
            await subscribe(peer, "c1", "x", group=group)
        assert refusal.value.code == code
    with pytest.raises(Refusal, match="bind topic not match"):
        await subscribe(peer, "c1", "x", parent="TBW102")
    answer = await peer.call(RequestCode.LITE_SUBSCRIPTION_CTL, {}, b'{"subscriptionSet":[]}')
    assert answer.code == NOT_ALLOWED


async def test_lite_topics_and_subscriptions_are_bounded(start: Start) -> None:
    bounds = {"enableLmqQuota": "true", "maxLmqConsumeQueueNum": "2", "maxLiteSubscriptionCount": "3"}
    cluster = await start(**LITE, **bounds)
    async with await Peer.connect(cluster.broker.address) as peer:
        await set_up(peer)
        for name in ("a", "b"):
            await publish(peer, name, b"1")
        assert (await send(peer, PARENT, i="__LITE_TOPIC\x01c\x02")).code == LMQ_QUOTA
        await subscribe(peer, "c1", "a", "b", "c")
        with pytest.raises(Refusal) as refusal:
            await subscribe(peer, "c2", "a")
        assert refusal.value.code == SUBSCRIPTION_QUOTA
        assert "the limit is 3" in str(refusal.value)
        await set_up(peer, client_quota="0")
        with pytest.raises(Refusal) as refusal:
            await replace(peer, "c1", *(f"s{number}" for number in range(301)))
        assert refusal.value.code == SUBSCRIPTION_QUOTA
        assert "the quota is 0" in str(refusal.value)


async def test_a_topic_of_the_type_needs_light_queues(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        with pytest.raises(Refusal) as refusal:
            await peer.ask(
                UpdateAndCreateTopic(
                    topic=PARENT, read_queue_nums=1, write_queue_nums=1, attributes="+message.type=LITE"
                )
            )
        assert "enableLmq=true and enableMultiDispatch=true" in str(refusal.value)


async def test_many_lite_topics_and_few_events_at_a_time(start: Start) -> None:
    cluster = await start(**LITE)
    async with await Peer.connect(cluster.broker.address) as peer:
        await set_up(peer, client_max_event_cnt="10")
        names = [f"s{number}" for number in range(500)]
        await subscribe(peer, "c1", *names)
        for name in names[::5]:
            await publish(peer, name, name.encode())
        found: list[bytes] = []
        while len(found) < 100:
            given = await pop(peer, "c1", wait=LATE)
            await asyncio.gather(*(ack_alone(cluster.broker.address, message) for message in given[:1]))
            for message in given[1:]:
                assert (await ack(peer, message)).code == 0
            found += [message.body for message in given]
        assert sorted(found) == sorted(name.encode() for name in names[::5])


async def ack_alone(address: str, message: PoppedLite) -> None:
    """Acknowledge on another connection."""
    async with await Peer.connect(address) as peer:
        assert (await ack(peer, message)).code == 0
