"""Push consumers in a group: queues are shared and change owners in order; in a broadcast, each member has all."""

import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import rmqpy
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, Seen, send


def test_members_share_the_queues_and_take_over_when_one_leaves(server: Standalone, topic: str) -> None:
    changes: list[rmqpy.Rebalance] = []
    seen = Seen()

    def member(**options: Any) -> rmqpy.PushConsumer:
        consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", **options)
        consumer.on(topic, "t", seen)
        return consumer

    def share(consumer: rmqpy.PushConsumer) -> set[rmqpy.MessageQueue]:
        return {queue for queue in consumer.queues() if queue.topic == topic}

    with member(on_rebalance=changes.append) as first:
        until(lambda: len(share(first)) == 4)
        with member() as second:
            until(lambda: len(share(first)) == len(share(second)) == 2)
            assert not share(first) & share(second)
            send(server, topic, BODIES)
            until(lambda: seen.has(*BODIES))
        until(lambda: len(share(first)) == 4)
        send(server, topic, ["last"])
        until(lambda: seen.has("last"))
    assert Counter(seen.bodies).most_common(1)[0][1] == 1
    assert any(len(change.revoked) == 2 for change in changes)
    assert not any(change.lost for change in changes)


def test_an_ordered_queue_is_handled_in_order_through_changes_of_its_owner(
    server: Standalone, topic: str
) -> None:
    by_key: dict[str, list[int]] = defaultdict(list)
    at_work: Counter[str] = Counter()
    overlaps: list[str] = []
    lock = threading.Lock()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        key = message.sharding_key
        assert key is not None
        with lock:
            at_work[key] += 1
            if at_work[key] > 1:
                overlaps.append(key)
        by_key[key].append(int(message.text()))
        with lock:
            at_work[key] -= 1

    def member() -> rmqpy.PushConsumer:
        consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", ordered=True, workers=2)
        consumer.on(topic, "t", handle)
        return consumer

    keys = "abcdefgh"
    sent = 0

    def send_some(producer: rmqpy.Producer) -> None:
        nonlocal sent
        for _ in range(50):
            for key in keys:
                producer.send(topic, str(sent), tag="t", sharding_key=key)
            sent += 1

    with rmqpy.Producer(server.namesrv) as producer, member() as first:
        send_some(producer)
        with member() as second:
            until(lambda: any(queue.topic == topic for queue in second.queues()))
            send_some(producer)
        send_some(producer)
        until(lambda: all(len(set(by_key[key])) == sent for key in keys))
        assert first.stats().failed == 0
    assert not overlaps
    for key in keys:
        # A queue with a new owner is read from its commit: finished but uncommitted messages are repeated, in order.
        firsts = list(dict.fromkeys(by_key[key]))
        assert firsts == sorted(firsts)
        assert by_key[key] == sorted(by_key[key])


def test_broadcast_members_get_every_message_and_resume_after_a_restart(
    server: Standalone, topic: str, tmp_path: Path
) -> None:
    sent = BODIES[:100]

    def member(name: str, seen: Seen) -> rmqpy.PushConsumer:
        consumer = rmqpy.PushConsumer(
            topic,
            server.namesrv,
            start_from="earliest",
            broadcast=True,
            instance=name,
            offset_folder=tmp_path,
        )
        consumer.on(topic, "t", seen)
        return consumer

    first, second, third = Seen(), Seen(), Seen()
    with member("one", first), member("two", second), member("three", third):
        send(server, topic, sent)
        until(lambda: all(one.has(*sent) for one in (first, second, third)))
    again = Seen()
    with member("one", again):
        send(server, topic, ["later"])
        until(lambda: again.has("later"))
    assert again.bodies == ["later"]
    files = sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("offsets.json"))
    assert files == ["127.0.0.1@one", "127.0.0.1@three", "127.0.0.1@two"]


def test_ordered_queue_has_one_handler_at_a_time_after_a_reset(server: Standalone, topic: str) -> None:
    gate, begun = threading.Event(), threading.Event()
    at_work: list[str] = []
    overlaps: list[tuple[str, ...]] = []
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        at_work.append(message.text())
        if len(at_work) > 1:
            overlaps.append(tuple(at_work))
        seen(message)
        if len(seen.bodies) == 3:
            begun.set()
            gate.wait(WAIT_S)
        at_work.remove(message.text())

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", ordered=True)
    consumer.on(topic, "t", handle)
    with consumer, rmqpy.Admin(server.namesrv) as admin:
        send(server, topic, BODIES[:5], sharding_key="k")
        assert begun.wait(WAIT_S)
        admin.reset_offsets(topic, topic, "begin")
        # Wakes the pull that waits, which meets the reset.
        send(server, topic, ["last"], sharding_key="k")
        # The reset has arrived when buffered messages are read again.
        until(lambda: consumer.stats().waiting >= 6)
        threading.Timer(0.3, gate.set).start()
        until(lambda: seen.has("last"))
    assert overlaps == []
    assert seen.bodies[3:] == [*BODIES[:5], "last"]
