"""Types of topics: stored as tools send them, counted by actual messages, and checked if the setting is on."""

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from rmqpy.protocol.requests.topics import GetTopicConfig, UpdateAndCreateTopic
from wire import Peer

from .conftest import Cluster, Start, samples
from .talk import send
from .test_sends_and_pulls import inner
from .test_transactions import COMMIT, end, half

CHECK = {"enableTopicMessageTypeCheck": "true", "enableMixedMessageType": "true"}

#: Properties that mark a message of each type.
SAYS = {
    "NORMAL": "TAGS\x01paid\x02",
    "FIFO": "__SHARDINGKEY\x01customer-7\x02",
    "PRIORITY": "_SYS_MSG_PRIORITY_\x010\x02",
    "DELAY": "DELAY\x011\x02",
    "TRANSACTION": "TRAN_MSG\x01true\x02PGROUP\x01producers\x02",
}


async def create(peer: Peer, topic: str, attributes: str | None) -> None:
    await peer.ask(
        UpdateAndCreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, attributes=attributes)
    )


async def sent(peer: Peer, topic: str, kind: str) -> tuple[int, str]:
    """Code and remark of the answer to a message of that type."""
    flag = "4" if kind == "TRANSACTION" else "0"
    answer = await send(peer, topic, i=SAYS[kind], f=flag)
    return answer.code, answer.remark or ""


async def takes(peer: Peer, topic: str) -> set[str]:
    """Return the types of messages that a topic accepts."""
    return {kind for kind in SAYS if (await sent(peer, topic, kind))[0] == 0}


async def test_message_types_are_checked_only_if_configured(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, "orders", "+message.type=FIFO")
        assert await takes(peer, "orders") == set(SAYS)


async def test_a_broker_that_checks_types_names_both_in_its_refusal(start: Start) -> None:
    cluster = await start(**CHECK)
    async with await Peer.connect(cluster.broker.address) as peer:
        for kind in SAYS:
            await create(peer, kind.lower(), f"+message.type={kind}")
            assert await takes(peer, kind.lower()) == {kind}
        code, remark = await sent(peer, "fifo", "DELAY")
        assert code == 13
        assert "the expected type is FIFO, but actual type is DELAY" in remark
        assert "a message of topic [fifo] has a sharding key" in remark
        # A missing type, or MIXED, is not checked; nor is the retry topic of a group.
        await create(peer, "mixed", "+message.type=MIXED")
        await create(peer, "unspecified", "+message.type=UNSPECIFIED")
        await create(peer, "silent", None)
        for topic in ("mixed", "unspecified", "silent", "made-by-a-send"):
            assert await takes(peer, topic) == set(SAYS), topic


async def test_message_with_sharding_key_and_delay_is_delayed(start: Start) -> None:
    cluster = await start(**CHECK)
    async with await Peer.connect(cluster.broker.address) as peer:
        for kind in ("FIFO", "DELAY", "TRANSACTION"):
            await create(peer, kind.lower(), f"+message.type={kind}")
        both = SAYS["FIFO"] + "TIMER_DELAY_MS\x0150\x02"
        assert [(await send(peer, topic, i=both)).code for topic in ("fifo", "delay")] == [13, 0]
        everything = both + SAYS["TRANSACTION"]
        assert (await send(peer, "delay", i=everything, f="4")).code == 13
        assert (await send(peer, "transaction", i=everything, f="4")).code == 0


async def test_every_message_of_a_batch_is_checked(start: Start) -> None:
    cluster = await start(**CHECK)
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, "fifo", "+message.type=FIFO")
        in_order, plain = inner(b"one", SAYS["FIFO"].encode()), inner(b"two", b"")
        for body, code in [(in_order * 2, 0), (in_order + plain, 13)]:
            answer = await send(peer, "fifo", body, i="", m="true")
            assert answer.code == code, answer.remark
        kept = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "fifo", "queueId": "0"})
        assert kept.ext == {"offset": "2"}


async def test_the_check_and_the_type_of_a_topic_change_while_the_broker_runs(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, "orders", "+message.type=FIFO")
        await peer.ask(UpdateBrokerConfig(body="enableTopicMessageTypeCheck=true\n"))
        assert await takes(peer, "orders") == {"FIFO"}
        await create(peer, "orders", "+message.type=NORMAL")
        assert (await peer.ask(GetTopicConfig(topic="orders"))).attributes == {"message.type": "NORMAL"}
        assert await takes(peer, "orders") == {"NORMAL"}
        await create(peer, "orders", "-message.type")
        assert await takes(peer, "orders") == set(SAYS)
        await create(peer, "orders", "+message.type=DELAY")
        await peer.ask(UpdateBrokerConfig(body="enableTopicMessageTypeCheck=false\n"))
        assert await takes(peer, "orders") == set(SAYS)


async def test_messages_delivered_by_the_broker_are_not_refused(start: Start) -> None:
    cluster = await start(**CHECK, httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, "orders", "+message.type=TRANSACTION")
        assert (await end(peer, await half(peer), COMMIT)).code == 0
    assert await counted(cluster, "orders") == {"transaction": 1}
    assert await counted(cluster, "RMQ_SYS_TRANS_HALF_TOPIC") == {"transaction": 1}


async def counted(cluster: Cluster, topic: str) -> dict[str, int]:
    """Messages that came into a topic, by type."""
    found = {}
    for line in await samples(cluster, "rocketmq_messages_in_total{"):
        if f'topic="{topic}"' in line:
            label = line.partition('message_type="')[2].partition('"')[0]
            found[label] = int(float(line.split()[-1]))
    return found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_messages_are_counted_by_their_actual_type(start: Start, flush: str) -> None:
    cluster = await start(httpPort="0", flushDiskType=flush)
    async with await Peer.connect(cluster.broker.address) as peer:
        await create(peer, "orders", "+message.type=DELAY")
        for kind, count in {"NORMAL": 3, "FIFO": 2}.items():
            for _ in range(count):
                assert await sent(peer, "orders", kind) == (0, "")
        batch = inner(b"one", SAYS["FIFO"].encode()) + inner(b"two", b"")
        assert (await send(peer, "orders", batch, i="", m="true")).code == 0
        assert await counted(cluster, "orders") == {"normal": 4, "fifo": 3}
        assert (await sent(peer, "orders", "DELAY"))[0] == 0
        assert await counted(cluster, "SCHEDULE_TOPIC_XXXX") == {"delay": 1}
