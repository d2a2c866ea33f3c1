"""Bounds of one connection at a broker: places in groups, and locks."""

import pytest

from broker.conftest import Cluster
from broker.talk import beat, heartbeat, send
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import SubscriptionData
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq
from rmqpy.protocol.requests.queues import MessageQueue
from wire import Peer


async def test_connection_is_limited_to_a_thousand_groups(
    cluster: Cluster,
) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as flood,
        await Peer.connect(cluster.broker.address) as other,
    ):
        codes = [(await beat(flood, heartbeat("one", producer=f"p{number}"))).code for number in range(1_010)]
        assert codes == [0] * 1_000 + [ResponseCode.INVALID_PARAMETER] * 10
        # Those it has are renewed, and another connection has its own.
        assert (await beat(flood, heartbeat("one", producer="p7"))).code == 0
        assert (await beat(other, heartbeat("two", producer="p1009"))).code == 0


@pytest.mark.parametrize(("client", "producer"), [("c" * 2_000, "p"), ("c", "p" * 2_000)])
async def test_oversized_names_are_not_stored(cluster: Cluster, client: str, producer: str) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await beat(peer, heartbeat(client, producer=producer))).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "subscription",
    [
        SubscriptionData(topic="orders", sub_string="x" * (300 << 10)),
        SubscriptionData(topic="orders", sub_string="*", tags_set=["tag"] * (100 << 10)),
        SubscriptionData(topic="orders", sub_string="*", code_set=[7] * (30 << 10)),
    ],
    ids=["expression", "tags", "hashes"],
)
async def test_oversized_subscription_is_refused(cluster: Cluster, subscription: SubscriptionData) -> None:
    beyond = heartbeat("one", "orders")
    beyond.body.consumer_data_set[0].subscription_data_set.append(subscription)
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await beat(peer, beyond)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "262144 characters" in (answer.remark or "")
        assert (await beat(peer, heartbeat("one", "orders"))).code == 0


async def test_locks_need_an_existing_queue_and_group(cluster: Cluster) -> None:
    queues = [
        MessageQueue(broker_name="broker-a", queue_id=queue_id, topic="orders") for queue_id in (0, 3, 4, -1)
    ]
    queues.append(MessageQueue(broker_name="broker-a", queue_id=0, topic="gone"))

    def lock(group: str) -> LockBatchMq:
        return LockBatchMq(body=LockBatch(client_id="one", consumer_group=group, mq_set=queues))

    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        assert (await peer.ask(lock("billing"))).lock_ok_mq_set == queues[:2]
        assert (await peer.ask(lock("nobody"))).lock_ok_mq_set == []
