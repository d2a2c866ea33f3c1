"""Interceptors: called once before and once after each message, and able to change it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.protocol.codes import ResponseCode
from rmqpy.server import Standalone
from waiting import until

from .fakes import Brokers, NameServer
from .live import Seen, send


class Marking(rmqpy.ProducerInterceptor):
    """Appends its name to the property `path`, and records its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[tuple[bytes, Any]] = []

    def before_send(self, message: rmqpy.Message) -> rmqpy.Message:
        path = message.properties.get("path", "") + self.name
        return message.replace(properties={"path": path})

    def after_send(self, message: rmqpy.Message, outcome: Any) -> None:
        assert self.name in message.properties["path"]
        self.told.append((message.body, outcome))


def paths(brokers: Brokers) -> list[str]:
    """Of the messages that were not sent in batches."""
    every = [(frame.ext or {})["i"] for broker in brokers for frame in broker.sends]
    return [text.split("path\x01")[1].split("\x02")[0] for text in every if "path\x01" in text]


def test_every_kind_of_send_calls_interceptors_in_order(name_server: NameServer, brokers: Brokers) -> None:
    outer, inner = Marking("a"), Marking("b")
    called: list[Any] = []
    with rmqpy.Producer(name_server.address, interceptors=[outer, inner]) as producer:
        result = producer.send("orders", b"sent")
        assert paths(brokers) == ["ab"]
        submitted = producer.submit(rmqpy.Message("orders", b"submitted"), callback=called.append).result()
        producer.flush()
        until(lambda: len(inner.told) == 2)
        producer.send_oneway("orders", b"gone")
        batch = producer.send_batch([rmqpy.Message("orders", body) for body in (b"one", b"two")])
    assert called == [submitted]
    expected = [
        (b"sent", result),
        (b"submitted", submitted),
        (b"gone", None),
        (b"one", batch[0]),
        (b"two", batch[1]),
    ]
    assert inner.told == expected
    assert [body for body, _ in outer.told] == [body for body, _ in expected]


def test_async_sends_call_interceptors_too(name_server: NameServer, brokers: Brokers) -> None:
    marking = Marking("a")

    async def use() -> None:
        async with rmqpy.AsyncProducer(name_server.address, interceptors=[marking]) as producer:
            await producer.send("orders", b"sent")
            await producer.submit("orders", b"nobody waits for")
            await producer.send_oneway("orders", b"gone")
            await producer.send_batch([rmqpy.Message("orders", b"one")])

    asyncio.run(use())
    bodies = {body for body, outcome in marking.told if body == b"gone" or outcome.ok}
    assert bodies == {b"sent", b"nobody waits for", b"gone", b"one"}
    assert paths(brokers) == ["a"] * 3


def test_failed_send_notifies_interceptors_with_its_error(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(ResponseCode.SYSTEM_ERROR)
    marking = Marking("a")
    with rmqpy.Producer(name_server.address, interceptors=[marking]) as producer:
        with pytest.raises(errors.SendError):
            producer.send("orders", b"sent")
        with pytest.raises(errors.SendError):
            producer.submit("orders", b"submitted").result()
        until(lambda: len(marking.told) == 2)
        with pytest.raises(errors.TopicNotFound):
            producer.submit("nowhere", b"no route")
        with pytest.raises(errors.SendError):
            producer.send_batch([rmqpy.Message("orders", b"one")])

    async def use() -> None:
        async with rmqpy.AsyncProducer(name_server.address, interceptors=[marking]) as producer:
            with pytest.raises(errors.SendError):
                await producer.send("orders", b"in a loop")

    asyncio.run(use())
    kinds = [(body, type(outcome)) for body, outcome in marking.told]
    assert kinds == [
        (b"sent", errors.SendError),
        (b"submitted", errors.SendError),
        (b"no route", errors.TopicNotFound),
        (b"one", errors.SendError),
        (b"in a loop", errors.SendError),
    ]


def test_interceptor_error_before_a_send_stops_it_and_after_changes_nothing(
    name_server: NameServer, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(rmqpy.ProducerInterceptor):
        def before_send(self, message: rmqpy.Message) -> rmqpy.Message:
            if message.body == b"secret":
                raise PermissionError("not this one")
            return message

        def after_send(self, message: rmqpy.Message, outcome: Any) -> None:
            raise ZeroDivisionError

    marking = Marking("a")
    with rmqpy.Producer(name_server.address, interceptors=[marking, Refusing()]) as producer:
        with pytest.raises(PermissionError):
            producer.send("orders", b"secret")
        assert [type(outcome) for _, outcome in marking.told] == [PermissionError]
        assert producer.send("orders", b"public").ok
        assert len([frame for broker in brokers for frame in broker.sends]) == 1
    assert any("an interceptor failed" in one.message for one in caplog.records)


class Watching(rmqpy.ConsumerInterceptor):
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def before_consume(self, messages: Sequence[rmqpy.ReceivedMessage]) -> None:
        self.told.append(("before", [message.text() for message in messages]))

    def after_consume(
        self, messages: Sequence[rmqpy.ReceivedMessage], result: Any, error: BaseException | None
    ) -> None:
        self.told.append(("after", [message.text() for message in messages], result, repr(error)))
        raise ZeroDivisionError


def test_handler_runs_between_interceptors_and_decides_alone(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    consumer = rmqpy.PushConsumer("watched", server.namesrv, interceptors=[watching], workers=1)

    @consumer.on(topic)
    def handle(message: rmqpy.ReceivedMessage) -> Any:
        if message.text() == "bad":
            raise ValueError("no")
        return rmqpy.ConsumeResult.DISCARD

    with caplog.at_level(logging.CRITICAL), consumer:
        send(server, topic, ["good"])
        until(lambda: len(watching.told) == 2)
        send(server, topic, ["bad"])
        until(lambda: consumer.stats().failed == 1)
        assert consumer.stats().discarded == 1
    assert watching.told == [
        ("before", ["good"]),
        ("after", ["good"], rmqpy.ConsumeResult.DISCARD, "None"),
        ("before", ["bad"]),
        ("after", ["bad"], None, "ValueError('no')"),
    ]


def test_interceptors_cover_async_and_batch_handlers(server: Standalone, topic: str) -> None:
    watching, seen = Watching(), Seen()

    async def use() -> None:
        consumer = rmqpy.AsyncPushConsumer(
            "watched-tasks", server.namesrv, interceptors=[watching], batch_size=2
        )

        @consumer.on(topic)
        async def handle(messages: list[rmqpy.ReceivedMessage]) -> None:
            await asyncio.sleep(0)
            for message in messages:
                seen(message)

        async with consumer:
            await asyncio.to_thread(send, server, topic, ["one"])
            await asyncio.to_thread(until, lambda: len(watching.told) == 2)

    asyncio.run(use())
    assert seen.bodies == ["one"]
    assert [told[:2] for told in watching.told] == [("before", ["one"]), ("after", ["one"])]


class Leaving(rmqpy.ProducerInterceptor):
    """Raises exceptions that normally end programs and tasks."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def after_send(self, message: rmqpy.Message, outcome: Any) -> None:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_sender_gets_the_result_despite_an_interceptor_error(
    name_server: NameServer, brokers: Brokers, error: BaseException
) -> None:
    with rmqpy.Producer(name_server.address, interceptors=[Leaving(error)]) as producer:
        assert producer.send("orders", b"sent").status.name == "SEND_OK"
        assert producer.submit("orders", b"submitted").result().status.name == "SEND_OK"
        assert len(producer.send_batch([rmqpy.Message("orders", b"one")])) == 1

    async def in_a_loop() -> None:
        async with rmqpy.AsyncProducer(name_server.address, interceptors=[Leaving(error)]) as producer:
            assert (await producer.send("orders", b"sent")).status.name == "SEND_OK"

    asyncio.run(asyncio.wait_for(in_a_loop(), 10))
