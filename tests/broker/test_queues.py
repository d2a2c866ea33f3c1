"""Entries of queues, as tools read them."""

import pytest

from broker.conftest import Cluster
from broker.talk import beat, heartbeat, send
from rmqpy.protocol.requests.messages import QueryConsumeQueue, QueueUnits, ViewMessageById
from wire import Peer, Refusal


async def units(peer: Peer, index: int, count: int, group: str | None = None, queue: int = 0) -> QueueUnits:
    ask = QueryConsumeQueue(topic="orders", queue_id=queue, index=index, count=count, consumer_group=group)
    return await peer.ask(ask)


async def test_a_queue_shows_its_entries_and_their_records_can_be_read(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        for _ in range(5):
            assert (await send(peer, "orders")).code == 0
        found = await units(peer, index=1, count=3)
        assert (found.min_queue_index, found.max_queue_index, len(found.queue_data)) == (0, 5, 3)
        for unit in found.queue_data:
            record = await peer.ask(ViewMessageById(offset=unit.physic_offset))
            assert len(record) == unit.physic_size
        assert [len((await units(peer, index, 10)).queue_data) for index in (-1, 4, 5, 99)] == [5, 1, 0, 0]


async def test_entries_of_a_queue_come_with_the_subscription_of_a_group(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        assert (await units(peer, 0, 1, "billing")).filter_data == "billing@orders is not online!"
        await beat(peer, heartbeat("one", "orders"))
        subscription = (await units(peer, 0, 1, "billing")).subscription_data
        assert subscription is not None
        assert subscription.sub_string == "*"


async def test_a_queue_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        with pytest.raises(Refusal, match="9@orders is not exist"):
            await units(peer, 0, 1, queue=9)
