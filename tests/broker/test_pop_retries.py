"""Messages that come again: their topics, their dead letters, and the kinds of messages that a group pops."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Peer

from .conftest import Cluster, Start, made_broker
from .popping import GROUP, RETRY, RETRY_V2, TOPIC, Popped, ack, batch_ack, change, messages, pop
from .talk import send

POLLING_TIMEOUT = 210


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def sent(peer: Peer, *bodies: bytes, **changes: str) -> None:
    for body in bodies:
        assert (await send(peer, TOPIC, body, **changes)).code == 0


async def popped(
    peer: Peer, count: int = 32, *, invisible: int = 60_000, wait: int = 5_000, **changes: str
) -> list[Popped]:
    return messages(await pop(peer, count, invisible=invisible, wait=wait, **changes))


async def delete_topic(peer: Peer, topic: str) -> None:
    assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0


async def retry_max(peer: Peer, times: int) -> None:
    group = b'{"groupName":"%s","retryMaxTimes":%d,"consumeEnable":true}' % (GROUP.encode(), times)
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == 0


async def test_a_changed_time_is_a_pop_of_its_own(peer: Peer) -> None:
    """Also within the millisecond of the pop: an acknowledgement of the first must not count for the second."""
    for number in range(50):
        await sent(peer, b"%d" % number)
        [one] = await popped(peer)
        times = [one.handle.split(" ")[1]]
        for _ in range(2):
            answer = await change(peer, one, 60_000)
            assert answer.ext is not None
            times.append(answer.ext["popTime"])
            one = replace(one, handle=one.handle.replace(times[-2], times[-1]))
        assert len(set(times)) == 3


async def test_retry_topics_of_the_second_kind(start: Start) -> None:
    cluster = await start(enableRetryTopicV2="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"one")
        assert len(await popped(peer, invisible=1_000)) == 1
        [again] = await popped(peer, invisible=1_000)
        assert (again.topic, again.popped_from, again.reconsume_times) == (TOPIC, RETRY_V2, 1)
        [third] = await popped(peer)
        assert (third.popped_from, third.reconsume_times) == (RETRY_V2, 2)
        assert (await batch_ack(peer, third)).code == 0
        assert (await pop(peer, wait=1_500)).code == POLLING_TIMEOUT


async def test_older_retry_topics_are_read_beside_those_of_the_second_kind(
    tmp_path: Path, namesrv: str
) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        await sent(peer, b"old")
        assert len(await popped(peer, invisible=1_000)) == 1
        [again] = await popped(peer, invisible=1_500)
        assert again.popped_from == RETRY
    settings = {"enableRetryTopicV2": "true"}
    async with made_broker(tmp_path, namesrv, settings) as broker, await Peer.connect(broker.address) as peer:
        [again] = await popped(peer, wait=10_000)
        assert (again.body, again.popped_from, again.reconsume_times) == (b"old", RETRY, 2)
        assert (await ack(peer, again)).code == 0
        assert (await pop(peer, wait=500)).code == POLLING_TIMEOUT


async def test_messages_may_keep_the_name_of_their_retry_topic(start: Start) -> None:
    cluster = await start(popResponseReturnActualRetryTopic="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"one")
        assert len(await popped(peer, invisible=1_000)) == 1
        answer = await pop(peer, wait=5_000)
        assert answer.code == 0
        assert (answer.ext or {})["startOffsetInfo"] == "1 0 0"
        assert RETRY.encode() in answer.body
        assert b"POP_CK" not in answer.body


async def test_without_dead_letters_a_message_comes_again_without_end(start: Start) -> None:
    cluster = await start(popDeadLetterEnable="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        await retry_max(peer, 1)
        await sent(peer, b"poison")
        for times in range(4):
            [message] = await popped(peer, invisible=1_000)
            assert message.reconsume_times == times


async def revive_records(peer: Peer) -> int:
    """The number of records that the timers have delivered to the revive topic."""
    found = 0
    for queue in range(8):
        ext = {"topic": "rmq_sys_REVIVE_LOG_c1", "queueId": str(queue)}
        answer = await peer.call(RequestCode.GET_MAX_OFFSET, ext)
        found += int((answer.ext or {})["offset"])
    return found


async def test_records_of_acknowledged_pops_are_not_delivered(peer: Peer) -> None:
    """Only what has an open message reaches the revive topic: a checkpoint, and the acknowledgements of its others."""
    await sent(peer, *(b"%d" % number for number in range(6)))
    done = await popped(peer, 3, invisible=4_000)
    kept = await popped(peer, 3, invisible=4_000)
    for message in done[:-1]:
        assert (await ack(peer, message)).code == 0
    assert (await batch_ack(peer, done[-1])).code == 0
    assert (await batch_ack(peer, *kept[:-1])).code == 0
    assert (await change(peer, kept[-1], 5_000)).code == 0
    [again] = await popped(peer, wait=10_000)
    assert (again.body, again.reconsume_times) == (kept[-1].body, 1)
    # The first checkpoint of the last message is acknowledged, too: the change has made another one.
    assert await revive_records(peer) == 1
    assert (await pop(peer, wait=500)).code == POLLING_TIMEOUT


async def test_acknowledgements_that_come_after_the_checkpoint_count(peer: Peer) -> None:
    await sent(peer, b"early", b"late")
    early, late = await popped(peer, 2, invisible=3_000)
    assert (await ack(peer, early)).code == 0
    # The timers deliver the checkpoint a second before the end of the invisible time.
    await until_async(lambda: revive_records(peer), lambda count: count > 0, pause=0.05)
    assert (await ack(peer, late)).code == 0
    assert (await pop(peer, wait=3_000)).code == POLLING_TIMEOUT


async def test_a_suspended_message_keeps_its_number_of_deliveries(peer: Peer) -> None:
    await sent(peer, b"one")
    [message] = await popped(peer)
    assert (await change(peer, message, 100, suspend="true")).code == 0
    [again] = await popped(peer)
    assert (again.body, again.reconsume_times) == (b"one", 0)


async def test_messages_of_a_deleted_topic_do_not_come_again(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"gone")
        assert len(await popped(peer, invisible=1_000)) == 1
        await delete_topic(peer, TOPIC)
        await sent(peer, b"kept", b"of the new topic", e="1")
        found = await popped(peer)
        assert [message.body for message in found] == [b"kept", b"of the new topic"]
        assert (await pop(peer, wait=2_000)).code == POLLING_TIMEOUT


async def test_messages_of_a_deleted_group_do_not_come_again(peer: Peer) -> None:
    await sent(peer, b"one")
    assert len(await popped(peer, invisible=1_000)) == 1
    ext = {"groupName": GROUP, "cleanOffset": "true"}
    assert (await peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0
    # The time of the message ends meanwhile.
    await asyncio.sleep(1.5)
    # A new group of this name begins at the first message, which is the only one there is.
    [first] = await popped(peer)
    assert (first.popped_from, first.reconsume_times) == (TOPIC, 0)
    assert (await pop(peer, wait=500)).code == POLLING_TIMEOUT


async def test_a_deleted_retry_topic_is_made_again(peer: Peer) -> None:
    await sent(peer, b"one")
    assert len(await popped(peer, invisible=1_500)) == 1
    await delete_topic(peer, RETRY)
    ext = {"topic": RETRY}
    await until_async(
        lambda: peer.call(RequestCode.GET_TOPIC_CONFIG, ext), lambda answer: answer.code == 0, pause=0.1
    )
    [again] = await popped(peer)
    assert (again.body, again.reconsume_times) == (b"one", 1)


async def test_a_group_without_its_retry_topic_delays_no_other(start: Start) -> None:
    cluster = await start(reviveQueueNum="1")
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, *(b"%d" % number for number in range(20)))
        for _ in range(20):
            assert len(await popped(peer, 1, invisible=1_000, consumerGroup="stuck")) == 1
        assert len(await popped(peer, invisible=1_000)) == 20
        await delete_topic(peer, f"%RETRY%stuck_{TOPIC}")
        began = time.monotonic()
        found: list[Popped] = []
        while len(found) < 20:
            found += await popped(peer)
        assert time.monotonic() - began < 15


async def test_a_reset_gives_messages_again_beside_open_ones(peer: Peer) -> None:
    await sent(peer, b"one", b"two")
    first = await popped(peer, invisible=1_500)
    assert len(first) == 2
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
    assert (await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)).code == 0
    again = await popped(peer)
    assert [message.body for message in again] == [b"one", b"two"]
    assert (await ack(peer, again[0])).code == 0
    assert (await ack(peer, again[1])).code == 0
    # What was open before the reset comes again by its own time.
    bodies: list[bytes] = []
    while len(bodies) < 2:
        bodies += [message.body for message in await popped(peer)]
    assert sorted(bodies) == [b"one", b"two"]


async def test_too_many_messages_in_flight_hold_a_queue_back(start: Start) -> None:
    cluster = await start(enablePopMessageThreshold="true", popInflightMessageThreshold="3")
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, *(b"%d" % number for number in range(8)))
        first = await popped(peer, 4)
        assert len(first) == 4
        answer = await pop(peer)
        assert answer.code == POLLING_TIMEOUT
        assert (answer.ext or {})["restNum"] == "4"
        assert (await ack(peer, first[0])).code == 0
        assert len(await popped(peer, 4)) == 4


async def test_acknowledgements_and_checkpoints_are_counted(peer: Peer) -> None:
    await sent(peer, b"one", b"two")
    first = await popped(peer)
    assert (await ack(peer, first[0])).code == 0
    for name, count in (("GROUP_CK_NUMS", 1), ("GROUP_ACK_NUMS", 1), ("GROUP_GET_NUMS", 2)):
        ext = {"statsName": name, "statsKey": f"{TOPIC}@{GROUP}"}
        answer = await peer.call(RequestCode.VIEW_BROKER_STATS_DATA, ext)
        assert answer.code == 0, name
        assert f'"sum":{count}'.encode() in answer.body, (name, answer.body)


async def test_delayed_and_timed_messages_are_popped_when_they_are_due(peer: Peer) -> None:
    await sent(peer, b"first")
    assert len(await popped(peer)) == 1
    began = time.time()
    await sent(peer, b"delayed", i="DELAY\x011\x02UNIQ_KEY\x01d\x02")
    due = round((began + 2) * 1_000)
    await sent(peer, b"timed", i=f"TIMER_DELIVER_MS\x01{due}\x02UNIQ_KEY\x01t\x02")
    found: list[Popped] = []
    while len(found) < 2:
        found += await popped(peer, 1)
    assert [message.body for message in found] == [b"delayed", b"timed"]
    assert time.time() >= began + 2
    for message in found:
        assert (await change(peer, message, 0)).code == 0
        [again] = await popped(peer)
        assert (again.body, again.reconsume_times) == (message.body, 1), "it does not wait once more"


async def test_a_transactional_message_is_popped_once_it_is_committed(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await sent(peer, b"first")
        assert len(await popped(peer)) == 1
        half = await send(
            peer, TOPIC, b"half", f="4", i="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01h\x02"
        )
        assert half.code == 0
        assert (await pop(peer, wait=300)).code == POLLING_TIMEOUT
        ext = half.ext or {}
        position = int(ext["msgId"][16:], 16)
        end = {
            "producerGroup": "p", "tranStateTableOffset": ext["queueOffset"], "commitLogOffset": str(position),
            "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "h", "transactionId": "h",
        }  # fmt: skip
        assert (await peer.call(RequestCode.END_TRANSACTION, end)).code == 0
        [message] = await popped(peer, invisible=1_000)
        assert message.body == b"half"
        [again] = await popped(peer)
        assert (again.body, again.reconsume_times) == (b"half", 1)


async def test_a_request_message_keeps_what_its_reply_needs(peer: Peer) -> None:
    properties = "MSG_TYPE\x01request\x02CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01me\x02TTL\x013000\x02"
    await sent(peer, b"ask", i=properties + "UNIQ_KEY\x01r\x02")
    assert len(await popped(peer, invisible=1_000)) == 1
    [again] = await popped(peer)
    assert (again.properties["CORRELATION_ID"], again.properties["REPLY_TO_CLIENT"]) == ("c1", "me")


async def test_a_handle_of_another_group_acknowledges_nothing(peer: Peer) -> None:
    await sent(peer, b"one")
    [mine] = await popped(peer, invisible=1_500)
    [theirs] = await popped(peer, consumerGroup="others")
    assert (await ack(peer, mine, consumerGroup="others")).code == 0
    assert (await ack(peer, theirs)).code == 0
    [again] = await popped(peer)
    assert (again.body, again.reconsume_times) == (b"one", 1)


async def test_clients_cannot_write_checkpoints(peer: Peer) -> None:
    answer = await send(peer, "rmq_sys_REVIVE_LOG_c1", b"{}", i="TAGS\x01ck\x02")
    assert answer.code == 16
