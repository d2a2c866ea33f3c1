"""Message trace: records of producers and consumers with `trace`, at our broker with its defaults."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import foreign
import rmqpy
from rmqpy import errors, testing
from rmqpy.admin.traces import Step
from rmqpy.client.producer.producer import open_send
from rmqpy.client.trace import dispatcher as trace_dispatcher
from rmqpy.client.trace.dispatcher import TraceDispatcher
from rmqpy.protocol.names import TRACE_TOPIC
from rmqpy.server import Standalone
from waiting import until

from .live import make_topic


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        make_topic(server, "orders")
        yield server


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send traces soon."""
    monkeypatch.setattr(trace_dispatcher, "INTERVAL_S", 0.02)


def found(server: Standalone, message_id: str, count: int, trace_topic: str = TRACE_TOPIC) -> list[Step]:
    """Return the steps of a message, once this number has ended."""
    steps: list[Step] = []

    def have_ended() -> bool:
        with rmqpy.Admin(server.namesrv) as admin:
            try:
                steps[:] = admin.trace(message_id, trace_topic=trace_topic)
            except (errors.MessageNotFound, errors.TopicNotFound):
                return False
        return len([step for step in steps if step.outcome is not None]) >= count

    until(have_ended)
    return steps


@contextmanager
def consuming(server: Standalone, group: str, handler: Callable[..., object]) -> Iterator[None]:
    consumer = rmqpy.PushConsumer(group, server.namesrv, start_from="earliest", trace=True)
    consumer.on("orders", handler=handler)
    with consumer:
        yield


def test_a_message_is_followed_from_its_producer_through_each_delivery(
    server: Standalone, prompt: None
) -> None:
    with rmqpy.Producer(server.namesrv, group="shop", trace=True) as producer:
        sent = producer.send("orders", b"hello", tag="paid", keys=["A-1", "A-2"])
        assert producer.dropped_traces == 0
    calls = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry | None:
        if message.message_id == sent.message_id:
            calls.append(message)
            if len(calls) == 1:
                return rmqpy.Retry(after=1)
        return None

    with consuming(server, "billing", handle):
        steps = found(server, sent.message_id, 3)
    assert [(step.what, step.group, step.attempt, step.outcome) for step in steps] == [
        ("send", "shop", None, "success"),
        ("consume", "billing", 1, "failed"),
        ("consume", "billing", 2, "success"),
    ]
    assert steps[0].topic == "orders"
    assert steps[0].broker == server.broker
    with rmqpy.Admin(server.namesrv) as admin:
        assert admin.messages_by_key(TRACE_TOPIC, "A-2"), "keys find it, too"


def test_foreign_keys_do_not_end_the_trace(server: Standalone, prompt: None) -> None:
    with foreign.producer(server, "orders") as store:
        store(b"foreign", {"KEYS": "a\tb", "UNIQ_KEY": "foreign-1"})
    with consuming(server, "keys", lambda message: None):
        found(server, "foreign-1", 1)
        with rmqpy.Producer(server.namesrv) as producer:
            sent = producer.send("orders", b"after")
        steps = found(server, sent.message_id, 1)
    assert [(step.what, step.group, step.outcome) for step in steps] == [("consume", "keys", "success")]


def test_polled_messages_are_traced_as_consumed(server: Standalone, prompt: None) -> None:
    with rmqpy.Producer(server.namesrv, group="shop", trace=True) as producer:
        sent = [producer.send("orders", b"polled", keys="P-1") for _ in range(3)]
    with rmqpy.PullConsumer("audit", server.namesrv, start_from="earliest", trace=True) as consumer:
        consumer.subscribe("orders")
        wanted = {each.message_id for each in sent}
        while wanted:
            wanted -= {message.message_id for message in consumer.poll(timeout=1)}
    assert consumer.dropped_traces == 0
    for each in sent:
        steps = found(server, each.message_id, 2)
        assert [(step.what, step.group, step.attempt, step.outcome) for step in steps] == [
            ("send", "shop", None, "success"),
            ("consume", "audit", 1, "success"),
        ]


def test_async_poll_is_traced_too(server: Standalone, prompt: None) -> None:
    async def use() -> str:
        async with rmqpy.AsyncPullConsumer("late-audit", server.namesrv, trace=True) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            with rmqpy.Producer(server.namesrv) as producer:
                sent = producer.send("orders", b"polled in a loop")
            while sent.message_id not in {each.message_id for each in await consumer.poll(timeout=1)}:
                pass
            return sent.message_id

    [step] = found(server, asyncio.run(use()), 1)
    assert (step.what, step.group, step.outcome) == ("consume", "late-audit", "success")


def test_every_kind_of_send_is_traced_once(server: Standalone, prompt: None) -> None:
    with rmqpy.Producer(server.namesrv, group="shop", trace="own-traces") as producer:
        one = rmqpy.Message("orders", b"again and again")
        sent = [
            producer.send(one),
            producer.submit(one).result(),
            producer.submit("orders", b"called back", callback=lambda _: None).result(),
            *producer.send_batch([rmqpy.Message("orders", b"first"), rmqpy.Message("orders", b"second")]),
            producer.send("orders", b"later", delay_level=1),
        ]

    async def use() -> list[rmqpy.SendResult]:
        async with rmqpy.AsyncProducer(server.namesrv, group="shop", trace="own-traces") as producer:
            futures = [await producer.submit("orders", b"in a loop") for _ in range(2)]
            return [await future for future in futures]

    sent += asyncio.run(use())
    for each in sent:
        [step] = found(server, each.message_id, 1, "own-traces")
        assert (step.what, step.group, step.outcome) == ("send", "shop", "success")


def test_transaction_traces_its_half_and_its_end(server: Standalone, prompt: None) -> None:
    with rmqpy.Producer(server.namesrv, group="transfers", trace=True) as producer:
        with producer.transaction("orders", b"committed", keys="T-1") as committed:
            pass
        with producer.transaction("orders", b"rolled back") as rolled_back:
            rolled_back.rollback()
    for half, outcome in [(committed.half, "committed"), (rolled_back.half, "rolled back")]:
        steps = found(server, half.message_id, 2)
        assert [(step.what, step.outcome) for step in steps] == [
            ("send", "success"),
            ("end transaction", outcome),
        ]


def test_failing_and_async_handlers_are_traced_correctly(server: Standalone, prompt: None) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        sent = producer.send("orders", b"hello")

    def fail(message: rmqpy.ReceivedMessage) -> None:
        if message.message_id == sent.message_id:
            raise ValueError("not today")

    with consuming(server, "failing", fail):
        [step] = found(server, sent.message_id, 1)
    assert (step.what, step.outcome) == ("consume", "exception")

    async def use() -> list[Step]:
        consumer = rmqpy.AsyncPushConsumer("awaiting", server.namesrv, start_from="earliest", trace=True)

        @consumer.on("orders")
        async def handle(message: rmqpy.ReceivedMessage) -> None:
            await asyncio.sleep(0)

        async with consumer:
            return await asyncio.to_thread(found, server, sent.message_id, 2)

    assert ("awaiting", "success") in [(step.group, step.outcome) for step in asyncio.run(use())]


def test_nothing_is_traced_if_the_broker_disables_it() -> None:
    with testing.broker(traceOn=False) as server:
        make_topic(server, "orders")
        with rmqpy.Producer(server.namesrv, group="shop", trace=True) as producer:
            producer.send("orders", b"hello")
            with producer.transaction("orders", b"half"):
                pass
        handled = threading.Event()
        with consuming(server, "billing", lambda message: handled.set()):
            assert handled.wait(30)
        with rmqpy.Admin(server.namesrv) as admin, pytest.raises(errors.TopicNotFound):
            admin.topic(TRACE_TOPIC)


def test_sends_continue_while_traces_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_dispatcher, "NOTES_MAX", 10)
    with testing.broker(autoCreateTopicEnable=False) as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
        with rmqpy.Producer(server.namesrv, group="shop", trace=True) as producer:
            for _ in range(100):
                assert producer.send("orders", b"hello").ok
            assert producer.dropped_traces > 0
        assert producer.dropped_traces == 100
    told = [record.getMessage() for record in caplog.records if "trace" in record.getMessage()]
    assert any(TRACE_TOPIC in text and "dropped" in text for text in told)
    assert len(told) <= 3, "once, not for each"


def test_trace_messages_respect_key_and_body_limits(server: Standalone, prompt: None) -> None:
    dispatcher = TraceDispatcher(
        rmqpy.ClientConfig.of(server.namesrv), "many-traces", "shop", "PRODUCE", open_send
    )
    for number in range(5_000):
        dispatcher.put(f"Recall\x011\x01R\x01shop\x01orders\x01ID{number:030}\x01true\x02", f"ID{number:030}")
    dispatcher.put("Recall\x011\x01R\x01shop\x01orders\x01IDX\x01true\x02", "IDX", ["K" * 30_000])
    dispatcher.close()
    assert dispatcher.dropped == 0
    for message_id in (f"ID{0:030}", f"ID{4_999:030}", "IDX"):
        assert found(server, message_id, 1, "many-traces")
    with rmqpy.Admin(server.namesrv) as admin:
        stored = sum(queue.end for queue in admin.topic("many-traces"))
    assert stored < 20
