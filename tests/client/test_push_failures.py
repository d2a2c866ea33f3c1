"""Messages whose handlers fail: they are redelivered later, and end as dead letters; others continue."""

import asyncio
import threading

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, Seen, committed, end, knows, send


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


def test_message_of_a_timed_out_handler_is_redelivered(server: Standalone, topic: str) -> None:
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


def test_message_is_redelivered_after_the_requested_delay_then_buried(server: Standalone, topic: str) -> None:
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


def test_failing_ordered_message_becomes_a_dead_letter_and_the_queue_continues(
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


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_no_exception_of_a_handler_completes_its_message(
    server: Standalone, topic: str, error: type[BaseException]
) -> None:
    seen: list[str] = []

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        if len(seen) == 1:
            raise error

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", ordered=True, suspend=0.01, workers=1
    )
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["0", "1"], sharding_key="k")
        until(lambda: "1" in seen)
    assert seen == ["0", "0", "1"]


def test_message_is_redelivered_after_system_exit_in_a_handler(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", workers=1)

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.text() == "0":
            raise asyncio.CancelledError

    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["0", "1", "2"], sharding_key="k")
        until(lambda: consumer.stats()[:2] == (2, 1))


async def test_a_task_that_a_handler_cancelled_is_a_failure_of_the_handler(
    server: Standalone, topic: str
) -> None:
    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", workers=1)

    async def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.text() == "0":
            task = asyncio.create_task(asyncio.Event().wait())
            task.cancel()
            await task

    consumer.on(topic, "t", handle)
    async with consumer:
        await asyncio.to_thread(send, server, topic, ["0", "1", "2"], sharding_key="k")
        await asyncio.to_thread(until, lambda: consumer.stats()[:2] == (2, 1))


async def test_cancelled_worker_fails_the_consumer_without_completing_its_message(
    server: Standalone, topic: str
) -> None:
    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", workers=1)
    begun = asyncio.Event()
    workers: list[asyncio.Task[None]] = []

    async def handle(message: rmqpy.ReceivedMessage) -> None:
        task = asyncio.current_task()
        assert task is not None
        workers.append(task)
        begun.set()
        await asyncio.Event().wait()

    consumer.on(topic, "t", handle)
    await consumer.start()
    await asyncio.to_thread(send, server, topic, ["0"], sharding_key="k")
    async with asyncio.timeout(WAIT_S):
        await begun.wait()
        workers[0].cancel()
        with pytest.raises(RuntimeError, match="cancelled by another task"):
            await consumer.wait()
    done = await asyncio.to_thread(committed, server, topic, topic)
    assert done == await asyncio.to_thread(end, server, topic) - 1
