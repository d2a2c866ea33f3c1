"""Failing handlers: unusable ones are refused, errors reach stderr, and dead letters contain them."""

import asyncio
import functools
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import rmqpy
from rmqpy.client.push import failures
from rmqpy.server import Standalone
from waiting import until

from .live import WAIT_S, Seen, knows, send


class Handling:
    """Callable objects and methods are handlers like functions."""

    def __call__(self, message: rmqpy.ReceivedMessage) -> None: ...

    def method(self, message: rmqpy.ReceivedMessage) -> None: ...

    def without_argument(self) -> None: ...

    async def later(self, message: rmqpy.ReceivedMessage) -> None: ...


class HandlingLater:
    async def __call__(self, message: rmqpy.ReceivedMessage) -> None: ...


def several(message: rmqpy.ReceivedMessage, other: object) -> None: ...


def generator(message: rmqpy.ReceivedMessage) -> Iterator[None]:
    yield


async def generator_later(message: rmqpy.ReceivedMessage) -> AsyncIterator[None]:
    yield


@pytest.fixture(params=[rmqpy.PushConsumer, rmqpy.AsyncPushConsumer])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("handle", "cannot be called"),
        (Handling().without_argument, "one argument, the message"),
        (several, "missing a required argument: 'other'"),
        (lambda: None, "too many positional arguments"),
        (generator, "never run"),
        (generator_later, "never run"),
    ],
)
def test_unusable_handler_is_refused(kind: Any, handler: Any, reason: str) -> None:
    consumer = kind("billing", "127.0.0.1:1")
    with pytest.raises(TypeError, match=reason):
        consumer.on("orders", "*", handler)
    with pytest.raises(TypeError, match=reason):
        consumer.on("orders")(handler)


@pytest.mark.parametrize(
    "handler", [Handling().later, HandlingLater(), functools.partial(Handling.later, Handling())]
)
def test_coroutine_handler_needs_an_async_consumer(handler: Any) -> None:
    with pytest.raises(TypeError, match="use AsyncPushConsumer"):
        rmqpy.PushConsumer("billing", "127.0.0.1:1").on("orders", "*", handler)
    with pytest.raises(TypeError, match="use AsyncPushConsumer"):
        rmqpy.PushConsumer("billing", "127.0.0.1:1", on_rebalance=handler)
    rmqpy.AsyncPushConsumer("billing", "127.0.0.1:1", on_rebalance=handler).on("orders", "*", handler)


@pytest.mark.parametrize(
    "handler",
    [
        Handling(),
        Handling().method,
        functools.partial(several, other=1),
        [].append,
        print,
        lambda message, extra=1: None,
        lambda *messages: None,
    ],
)
def test_any_callable_with_one_argument_is_a_handler(kind: Any, handler: Callable[..., Any]) -> None:
    assert kind("billing", "127.0.0.1:1").on("orders")(handler) is handler


def test_batches_are_named_in_the_refusal(kind: Any) -> None:
    with pytest.raises(TypeError, match="a list of messages"):
        kind("billing", "127.0.0.1:1", batch_size=10).on("orders", "*", lambda: None)


PROGRAM = """
import logging, sys, rmqpy
exec(sys.argv[3])
done = []
consumer = rmqpy.PushConsumer(sys.argv[2], sys.argv[1], start_from="earliest", max_attempts=1)
@consumer.on(sys.argv[2], "t")
def handle(message):
    done.append(message)
    if message.text() == "raises":
        raise ValueError("no such customer")
    return "done"
with consumer:
    while len(done) < 2 or consumer.stats().waiting:
        if consumer.wait(0.05): break
"""


def run(server: Standalone, topic: str, setup: str) -> str:
    send(server, topic, ["raises"])
    send(server, topic, ["means nothing"])
    command = [sys.executable, "-c", PROGRAM, server.namesrv, topic, setup]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_handler_failure_reaches_stderr_without_logging(server: Standalone, topic: str) -> None:
    stderr = run(server, topic, "import rmqpy.client.reports.stderr as s; s.STDERR_S = 0.0")
    assert "handler failed on message" in stderr
    assert "ValueError: no such customer" in stderr
    assert "TypeError: a handler returned 'done'" in stderr
    assert f"went to the dead letters, %DLQ%{topic}, after 1 of 1 attempts" in stderr


def test_failure_is_logged_once_or_never_as_configured(server: Standalone, topic: str) -> None:
    assert run(server, topic, "logging.basicConfig()").count("\nValueError: no such customer\n") == 1
    assert run(server, topic, "logging.lastResort = None") == ""


def test_absent_topic_is_reported_on_stderr_without_logging(server: Standalone) -> None:
    program = """
import sys, rmqpy
with rmqpy.PullConsumer("watchful", sys.argv[1]) as consumer:
    consumer.subscribe("ordres")
    consumer.poll(0.1)
"""
    command = [sys.executable, "-c", program, server.namesrv]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    assert told == "group watchful: topic ordres does not exist, checking again\n"


def test_reports_on_stderr_are_limited_and_dropped_ones_counted() -> None:
    program = """
import rmqpy.client.push.failures as failures, rmqpy.client.reports.stderr as stderr
stderr.STDERR_S = 60.0
class Message: message_id = "id"
for _ in range(100): failures.failed("orders", [Message], ValueError("no"))
# A minute later.
stderr.monotonic = lambda now=stderr.monotonic: now() + 60
failures.failed("orders", [Message], ValueError("last"))
"""
    stderr = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr
    assert stderr.count("ValueError: no\n") == 1
    assert "99 more reports" in stderr
    assert "ValueError: last" in stderr


@pytest.mark.parametrize(("max_attempts", "attempts"), [(2, 2), (None, 3)])
def test_last_attempt_is_numbered_and_becomes_a_dead_letter(
    server: Standalone,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    max_attempts: int | None,
    attempts: int,
) -> None:
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry:
        seen(message)
        if message.delivery_attempt == attempts:
            raise ValueError("no customer\x01\x02\n of this name" + 2000 * "!")
        return rmqpy.Retry(after=1)

    with rmqpy.Admin(server.namesrv) as admin:
        # A consumer without a limit uses the group's.
        admin.create_group(topic, retry_max=2)
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", max_attempts=max_attempts)
    consumer.on(topic, "t", handle)
    with consumer, rmqpy.PullConsumer("undertaker", server.namesrv, start_from="earliest") as dead:
        send(server, topic, ["bad"], properties={"customer": "7"}, keys=["k"])
        until(lambda: knows(dead, f"%DLQ%{topic}"))
        dead.assign(dead.queues(f"%DLQ%{topic}"))
        [letter] = dead.poll(WAIT_S)
        until(lambda: "went to the dead letters" in caplog.text)
        assert dead.poll(0.2) == []
    assert len(seen.bodies) == attempts
    assert f"after {attempts} of {attempts} attempts: ValueError: no customer" in caplog.text
    assert letter.properties["CONSUME_ERROR"].startswith("ValueError: no customer of this name!!!")
    assert len(letter.properties["CONSUME_ERROR"]) == failures.TEXT_MAX
    assert (letter.text(), letter.tag, letter.keys) == ("bad", "t", ("k",))
    assert (letter.properties["customer"], letter.properties["RETRY_TOPIC"]) == ("7", topic)
    with rmqpy.Admin(server.namesrv) as admin:
        [(_, told)] = admin.dlq(topic)
        assert told.message_id == letter.message_id


@pytest.mark.parametrize(("max_attempts", "is_ordered"), [(None, False), (1, False), (1, True)])
def test_without_retry_queues_a_message_is_dropped(
    server: Standalone,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    max_attempts: int | None,
    is_ordered: bool,
) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_group(topic, retry_queues=0)
    handled: list[str] = []

    def handle(message: rmqpy.ReceivedMessage) -> bool:
        handled.append(message.text())
        return message.text() != "bad"

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", max_attempts=max_attempts, ordered=is_ordered
    )
    consumer.on(topic, "t", handle)
    with consumer:
        send(server, topic, ["bad", "good"], sharding_key="k")
        until(lambda: "good" in handled and "dropped after" in caplog.text)
    assert (
        f"of {topic} dropped after 1 failed attempts, because group {topic} has no retry queues: "
        "the handler returned False" in caplog.text
    )
    assert "went to the dead letters" not in caplog.text
    assert handled.count("bad") == 1
    with rmqpy.Admin(server.namesrv) as admin:
        assert list(admin.dlq(topic)) == []


def test_ordered_queue_reports_dropped_messages_too(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", ordered=True, suspend=0.01, max_attempts=3
    )
    consumer.on(topic, "t", lambda message: message.text() != "1")
    with consumer, rmqpy.PullConsumer("undertaker", server.namesrv, start_from="earliest") as dead:
        send(server, topic, ["0", "1"], sharding_key="k")
        until(lambda: knows(dead, f"%DLQ%{topic}"))
        dead.assign(dead.queues(f"%DLQ%{topic}"))
        [letter] = dead.poll(WAIT_S)
        until(lambda: "after 3 of 3 attempts: the handler returned False" in caplog.text)
    assert letter.properties["CONSUME_ERROR"] == "the handler returned False"


async def test_a_batch_result_with_other_messages_is_a_failure(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    others: list[rmqpy.ReceivedMessage] = []

    async def handle(messages: list[rmqpy.ReceivedMessage]) -> rmqpy.BatchResult:
        others.extend(messages)
        return rmqpy.BatchResult(failed=others[:1])

    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", batch_size=2, workers=1)
    consumer.on(topic, "t", handle)
    with caplog.at_level(logging.ERROR):
        async with consumer:
            await asyncio.to_thread(send, server, topic, ["0", "1", "2"], sharding_key="k")
            await asyncio.to_thread(until, lambda: "not in its batch" in caplog.text)
