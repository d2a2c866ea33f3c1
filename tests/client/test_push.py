"""Push consumers and our servers, end to end: handled messages equal sent ones."""

import asyncio
import threading
from collections import Counter, defaultdict

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, Seen, committed, end, make_topic, send


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


async def test_coroutine_handlers_run_concurrently_in_the_callers_loop(
    server: Standalone, topic: str
) -> None:
    bodies: list[str] = []
    at_work = most_at_work = 0
    all_done = asyncio.Event()

    async def handle(message: rmqpy.ReceivedMessage) -> None:
        nonlocal at_work, most_at_work
        at_work += 1
        most_at_work = max(most_at_work, at_work)
        await asyncio.sleep(0.001)  # work, while the others begin
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


def test_new_group_begins_at_the_end_and_resumes_at_its_progress(server: Standalone, topic: str) -> None:
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


def test_handlers_can_be_added_and_removed_at_run_time(server: Standalone, topic: str) -> None:
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


def test_handlers_get_lists_with_a_batch_size(server: Standalone, topic: str) -> None:
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


def test_fetching_pauses_while_the_buffer_is_full(server: Standalone, topic: str) -> None:
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
    queues: dict[str, dict[str, set[rmqpy.MessageQueue]]] = {}

    def member(group: str) -> rmqpy.PushConsumer:
        seen = queues[group] = defaultdict(set)
        consumer = rmqpy.PushConsumer(group, server.namesrv, start_from="earliest")
        consumer.on(topic, "t", lambda message: seen[message.text()].add(message.queue))
        return consumer

    def has_seen(group: str, body: str) -> None:
        until(lambda: len(queues[group][body]) == 4)

    with member("paused") as consumer, member("others"):
        send(server, topic, ["a"] * 8)
        has_seen("paused", "a")
        consumer.pause()
        # A pull in flight returns the first of these; none follows it. The other group shows that they arrive.
        for body in "bcd":
            send(server, topic, [body] * 8)
            has_seen("others", body)
        assert not queues["paused"]["d"]
        consumer.resume()
        for body in "bcd":
            has_seen("paused", body)


def test_topic_created_later_is_read(server: Standalone) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer("early", server.namesrv, start_from="earliest")
    consumer.on("made-later", "*", seen)
    with consumer:
        send(server, "made-later", ["first"])
        until(lambda: seen.has("first"))
