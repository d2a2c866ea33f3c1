"""Push consumers and our own servers, end to end: handled is what was sent, whatever happens to the group."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone

#: Patience with a loaded machine.
WAIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Standalone) -> str:
    """A topic of four queues that every name server knows."""
    name: str = request.node.name
    name = name.replace("[", "-").replace("]", "").replace(" ", "-")[:60]
    make_topic(server, name)
    return name


def make_topic(server: Standalone, name: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer, rmqpy.PullConsumer("probe", server.namesrv) as probe:
        # The first message makes it; no test wants to see that one.
        producer.send(name, b"first", tag="first")
        until(lambda: knows(probe, name))


def knows(probe: rmqpy.PullConsumer, topic: str) -> bool:
    try:
        return bool(probe.queues(topic))
    except errors.TopicNotFound:
        return False


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def send(server: Standalone, topic: str, bodies: list[str], **fields: Any) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [producer.submit(rmqpy.Message(topic, body, tag="t", **fields)) for body in bodies]:
            future.result()


def committed(server: Standalone, group: str, topic: str) -> int:
    """Messages of the topic that the group has done with."""
    with rmqpy.PullConsumer(group, server.namesrv, auto_commit=False) as probe:
        return sum(probe.committed(queue) or 0 for queue in probe.queues(topic))


def end(server: Standalone, topic: str) -> int:
    with rmqpy.PullConsumer("probe", server.namesrv, auto_commit=False) as probe:
        return sum(probe.offsets(queue)[1] for queue in probe.queues(topic))


class Seen:
    """What handlers were called with, from any thread."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, message: rmqpy.ReceivedMessage) -> None:
        with self._lock:
            self.bodies.append(message.text())

    def has(self, *bodies: str) -> bool:
        return set(bodies) <= set(self.bodies)


BODIES = [str(number) for number in range(500)]


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_every_message_is_handled_once_and_committed_at_the_end(
    server: Standalone, topic: str, ordered: bool
) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, ordered=ordered, start_from="earliest")
    consumer.on(topic, "t", seen)
    with consumer:
        send(server, topic, BODIES)
        until(lambda: seen.has(*BODIES))
        assert consumer.stats().consumed == len(BODIES)
    assert Counter(seen.bodies) == Counter(BODIES)
    assert committed(server, topic, topic) == end(server, topic)


async def test_coroutine_handlers_run_side_by_side_in_the_callers_loop(
    server: Standalone, topic: str
) -> None:
    bodies: list[str] = []
    at_work = most_at_work = 0
    all_done = asyncio.Event()

    async def handle(message: rmqpy.ReceivedMessage) -> None:
        nonlocal at_work, most_at_work
        at_work += 1
        most_at_work = max(most_at_work, at_work)
        await asyncio.sleep(0.001)
        at_work -= 1
        bodies.append(message.text())
        if len(bodies) == 100:
            all_done.set()

    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", workers=4)
    consumer.on(topic, "t", handle)
    await asyncio.to_thread(send, server, topic, BODIES[:100])
    async with consumer, asyncio.timeout(WAIT_S):
        await all_done.wait()
    assert sorted(bodies) == sorted(BODIES[:100])
    assert most_at_work == 4


def test_a_new_group_begins_at_the_end_and_goes_on_where_it_stopped(server: Standalone, topic: str) -> None:
    send(server, topic, ["before"])
    seen = Seen()
    for body in ("while", "after"):
        consumer = rmqpy.PushConsumer(topic, server.namesrv)
        consumer.on(topic, "*", seen)
        with consumer:
            until(lambda: len(consumer.queues()) >= 4)  # noqa: B023 - called at once
            send(server, topic, [f"{body} it ran"])
            until(lambda: seen.has(f"{body} it ran"))  # noqa: B023
        send(server, topic, [f"{body} it stopped"])
    assert seen.bodies == ["while it ran", "while it stopped", "after it ran"]


def test_only_messages_with_a_wanted_tag_are_handled(server: Standalone, topic: str) -> None:
    seen = Seen()
    with rmqpy.Producer(server.namesrv) as producer:
        # "Aa" and "BB" have equal hashes: the broker lets both through.
        for tag in ("Aa", "BB", "C", None):
            producer.send(topic, str(tag), tag=tag)
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "Aa || C", seen)
    with consumer:
        until(lambda: seen.has("Aa", "C"))
    assert sorted(seen.bodies) == ["Aa", "C"]
    assert committed(server, topic, topic) == end(server, topic)


def test_handlers_come_and_go_while_the_consumer_runs(server: Standalone, topic: str) -> None:
    other = f"{topic}-other"
    make_topic(server, other)
    first, second = Seen(), Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "t", first)
    with consumer:
        send(server, topic, ["a"])
        until(lambda: first.has("a"))
        consumer.on(other, "t", second)
        send(server, other, ["b"])
        until(lambda: second.has("b"))
        consumer.off(topic)
        until(lambda: {queue.topic for queue in consumer.queues()} == {other, f"%RETRY%{topic}"})
    assert first.bodies == ["a"]


def test_changed_tags_hold_from_the_next_message_on(server: Standalone, topic: str) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "other", seen)
    with consumer:
        consumer.on(topic, "t", seen)
        send(server, topic, ["wanted"])
        until(lambda: seen.has("wanted"))


def test_handlers_get_lists_where_a_batch_size_is_set(server: Standalone, topic: str) -> None:
    sizes: list[int] = []
    bodies: list[str] = []

    def handle(messages: list[rmqpy.ReceivedMessage]) -> None:
        sizes.append(len(messages))
        bodies.extend(message.text() for message in messages)

    send(server, topic, BODIES)
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", batch_size=16)
    consumer.on(topic, "t", handle)
    with consumer:
        until(lambda: len(bodies) == len(BODIES))
    assert max(sizes) == 16
    assert sorted(bodies) == sorted(BODIES)


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
        # A queue that changes hands is read from its commit: what was done and not committed comes again, in order.
        firsts = list(dict.fromkeys(by_key[key]))
        assert firsts == sorted(firsts)
        assert by_key[key] == sorted(by_key[key])


def test_an_ordered_queue_waits_for_a_message_that_fails(server: Standalone, topic: str) -> None:
    seen: list[str] = []
    failures = 2

    def handle(message: rmqpy.ReceivedMessage) -> None:
        nonlocal failures
        seen.append(message.text())
        if message.text() == "1" and failures:
            failures -= 1
            raise RuntimeError("not yet")

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", ordered=True, suspend=0.01)
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["0", "1", "2"], sharding_key="k")
        until(lambda: "2" in seen)
    assert seen == ["0", "1", "1", "1", "2"]


def test_every_broadcast_member_gets_every_message_and_goes_on_where_it_stopped(
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


def test_reading_stops_when_enough_lies_here_and_goes_on_when_it_is_handled(
    server: Standalone, topic: str
) -> None:
    gate = threading.Event()
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        gate.wait(WAIT_S)
        seen(message)

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", workers=1, prefetch_messages=10
    )
    consumer.on(topic, "t", handle)
    send(server, topic, BODIES, sharding_key="one queue")
    with consumer:
        until(lambda: consumer.stats().waiting >= 10)
        assert consumer.stats().waiting <= 20
        gate.set()
        until(lambda: seen.has(*BODIES))


def test_a_paused_consumer_fetches_nothing_until_it_is_resumed(server: Standalone, topic: str) -> None:
    seen: dict[str, set[rmqpy.MessageQueue]] = defaultdict(set)

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen[message.text()].add(message.queue)

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["a"] * 8)
        until(lambda: len(seen["a"]) == 4)
        consumer.pause()
        # Each queue has a pull under way, which may still bring something; the one after it is not made.
        send(server, topic, ["b"] * 8)
        until(lambda: len(seen["b"]) == 4)
        send(server, topic, ["c"] * 8)
        time.sleep(0.2)
        assert not seen["c"]
        consumer.resume()
        until(lambda: len(seen["c"]) == 4)


def test_a_failed_message_is_sent_back_and_the_others_are_committed(server: Standalone, topic: str) -> None:
    failed = threading.Event()

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.ConsumeResult | None:
        if message.text() == "7":
            failed.set()
            return rmqpy.ConsumeResult.RETRY
        return None

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, BODIES[:20])
        assert failed.wait(WAIT_S)
        until(lambda: consumer.stats().waiting == 0)
        assert consumer.stats()[:2] == (19, 1)
    assert committed(server, topic, topic) == end(server, topic)


def test_a_handler_that_takes_too_long_gives_its_message_to_somebody_else(
    server: Standalone, topic: str
) -> None:
    gate = threading.Event()
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.text() == "slow":
            gate.wait(WAIT_S)
        seen(message)

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", workers=2, consume_timeout=0.3
    )
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["slow", "quick"], sharding_key="one queue")
        until(lambda: seen.has("quick") and consumer.stats().waiting == 0)
        gate.set()


def test_closing_waits_for_handlers_at_work_and_begins_no_other(server: Standalone, topic: str) -> None:
    begun, gate = threading.Event(), threading.Event()
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        begun.set()
        gate.wait(WAIT_S)
        seen(message)

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", workers=1)
    consumer.on(topic, "t", handle)
    consumer.start()
    send(server, topic, BODIES[:10], sharding_key="one queue")
    assert begun.wait(WAIT_S)
    threading.Timer(0.2, gate.set).start()
    consumer.close()
    assert seen.bodies == ["0"]
    again = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv)
    consumer.on(topic, "t", again)
    with consumer:
        until(lambda: again.has(*BODIES[1:10]))
    assert sorted(again.bodies) == BODIES[1:10]


def test_a_handler_may_close_its_own_consumer(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "t", lambda message: consumer.close())
    consumer.start()
    send(server, topic, ["stop"])
    assert consumer.wait(WAIT_S)
    assert committed(server, topic, topic) == end(server, topic)


def test_run_ends_when_another_thread_closes_it(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv)
    consumer.on(topic, "t", lambda message: None)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    until(consumer.queues)
    consumer.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_consumer_that_cannot_reach_anybody_says_so_at_once() -> None:
    config = rmqpy.ClientConfig(namesrv="127.0.0.1:1", request_timeout=0.5)
    consumer = rmqpy.PushConsumer("lost", config)
    consumer.on("orders", "*", lambda message: None)
    with pytest.raises(errors.NameServerUnreachable):
        consumer.start()


def test_a_consumer_without_handlers_is_not_started(server: Standalone) -> None:
    with pytest.raises(errors.ConfigError, match="no handler"):
        rmqpy.PushConsumer("idle", server.namesrv).start()


def test_a_consumer_whose_group_is_refused_raises() -> None:
    with testing.broker(autoCreateSubscriptionGroup=False) as server:
        make_topic(server, "orders")
        consumer = rmqpy.PushConsumer("nobody", server.namesrv)
        consumer.on("orders", "*", lambda message: None)
        with pytest.raises(errors.GroupNotFound):
            consumer.run()


def test_a_topic_made_later_is_read_when_it_is_there(server: Standalone) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer("early", server.namesrv, start_from="earliest")
    consumer.on("made-later", "*", seen)
    with consumer:
        send(server, "made-later", ["first"])
        until(lambda: seen.has("first"))


def test_a_message_comes_again_after_the_delay_its_handler_asked_for_and_then_as_a_dead_letter(
    server: Standalone, topic: str
) -> None:
    seen: list[tuple[str, str, int]] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry:
        seen.append((message.topic, message.text(), message.delivery_attempt))
        return rmqpy.Retry(after=1)

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", max_attempts=3)
    consumer.on(topic, "t", handle)
    with consumer, rmqpy.PullConsumer("undertaker", server.namesrv, start_from="earliest") as dead:
        send(server, topic, ["bad"])
        until(lambda: len(seen) == 3)
        until(lambda: knows(dead, f"%DLQ%{topic}"))
        dead.assign(dead.queues(f"%DLQ%{topic}"))
        [letter] = dead.poll(WAIT_S)
    assert seen == [(topic, "bad", 1), (topic, "bad", 2), (topic, "bad", 3)]
    assert letter.text() == "bad"


def test_an_ordered_message_that_never_passes_becomes_a_dead_letter_and_the_queue_goes_on(
    server: Standalone, topic: str
) -> None:
    seen: list[str] = []

    def handle(message: rmqpy.ReceivedMessage) -> bool:
        seen.append(message.text())
        return message.text() != "1"

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", ordered=True, suspend=0.01, max_attempts=2
    )
    consumer.on(topic, "t", handle)
    with consumer, rmqpy.PullConsumer("undertaker", server.namesrv, start_from="earliest") as dead:
        send(server, topic, ["0", "1", "2"], sharding_key="k")
        until(lambda: "2" in seen)
        until(lambda: knows(dead, f"%DLQ%{topic}"))
        dead.assign(dead.queues(f"%DLQ%{topic}"))
        [letter] = dead.poll(WAIT_S)
    assert seen == ["0", "1", "1", "2"]
    assert letter.text() == "1"
