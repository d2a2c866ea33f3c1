"""Pull consumers that share the queues of a group, against our servers."""

import asyncio

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, make_topic, send


def test_two_members_share_the_queues_and_hand_them_over_with_their_progress(
    server: Standalone, topic: str
) -> None:
    changes: list[rmqpy.Rebalance] = []
    seen: list[str] = []
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as first:
        first.subscribe(topic, "t", on_rebalance=changes.append)
        until(lambda: (first.poll(0.1), len(first.assignment()) == 4)[1])
        send(server, topic, BODIES[:100])
        until(lambda: (seen.extend(m.text() for m in first.poll(0.1)), len(seen) == 100)[1])
        with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as second:
            second.subscribe(topic, "t")
            until(lambda: (first.poll(0.05), len(first.assignment()) == 2)[1])
            until(lambda: (second.poll(0.05), len(second.assignment()) == 2)[1])
            assert not first.assignment() & second.assignment()
            send(server, topic, BODIES[:100])

            def take() -> bool:
                seen.extend(message.text() for one in (first, second) for message in one.poll(0.05))
                return len(seen) == 200

            until(take)
        until(lambda: (first.poll(0.1), len(first.assignment()) == 4)[1])
        assert first.poll(0.5) == []
    assert sorted(seen) == sorted([str(number) for number in range(100)] * 2)
    assert [len(change.assigned) for change in changes] == [4, 0, 2]
    assert len(changes[1].revoked) == 2


def test_a_queue_of_another_member_is_not_committed(server: Standalone, topic: str) -> None:
    with (
        rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as first,
        rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as second,
    ):
        first.subscribe(topic)
        second.subscribe(topic)
        until(lambda: (first.poll(0.05), second.poll(0.05), len(second.assignment()) == 2)[2])
        theirs = min(first.assignment())
        with pytest.raises(errors.QueueLost) as lost:
            second.commit({theirs: 1})
        assert lost.value.topic == topic
        second.commit({min(second.assignment()): 0})


def test_messages_of_a_lost_queue_are_not_committed(server: Standalone, topic: str) -> None:
    changes: list[rmqpy.Rebalance] = []
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as late:
        late.subscribe(topic, on_rebalance=changes.append)
        send(server, topic, BODIES[:8])
        received = 0
        while received < 9:
            received += len(late.poll(1))
        with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as other:
            other.subscribe(topic)
            # The late one does not poll: its queues are taken all the same.
            until(lambda: (other.poll(0.05), len(other.assignment()) == 2)[1])
            until(lambda: (share := late._follower.subscriber.newest) and len(share.view.queues) == 2)  # type: ignore[union-attr]
            with pytest.raises(errors.QueueLost):
                late.commit()
            late.poll(0)
            assert len(changes[-1].lost) == 2
            late.commit()
            assert len(late.assignment()) == 2


def test_queue_owned_by_another_in_between_resumes_at_its_progress(server: Standalone, topic: str) -> None:
    changes: list[rmqpy.Rebalance] = []
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as late:
        late.subscribe(topic, on_rebalance=changes.append)
        send(server, topic, BODIES[:40])
        until(lambda: (late.poll(0.1, max_messages=1), len(late.assignment()) == 4)[1])
        with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as other:
            other.subscribe(topic)
            until(lambda: (other.poll(0.05), len(other.assignment()) == 2)[1])
            while other.poll(0.5):
                pass
            reached = {queue: other.position(queue) for queue in other.assignment()}
        # The late one does not poll before the group is as it was.
        until(lambda: (share := late._follower.subscriber.newest) and len(share.view.queues) == 4)  # type: ignore[union-attr]
        changes.clear()
        until(lambda: (late.poll(0), changes)[1])
        until(lambda: (late.poll(0), len(late.assignment()) == 4)[1])
        assert {queue: late.position(queue) for queue in reached} == reached
        late.commit()
        assert {queue: late.committed(queue) for queue in reached} == reached
    assert frozenset.union(*(change.lost for change in changes)) == reached.keys()
    assert frozenset.union(*(change.assigned for change in changes)) == reached.keys()


def test_commit_works_in_on_rebalance(server: Standalone, topic: str) -> None:
    committed: list[int] = []
    with (
        rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as first,
        rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as second,
    ):

        def save(change: rmqpy.Rebalance) -> None:
            if change.revoked:
                first.commit()
                committed.extend(first.committed(queue) or 0 for queue in change.revoked)

        first.subscribe(topic, on_rebalance=save)
        send(server, topic, BODIES[:8])
        received = 0
        while received < 9:
            received += len(first.poll(1))
        second.subscribe(topic)
        until(lambda: (first.poll(0.05), len(first.assignment()) == 2)[1])
        until(lambda: (second.poll(0.05), len(second.assignment()) == 2)[1])
        assert second.poll(0.5) == []
    assert len(committed) == 2
    assert min(committed) >= 2


def test_subscribe_and_assign_exclude_each_other(server: Standalone, topic: str) -> None:
    with rmqpy.PullConsumer(topic, server.namesrv, auto_commit=False) as consumer:
        consumer.assign(consumer.queues(topic))
        with pytest.raises(RuntimeError, match="cannot follow assign"):
            consumer.subscribe(topic)
    with rmqpy.PullConsumer(topic, server.namesrv) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(RuntimeError, match="cannot follow subscribe"):
            consumer.assign(consumer.queues(topic))


async def test_async_members_share_queues_too(server: Standalone, topic: str) -> None:
    changes: list[rmqpy.Rebalance] = []
    async with rmqpy.AsyncPullConsumer(topic, server.namesrv, start_from="earliest") as consumer:

        async def note(change: rmqpy.Rebalance) -> None:
            await consumer.commit()
            changes.append(change)

        await consumer.subscribe(topic, "t", on_rebalance=note)
        await asyncio.to_thread(send, server, topic, BODIES[:20])
        seen: list[str] = []
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 20:
                seen += [message.text() for message in await consumer.poll(0.2)]
    assert sum(len(change.assigned) for change in changes) == 4


def test_one_subscribe_call_covers_several_topics_with_one_callback(server: Standalone, topic: str) -> None:
    topics = [f"{topic}-a", f"{topic}-b"]
    changes: list[rmqpy.Rebalance] = []
    for name in topics:
        make_topic(server, name)
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topics, on_rebalance=changes.append)
        until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 8)[1])
        with pytest.raises(ValueError, match="topic"):
            consumer.subscribe([])
    assert [{queue.topic for queue in change.assigned} for change in changes] == [set(topics)]


async def test_one_call_subscribes_to_several_topics_from_an_event_loop(
    server: Standalone, topic: str
) -> None:
    await asyncio.to_thread(make_topic, server, f"{topic}-b")
    async with rmqpy.AsyncPullConsumer(topic, server.namesrv) as consumer:
        await consumer.subscribe((topic, f"{topic}-b"))
        async with asyncio.timeout(WAIT_S):
            while len(consumer.assignment()) < 8:
                await consumer.poll(0.1)
