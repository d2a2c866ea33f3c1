"""Pops that wait, notifications, and looks at what a pop would give."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.groups.table import Groups
from rmqpy.protocol.requests.groups import SubscriptionGroup
from waiting import until_async
from wire import Peer

from .conftest import Start
from .popping import (
    RETRY,
    TOPIC,
    ack,
    messages,
    notification,
    parked_pops,
    peek,
    pop,
)
from .records import records
from .talk import send

NOT_FOUND, POLLING_FULL, POLLING_TIMEOUT = 19, 209, 210


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def sent(peer: Peer, *bodies: bytes, queue: str = "0", **changes: str) -> None:
    for body in bodies:
        assert (await send(peer, TOPIC, body, e=queue, **changes)).code == 0


async def begun(peer: Peer) -> None:
    """Make the topic and the group, and leave nothing to pop."""
    await sent(peer, b"first")
    [first] = messages(await pop(peer, wait=5_000))
    assert (await ack(peer, first)).code == 0


async def until_parked(peer: Peer, count: int) -> None:
    await until_async(lambda: parked_pops(peer), lambda parked: parked == count)


async def test_a_pop_of_no_messages_ends_with_its_time(peer: Peer) -> None:
    await sent(peer, b"one")
    began = time.monotonic()
    assert (await pop(peer, 0, wait=300)).code == POLLING_TIMEOUT
    assert time.monotonic() - began > 0.2
    assert len(messages(await pop(peer, wait=5_000))) == 1


async def test_a_backlog_reaches_every_waiting_pop(start: Start) -> None:
    cluster = await start()
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(await Peer.connect(cluster.broker.address))
        await begun(peer)
        workers = [
            await stack.enter_async_context(await Peer.connect(cluster.broker.address)) for _ in range(40)
        ]
        waiting = [asyncio.create_task(pop(worker, 1, wait=20_000)) for worker in workers]
        await until_parked(peer, 40)
        began = time.monotonic()
        await sent(peer, *(b"%d" % number for number in range(40)))
        answers = await asyncio.gather(*waiting)
        assert time.monotonic() - began < 10, "no pop waits for the end of its time"
    found = [message.body for answer in answers for message in messages(answer)]
    assert sorted(map(int, found)) == list(range(40))


async def test_the_pop_whose_time_ends_first_is_woken_first(start: Start) -> None:
    cluster = await start()
    async with AsyncExitStack() as stack:
        peer, patient, hasty = [
            await stack.enter_async_context(await Peer.connect(cluster.broker.address)) for _ in range(3)
        ]
        await begun(peer)
        long = asyncio.create_task(pop(patient, wait=20_000))
        await until_parked(peer, 1)
        short = asyncio.create_task(pop(hasty, wait=10_000))
        await until_parked(peer, 2)
        await sent(peer, b"one")
        assert [message.body for message in messages(await short)] == [b"one"]
        assert await parked_pops(peer) == 1
        assert await parked_pops(peer, queue=0) == 0
        await sent(peer, b"two")
        assert [message.body for message in messages(await long)] == [b"two"]


async def test_pops_of_one_group_that_wait_have_a_bound(start: Start) -> None:
    cluster = await start(popPollingSize="2")
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(await Peer.connect(cluster.broker.address))
        await begun(peer)
        workers = [
            await stack.enter_async_context(await Peer.connect(cluster.broker.address)) for _ in range(2)
        ]
        waiting = [asyncio.create_task(pop(worker, wait=20_000)) for worker in workers]
        await until_parked(peer, 2)
        refused = await pop(peer, wait=20_000)
        assert refused.code == POLLING_FULL
        assert (refused.ext or {})["restNum"] == "0"
        await sent(peer, b"one", b"two")
        assert [answer.code for answer in await asyncio.gather(*waiting)] == [0, 0]


async def test_a_long_stretch_without_matches_is_passed_over(peer: Peer) -> None:
    await begun(peer)
    for number in range(300):
        await sent(peer, b"other", i=f"TAGS\x01other\x02UNIQ_KEY\x01{number}\x02")
    await sent(peer, b"wanted", i="TAGS\x01wanted\x02UNIQ_KEY\x01w\x02")
    found = messages(await pop(peer, exp="wanted", wait=5_000))
    assert [message.body for message in found] == [b"wanted"]


async def test_sql_chooses_messages_for_waiting_pops(start: Start) -> None:
    cluster = await start(enablePropertyFilter="true")
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as worker,
    ):
        await begun(peer)
        waiting = asyncio.create_task(pop(worker, wait=10_000, expType="SQL92", exp="size > 10"))
        await until_parked(peer, 1)
        await sent(peer, b"small", i="size\x015\x02UNIQ_KEY\x01a\x02")
        await sent(peer, b"large", i="size\x0150\x02UNIQ_KEY\x01b\x02")
        assert [message.body for message in messages(await waiting)] == [b"large"]


async def test_a_notification_waits_for_a_message_and_takes_none(start: Start) -> None:
    cluster = await start()
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as watcher,
    ):
        await begun(peer)
        assert await notification(peer) == {"hasMsg": "false", "pollingFull": "false"}
        began = time.monotonic()
        assert (await notification(peer, wait=300))["hasMsg"] == "false"
        assert time.monotonic() - began > 0.2
        waiting = asyncio.create_task(notification(watcher, wait=10_000))
        # An answer that does not wait would have come by then.
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await sent(peer, b"one")
        assert await waiting == {"hasMsg": "true", "pollingFull": "false"}
        assert (await notification(peer, wait=5_000))["hasMsg"] == "true"
        assert len(messages(await pop(peer, wait=5_000))) == 1
        assert (await notification(peer))["hasMsg"] == "false"


async def test_a_message_wakes_a_pop_beside_a_notification(start: Start) -> None:
    cluster = await start()
    async with AsyncExitStack() as stack:
        peer, watcher, worker = [
            await stack.enter_async_context(await Peer.connect(cluster.broker.address)) for _ in range(3)
        ]
        await begun(peer)
        watching = asyncio.create_task(notification(watcher, wait=20_000))
        popping = asyncio.create_task(pop(worker, wait=20_000))
        await until_parked(peer, 1)
        await sent(peer, b"one")
        assert len(messages(await popping)) == 1
        # The other one may have looked before or behind the pop; a further message decides.
        await sent(peer, b"two")
        assert (await watching)["hasMsg"] == "true"


async def test_a_notification_counts_only_messages_that_match(peer: Peer) -> None:
    await begun(peer)
    await sent(peer, b"other", i="TAGS\x01other\x02UNIQ_KEY\x01a\x02")
    assert (await notification(peer, expType="TAG", exp="wanted"))["hasMsg"] == "false"
    assert (await notification(peer, wait=5_000, expType="TAG", exp="other"))["hasMsg"] == "true"


async def test_a_message_that_comes_again_is_news(peer: Peer) -> None:
    await sent(peer, b"one")
    assert len(messages(await pop(peer, invisible=1_000, wait=5_000))) == 1
    assert (await notification(peer))["hasMsg"] == "false"
    assert (await notification(peer, wait=5_000))["hasMsg"] == "true"


async def test_a_peek_shows_messages_and_leaves_them(peer: Peer) -> None:
    await sent(peer, b"one", b"two", b"three")
    assert (await notification(peer, wait=5_000))["hasMsg"] == "true"
    for _ in range(2):
        answer = await peek(peer, 2)
        assert answer.code == 0
        assert [message.body for message in records(answer.body)] == [b"one", b"two"]
        assert (answer.ext or {}) == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "3"}
    assert len(messages(await pop(peer, wait=5_000))) == 3
    assert (await peek(peer)).code == NOT_FOUND


async def test_a_peek_shows_a_message_that_comes_again_under_its_retry_topic(peer: Peer) -> None:
    await sent(peer, b"one")
    assert len(messages(await pop(peer, invisible=1_000, wait=5_000))) == 1
    assert (await notification(peer, wait=5_000))["hasMsg"] == "true"
    [again] = records((await peek(peer)).body)
    assert (again.topic, again.body, again.reconsume_times) == (RETRY, b"one", 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"topic": "nowhere"}, 17), ({"queueId": "99"}, 29)],
)
async def test_a_look_that_cannot_be_served_is_refused(
    peer: Peer, changes: dict[str, str], code: int
) -> None:
    await begun(peer)
    assert (await peek(peer, **changes)).code == code


async def test_a_refused_pop_has_the_numbers_that_clients_read(peer: Peer) -> None:
    await begun(peer)
    for changes in ({"bornTime": "1"}, {"maxMsgNums": "33"}):
        answer = await pop(peer, **changes)
        assert answer.code != 0
        zeros = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        assert {name: (answer.ext or {})[name] for name in zeros} == zeros


async def test_first_pop_of_a_group_outlasts_its_creation(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = Groups.ensure

    async def slowly(groups: Groups, name: str, config: BrokerConfig) -> SubscriptionGroup | None:
        await asyncio.sleep(0.7)  # longer than a pop may be late
        return await ensure(groups, name, config)

    monkeypatch.setattr(Groups, "ensure", slowly)
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"one")
        assert [message.body for message in messages(await pop(peer, consumerGroup="new"))] == [b"one"]
