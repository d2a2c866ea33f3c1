"""Limits of queues, progress, resets, and single messages, as tools query a running broker."""

from typing import Any

import pytest

from broker.conftest import Cluster
from broker.talk import heartbeat, pull, send
from rmqpy.protocol.requests.messages import QueryMessage, ViewMessageById
from rmqpy.protocol.requests.offsets import (
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    InvokeBrokerToResetOffset,
    QueryConsumerOffset,
    QueryTopicConsumeByWho,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.topics import (
    UpdateAndCreateTopic,
)
from wire import Peer

# ---- offsets ----


async def test_limits_and_times_of_a_queue(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        queue: dict[str, Any] = {"topic": "orders", "queue_id": 0}
        assert (await peer.ask(GetEarliestMsgStoreTime(**queue))).timestamp == -1
        for _ in range(3):
            await send(peer, "orders")
        assert (await peer.ask(GetMinOffset(**queue))).offset == 0
        assert (await peer.ask(GetMaxOffset(**queue))).offset == 3
        first = (await peer.ask(GetEarliestMsgStoreTime(**queue))).timestamp
        assert first > 1_700_000_000_000
        assert (await peer.ask(SearchOffsetByTimestamp(**queue, timestamp=first))).offset == 0
        assert (await peer.ask(SearchOffsetByTimestamp(**queue, timestamp=first + 3_600_000))).offset == 3
        assert (await peer.call(30, {"topic": "orders", "queueId": "-1"})).code == 29


async def test_tables_keyed_by_queue_are_written_as_fastjson_writes_them(cluster: Cluster) -> None:
    """The Go client parses this text by hand."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1))
        stats = await peer.call(202, {"topic": "orders"})
        assert stats.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
        )
        await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        ask = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=1)
        await peer.ask(ask)
        progress = await peer.call(208, {"consumerGroup": "billing"})
        assert progress.body.startswith(
            b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
            b'{"brokerOffset":1,"consumerOffset":1,"lastTimestamp":1'
        )
        assert (await peer.call(202, {"topic": "missing"})).code == 17
        who = (await peer.ask(QueryTopicConsumeByWho(topic="orders"))).group_list
        assert who == ["billing"]


async def test_a_reset_moves_the_next_pull_and_survives_stale_commits(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        for _ in range(3):
            await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        where: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=3))
        reset = InvokeBrokerToResetOffset(group="billing", topic="orders", timestamp=-1, queue_id=0, offset=1)
        assert list((await peer.ask(reset)).offset_table.values()) == [1]
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=3))
        moved = await pull(peer, "billing", "orders", 3)
        assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (21, "1")
        assert (await peer.ask(QueryConsumerOffset(**where))).offset == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "missing"}, 17),
        ({"group": "missing"}, 26),
        ({"queueId": "0", "offset": "99"}, 1),
    ],
)
async def test_a_reset_that_cannot_be_is_refused(cluster: Cluster, change: dict[str, str], code: int) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        ext = {"group": "TOOLS_CONSUMER", "topic": "orders", "timestamp": "-1", "isForce": "true"}
        assert (await peer.call(222, ext | change)).code == code


# ---- messages ----


async def test_messages_are_found_by_tag(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        sent = await send(peer, "orders", b"tagged", i="TAGS\x01paid\x02KEYS\x01k9\x02")
        position = int((sent.ext or {})["msgId"][-16:], 16)
        record = await peer.ask(ViewMessageById(offset=position))
        ask = QueryMessage(
            topic="orders", key="paid", max_num=32, begin_timestamp=0, end_timestamp=1 << 62, index_type="T"
        )
        assert (await peer.ask(ask)).body == record
        ext = {"topic": "orders", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
        # A tag is not a key, and a key is not a tag.
        assert (await peer.call(12, ext | {"key": "paid"})).code == 22
        assert (await peer.call(12, ext | {"key": "k9", "indexType": "T"})).code == 22


async def test_messages_are_found_by_position_and_by_key(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        sent = await send(peer, "orders", b"first")
        position = int((sent.ext or {})["msgId"][-16:], 16)
        record = await peer.ask(ViewMessageById(offset=position))
        assert b"first" in record
        ask = QueryMessage(topic="orders", key="k1", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
        assert (await peer.ask(ask)).body == record
        ext = {"topic": "orders", "key": "none", "maxNum": "32", "beginTimestamp": "0"}
        assert (await peer.call(12, ext | {"endTimestamp": str(1 << 62)})).code == 22
        for offset in (1 << 40, -1, position + 1):
            assert (await peer.call(33, {"offset": str(offset)})).code == 1
