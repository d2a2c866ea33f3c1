"""Priorities: a message's priority chooses its queue, and pops of a PRIORITY topic read the most urgent first."""

import json
from collections.abc import AsyncIterator

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.topics import GetTopicConfig, UpdateAndCreateTopic
from wire import Peer

from .conftest import Cluster, Start, samples
from .popping import GROUP, RETRY, TOPIC, ack, batch_ack, messages, peek, pop
from .records import records
from .talk import pull, send
from .test_sends_and_pulls import inner

QUEUES = 8
POLLING_TIMEOUT = 210


def urgent(priority: int | str, more: str = "") -> str:
    """Properties of a message with this priority."""
    return f"KEYS\x01k\x02_SYS_MSG_PRIORITY_\x01{priority}\x02{more}"


async def create(peer: Peer, topic: str = TOPIC, queues: int = QUEUES, kind: str = "PRIORITY") -> None:
    await peer.ask(
        UpdateAndCreateTopic(
            topic=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            attributes=f"+message.type={kind}",
        )
    )


async def set_group(peer: Peer, **attributes: str) -> None:
    changes = {f"+{name.replace('_', '.')}": value for name, value in attributes.items()}
    body = json.dumps({"groupName": GROUP, "consumeEnable": True, "attributes": changes}).encode()
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == 0, answer.remark


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer)
        yield peer


async def queue_of(peer: Peer, properties: str, topic: str = TOPIC, **changes: str) -> int:
    """The queue in the answer to a send, which asks for queue 2."""
    answer = await send(peer, topic, i=properties, e="2", **changes)
    assert answer.code == 0, answer.remark
    assert answer.ext is not None
    return int(answer.ext["queueId"])


async def stored(peer: Peer, topic: str, queue: int = 0) -> list[dict[str, str]]:
    """The properties of the messages in a queue."""
    answer = await pull(peer, "readers", topic, queueId=str(queue))
    return [record.properties for record in records(answer.body)] if answer.code == 0 else []


async def order(peer: Peer, **changes: str) -> list[int]:
    """The queues of all messages, in the order in which a pop would give them."""
    return [record.queue_id for record in records((await peek(peer, **changes)).body)]


async def each_queue(peer: Peer) -> None:
    for priority in range(QUEUES):
        assert await queue_of(peer, urgent(priority)) == priority


async def test_a_priority_chooses_the_queue_of_any_topic(peer: Peer) -> None:
    await create(peer, "ordinary", kind="NORMAL")
    for topic in (TOPIC, "ordinary"):
        places = {"0": 0, "5": 5, "7": 7, "99": 7, "-1": 2, "high": 2, "2147483648": 2}
        assert {text: await queue_of(peer, urgent(text), topic) for text in places} == places
        assert await queue_of(peer, "KEYS\x01k\x02", topic) == 2
    kept = [found["_SYS_MSG_PRIORITY_"] for found in await stored(peer, TOPIC, 7)]
    assert kept == ["7", "99"], "the message keeps its priority"


async def test_sends_with_long_names_have_priorities_too(peer: Peer) -> None:
    ext = {
        "producerGroup": "producers", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "-1", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": urgent(6),
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    answer = await peer.call(RequestCode.SEND_MESSAGE, ext, b"x")
    assert (answer.code, (answer.ext or {})["queueId"]) == (0, "6")


@pytest.mark.parametrize(
    ("more", "flag", "kept_in", "queue"),
    [
        ("__SHARDINGKEY\x01customer\x02", "0", TOPIC, 2),
        ("DELAY\x013\x02", "0", "SCHEDULE_TOPIC_XXXX", 2),
        ("TIMER_DELAY_MS\x0160000\x02", "0", "rmq_sys_wheel_timer", 0),
        ("TRAN_MSG\x01true\x02PGROUP\x01producers\x02", "4", "RMQ_SYS_TRANS_HALF_TOPIC", 0),
    ],
)
async def test_messages_of_other_types_lose_their_priority(
    peer: Peer, more: str, flag: str, kept_in: str, queue: int
) -> None:
    assert await queue_of(peer, urgent(5, more), f=flag) == 2
    [found] = await stored(peer, kept_in, queue)
    assert "_SYS_MSG_PRIORITY_" not in found
    assert found["KEYS"] == "k"
    assert len(found["UNIQ_KEY"]) == 32


async def test_batches_keep_their_queue(peer: Peer) -> None:
    body = inner(b"one", urgent(5).encode()) + inner(b"two", urgent(7).encode())
    answer = await send(peer, TOPIC, body, i="", m="true", e="2")
    assert (answer.code, (answer.ext or {})["queueId"]) == (0, "2")
    assert [found["_SYS_MSG_PRIORITY_"] for found in await stored(peer, TOPIC, 2)] == ["5", "7"]


async def test_pops_give_the_most_urgent_first(peer: Peer) -> None:
    await each_queue(peer)
    taken = [message.queue_id for _ in range(QUEUES // 2) for message in messages(await pop(peer, 1))]
    assert taken == [7, 6, 5, 4]
    await queue_of(peer, urgent(99))
    rest = messages(await pop(peer))
    assert [message.queue_id for message in rest] == [7, 3, 2, 1, 0]
    assert (await pop(peer)).code == POLLING_TIMEOUT


async def test_a_pop_of_one_queue_gets_no_other(peer: Peer) -> None:
    await each_queue(peer)
    assert [message.queue_id for message in messages(await pop(peer, queueId="3"))] == [3]


async def test_smaller_priorities_can_be_more_urgent(start: Start) -> None:
    cluster = await start(priorityOrderAsc="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer)
        await each_queue(peer)
        assert [message.queue_id for message in messages(await pop(peer))] == list(range(QUEUES))


async def test_the_factor_of_a_group_leaves_some_pops_to_chance(peer: Peer) -> None:
    await set_group(peer, priority_factor="100")
    await each_queue(peer)
    assert {(await order(peer))[0] for _ in range(20)} == {7}
    await set_group(peer, priority_factor="0")
    assert len({(await order(peer))[0] for _ in range(60)}) > 3
    await set_group(peer, priority_factor="50")
    firsts = [(await order(peer))[0] for _ in range(200)]
    # Half of them by priority, and an eighth of the others by chance.
    assert 70 < firsts.count(7) < 155


async def test_other_topics_are_read_from_a_random_queue(peer: Peer) -> None:
    await each_queue(peer)
    await create(peer, kind="NORMAL")
    assert len({(await order(peer))[0] for _ in range(60)}) > 3
    await create(peer)
    assert len({(await order(peer, order="true"))[0] for _ in range(60)}) > 3, (
        "pops in order have no priorities"
    )


async def redelivered(peer: Peer) -> None:
    """Have messages with the priorities 1 and 6 wait in the retry topic, in the order in which they were popped."""
    for priority in (1, 6):
        await queue_of(peer, urgent(priority))
    assert [message.queue_id for message in messages(await pop(peer, invisible=1_000))] == [6, 1]


async def in_retry_topic(peer: Peer, count: int) -> None:
    """Wait until the retry topic has so many messages."""
    found = 0
    while found < count:
        answer = await pop(peer, 1, wait=5_000, consumerGroup="watchers", topic=RETRY)
        found += answer.code == 0


async def test_messages_to_redeliver_come_last(peer: Peer) -> None:
    await redelivered(peer)
    await in_retry_topic(peer, 2)
    await queue_of(peer, urgent(0))
    for _ in range(20):
        assert records((await peek(peer)).body)[0].topic == TOPIC
    found = messages(await pop(peer))
    assert [message.popped_from for message in found] == [TOPIC, RETRY, RETRY]


async def test_messages_to_redeliver_can_come_first(start: Start) -> None:
    cluster = await start(popFromRetryProbabilityForPriority="100")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer)
        await redelivered(peer)
        await in_retry_topic(peer, 2)
        await queue_of(peer, urgent(7))
        assert [message.popped_from for message in messages(await pop(peer))] == [RETRY, RETRY, TOPIC]


async def test_redelivered_messages_keep_their_priority_in_queues_of_the_retry_topic(start: Start) -> None:
    cluster = await start(useSeparateRetryQueue="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer)
        await redelivered(peer)
        assert (await peer.ask(GetTopicConfig(topic=RETRY))).read_queue_nums == QUEUES
        await in_retry_topic(peer, 2)
        again = messages(await pop(peer, invisible=1_500))
        assert [(each.queue_id, each.reconsume_times) for each in again] == [(6, 1), (1, 1)]
        assert (await ack(peer, again[1])).code == 0
        [third] = messages(await pop(peer, wait=5_000))
        assert (third.queue_id, third.reconsume_times, third.popped_from) == (6, 2, RETRY)
        assert (await batch_ack(peer, third)).code == 0
        assert (await pop(peer, wait=1_500)).code == POLLING_TIMEOUT


async def test_a_retry_topic_grows_with_its_topic(start: Start) -> None:
    cluster = await start(useSeparateRetryQueue="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, queues=2)
        assert (await pop(peer)).code == POLLING_TIMEOUT
        assert (await peer.ask(GetTopicConfig(topic=RETRY))).read_queue_nums == 2
        await create(peer)
        await queue_of(peer, urgent(7))
        [first] = messages(await pop(peer, invisible=1_000))
        assert (await peer.ask(GetTopicConfig(topic=RETRY))).read_queue_nums == QUEUES
        [again] = messages(await pop(peer, wait=5_000))
        assert (first.queue_id, again.queue_id, again.popped_from) == (7, 7, RETRY)


async def test_retry_topics_have_one_queue_by_default(peer: Peer) -> None:
    await redelivered(peer)
    assert (await peer.ask(GetTopicConfig(topic=RETRY))).read_queue_nums == 1
    await in_retry_topic(peer, 2)
    assert [message.queue_id for message in messages(await pop(peer))] == [0, 0]


async def counted(cluster: Cluster, topic: str) -> set[str]:
    found = [line for line in await samples(cluster, "rocketmq_messages_in_total{") if f'"{topic}"' in line]
    return {line.partition('message_type="')[2].partition('"')[0] for line in found}


async def test_messages_with_a_priority_are_a_type(start: Start) -> None:
    cluster = await start(enableTopicMessageTypeCheck="true", httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer)
        assert await queue_of(peer, urgent(1)) == 1
        answer = await send(peer, TOPIC)
        assert answer.code == 13
        assert "the expected type is PRIORITY, but actual type is NORMAL" in (answer.remark or "")
        answer = await send(peer, TOPIC, i=urgent(1, "__SHARDINGKEY\x01s\x02"))
        assert "the expected type is PRIORITY, but actual type is FIFO" in (answer.remark or "")
    assert await counted(cluster, TOPIC) == {"priority"}
