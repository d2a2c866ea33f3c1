"""Requests and replies against our servers: guarantees for requesters and repliers, and the state after failures."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone
from rmqpy.testing import Cluster
from waiting import until

from .live import WAIT_S, make_topic

#: Nobody answers in a time this short; where somebody does, requests have much more.
SHORT_S = 1.0

Handler = Callable[[rmqpy.ReceivedMessage], object]


def upper(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
    """Answers requests; the first message of a topic is none."""
    if "REPLY_TO_CLIENT" not in message.properties:
        return None
    return rmqpy.Reply(message.text().upper(), properties={"colour": "red"})


def replier(namesrv: str, topic: str, handler: Handler = upper, **options: object) -> rmqpy.PushConsumer:
    consumer = rmqpy.PushConsumer(topic, namesrv, start_from="earliest", **options)  # type: ignore[arg-type]
    consumer.on(topic, handler=handler)  # type: ignore[arg-type]
    return consumer


@pytest.fixture
def requester(server: Standalone) -> Iterator[rmqpy.Producer]:
    with rmqpy.Producer(server.namesrv, group="requesters") as producer:
        yield producer


def test_a_request_returns_what_the_handler_of_a_consumer_replies(
    server: Standalone, topic: str, requester: rmqpy.Producer
) -> None:
    with replier(server.namesrv, topic):
        reply = requester.request(topic, "apples", timeout=WAIT_S)
        assert reply.text() == "APPLES"
        assert reply.properties["colour"] == "red"
        assert reply.born_at <= reply.stored_at
        message = rmqpy.Message(topic, "pears", tag="fruit", keys="P-1")
        assert requester.request(message, timeout=WAIT_S).body == b"PEARS"
    assert requester.late_replies == 0


def test_a_large_reply_travels_compressed_and_arrives_as_it_was(
    server: Standalone, topic: str, requester: rmqpy.Producer
) -> None:
    with replier(server.namesrv, topic, lambda message: rmqpy.Reply(message.body * 1_000)):
        reply = requester.request(topic, "pears" * 20, timeout=WAIT_S)
    assert (reply.body, reply.sys_flag & 1) == (b"pears" * 20_000, 1)


@pytest.mark.parametrize("ordered", [False, True])
async def test_requests_from_event_loops_to_coroutine_handlers(
    server: Standalone, topic: str, ordered: bool
) -> None:
    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", ordered=ordered)

    @consumer.on(topic)
    async def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        await asyncio.sleep(0)
        return upper(message)

    async with consumer, rmqpy.AsyncProducer(server.namesrv) as producer:
        assert (await producer.request(topic, "apples", timeout=WAIT_S)).text() == "APPLES"
        futures = [await producer.submit_request(topic, f"a{n}", timeout=WAIT_S) for n in range(50)]
        assert [(await each).text() for each in futures] == [f"A{n}" for n in range(50)]
        cancelled = await producer.submit_request(topic, "nobody waits", timeout=WAIT_S)
        cancelled.cancel()
        # Its reply is dropped, which disturbs nobody.
        assert (await producer.request(topic, "pears", timeout=WAIT_S)).text() == "PEARS"


def test_submitted_requests_have_futures_and_callbacks_that_may_send_requests(
    server: Standalone, topic: str, requester: rmqpy.Producer
) -> None:
    told: list[str] = []
    threads: set[str] = set()
    has_all = threading.Event()

    def call_back(outcome: rmqpy.ReceivedMessage | errors.RocketMQError) -> None:
        assert isinstance(outcome, rmqpy.ReceivedMessage)
        threads.add(threading.current_thread().name)
        told.append(requester.request(topic, outcome.text() + "!", timeout=WAIT_S).text())
        if len(told) == 20:
            has_all.set()
        raise RuntimeError("it is logged, and disturbs nobody")

    with replier(server.namesrv, topic, ordered=True):
        futures: list[Future[rmqpy.ReceivedMessage]] = [
            requester.submit_request(topic, f"a{n}", callback=call_back, timeout=WAIT_S) for n in range(20)
        ]
        assert [future.result(WAIT_S).text() for future in futures] == [f"A{n}" for n in range(20)]
        assert has_all.wait(WAIT_S)
    assert sorted(told) == sorted(f"A{n}!" for n in range(20))
    assert threads == {"rmqpy-requests"}


def test_late_reply_is_dropped_and_counted(server: Standalone, topic: str, requester: rmqpy.Producer) -> None:
    gate = threading.Event()
    late = requester.late_replies

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        if message.text() == "slow":
            gate.wait(WAIT_S)
        return upper(message)

    with replier(server.namesrv, topic, handle):
        assert requester.request(topic, "quick", timeout=WAIT_S).text() == "QUICK"
        with pytest.raises(
            errors.RequestTimeout, match=f"no reply to the request to {topic} within {SHORT_S:g} s"
        ):
            requester.request(topic, "slow", timeout=SHORT_S)
        submitted = requester.submit_request(topic, "slow", timeout=SHORT_S)
        with pytest.raises(errors.RequestTimeout):
            submitted.result(WAIT_S)
        gate.set()
        until(lambda: requester.late_replies == late + 2)
        # They were replies: nothing is delivered again, and others are answered.
        assert requester.request(topic, "quick", timeout=WAIT_S).text() == "QUICK"


def test_failing_handler_sends_no_reply_and_gets_the_request_again() -> None:
    attempts: list[int] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        if message.text() == "difficult":
            attempts.append(message.delivery_attempt)
            if message.delivery_attempt < 3:
                raise RuntimeError("not yet")
        return upper(message)

    with (
        testing.broker(messageDelayLevel="1s 1s 1s 1s") as server,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        make_topic(server, "orders")
        with replier(server.namesrv, "orders", handle) as consumer:
            assert producer.request("orders", "easy", timeout=WAIT_S).text() == "EASY"
            waiting = producer.submit_request("orders", "difficult", timeout=2 * WAIT_S)
            with pytest.raises(errors.RequestTimeout):
                producer.request("orders", "difficult", timeout=SHORT_S)
            # The third attempt answers, to who waits still.
            assert waiting.result(2 * WAIT_S).text() == "DIFFICULT"
            until(lambda: consumer.stats().failed == 4)
            until(lambda: sorted(attempts) == [1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize("batch_size", [1, 4])
def test_consumer_can_reply_later_and_for_a_batch(
    server: Standalone, topic: str, requester: rmqpy.Producer, batch_size: int
) -> None:
    got: list[rmqpy.ReceivedMessage] = []

    def handle(given: rmqpy.ReceivedMessage | list[rmqpy.ReceivedMessage]) -> None:
        got.extend(given if isinstance(given, list) else [given])

    def requests() -> list[rmqpy.ReceivedMessage]:
        return [message for message in got if "REPLY_TO_CLIENT" in message.properties]

    with replier(server.namesrv, topic, handle, batch_size=batch_size) as consumer:  # type: ignore[arg-type]
        futures = [requester.submit_request(topic, f"a{n}", timeout=WAIT_S) for n in range(8)]
        until(lambda: len(requests()) == 8)
        assert not any(future.done() for future in futures)
        for message in requests():
            consumer.reply(message, message.text().upper(), properties={"n": "1"})
        assert [future.result(WAIT_S).text() for future in futures] == [f"A{n}" for n in range(8)]
        # A second reply comes to nobody.
        late = requester.late_replies
        consumer.reply(requests()[0], "again")
        until(lambda: requester.late_replies == late + 1)
        first = next(message for message in got if message.text() == "first")
        with pytest.raises(ValueError, match="is not a request: it lacks CORRELATION_ID, REPLY_TO_CLIENT"):
            consumer.reply(first, "to whom?")


async def test_an_asynchronous_consumer_can_reply_later(server: Standalone, topic: str) -> None:
    got: asyncio.Queue[rmqpy.ReceivedMessage] = asyncio.Queue()
    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv)
    consumer.on(topic, handler=got.put_nowait)
    async with consumer, rmqpy.AsyncProducer(server.namesrv) as producer:
        asking = asyncio.create_task(producer.request(topic, "apples", timeout=WAIT_S))
        while "REPLY_TO_CLIENT" not in (message := await asyncio.wait_for(got.get(), WAIT_S)).properties:
            pass
        await consumer.reply(message, b"later")
        assert (await asking).body == b"later"


def test_undeliverable_reply_is_logged_and_its_message_finished(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    got = threading.Event()

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply:
        if message.text() == "slow":
            got.set()
            gate.wait(WAIT_S)
        return rmqpy.Reply("yes")

    with replier(server.namesrv, topic, handle) as consumer:
        with rmqpy.Producer(server.namesrv) as gone:
            asking = gone.submit_request(topic, "slow", timeout=WAIT_S)
            assert got.wait(WAIT_S)
        with pytest.raises(errors.ClosedError, match="closed before the reply arrived"):
            asking.result(WAIT_S)
        gate.set()
        until(lambda: consumer.stats().consumed >= 2 and consumer.stats().waiting == 0)
        assert consumer.stats().failed == 0
    said = [
        record.getMessage() for record in caplog.records if "cannot deliver the reply" in record.getMessage()
    ]
    assert any("is not a request" in text for text in said)
    assert any("channel of" in text and "not found" in text for text in said)


def test_invalid_reply_raises_value_error() -> None:
    for body, properties in ((b"", None), ("x", {"TAGS": "a"}), ("x", {"": "a"})):
        with pytest.raises(ValueError, match=r".+"):
            rmqpy.Reply(body, properties)  # type: ignore[arg-type]


def test_reply_of_a_batch_handler_is_refused_with_advice(
    server: Standalone, topic: str, requester: rmqpy.Producer, caplog: pytest.LogCaptureFixture
) -> None:
    with replier(server.namesrv, topic, lambda messages: rmqpy.Reply("all"), batch_size=2) as consumer:
        with pytest.raises(errors.RequestTimeout):
            requester.request(topic, "apples", timeout=SHORT_S)
        until(lambda: consumer.stats().failed > 0)
    assert "a Reply answers one message: with a batch_size, call reply(message, body)" in caplog.text


def test_waiting_requests_are_bounded(server: Standalone, topic: str) -> None:
    gate = threading.Event()

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        gate.wait(WAIT_S)
        return upper(message)

    with replier(server.namesrv, topic, handle, workers=4):
        with rmqpy.Producer(server.namesrv, max_in_flight=8, when_full="raise") as producer:
            waiting = [producer.submit_request(topic, str(n), timeout=WAIT_S) for n in range(8)]
            with pytest.raises(errors.BufferFull, match="8 requests are waiting for replies"):
                producer.submit_request(topic, "one more", timeout=WAIT_S)
            gate.set()
            assert [each.result(WAIT_S).text() for each in waiting] == [str(n) for n in range(8)]
        # As many as one likes, one after the other.
        with rmqpy.Producer(server.namesrv, max_in_flight=8) as producer:
            many = [producer.submit_request(topic, str(n), timeout=WAIT_S) for n in range(1_000)]
            assert [each.result(WAIT_S).text() for each in many] == [str(n) for n in range(1_000)]


def test_request_without_room_times_out_clearly(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv, max_in_flight=1) as producer:
        waiting = producer.submit_request(topic, "nobody answers", timeout=WAIT_S)
        with pytest.raises(errors.BufferFull):
            producer.request(topic, "no room", timeout=SHORT_S)
    with pytest.raises(errors.ClosedError):
        waiting.result(0)


async def test_thousands_wait_in_one_event_loop(server: Standalone, topic: str) -> None:
    with replier(server.namesrv, topic):
        async with rmqpy.AsyncProducer(server.namesrv, max_in_flight=4_096) as producer:
            asking = [producer.request(topic, f"a{n}", timeout=2 * WAIT_S) for n in range(3_000)]
            replies = await asyncio.gather(*asking)
            assert [reply.text() for reply in replies] == [f"A{n}" for n in range(3_000)]


def test_requests_follow_namespaces_like_messages(server: Standalone, topic: str) -> None:
    shop = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")
    with rmqpy.Producer(shop) as producer:
        producer.send(topic, "first")
        consumer = rmqpy.PushConsumer(topic, shop, start_from="earliest")
        consumer.on(topic, handler=upper)
        with consumer:
            reply = producer.request(topic, "apples", timeout=WAIT_S)
    assert (reply.text(), reply.topic) == ("APPLES", "DefaultCluster_REPLY_TOPIC")


KILLED = """
import os, signal, sys, rmqpy
consumer = rmqpy.PushConsumer(sys.argv[2], sys.argv[1], start_from="earliest")
@consumer.on(sys.argv[2])
def handle(message):
    if "REPLY_TO_CLIENT" in message.properties:
        os.kill(os.getpid(), signal.SIGKILL)
with consumer:
    print("ready", flush=True)
    consumer.wait()
"""


def test_a_request_whose_replier_is_killed_is_answered_by_another_member(
    server: Standalone, topic: str, requester: rmqpy.Producer
) -> None:
    source = str(Path(rmqpy.__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, server.namesrv, topic],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": source},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"ready\n"
        waiting = requester.submit_request(topic, "apples", timeout=2 * WAIT_S)
        assert child.wait(WAIT_S) == -9
        with replier(server.namesrv, topic):
            assert waiting.result(2 * WAIT_S).text() == "APPLES"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_restarted_broker_delivers_replies_to_earlier_requests() -> None:
    gate = threading.Event()
    got = threading.Event()

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        if message.text() == "slow":
            got.set()
            gate.wait(WAIT_S)
        return upper(message)

    with Cluster() as cluster, rmqpy.Producer(cluster.namesrv) as producer:
        producer.send("orders", "first")
        until(lambda: producer.queues("orders"))
        with replier(cluster.namesrv, "orders", handle):
            assert producer.request("orders", "quick", timeout=WAIT_S).text() == "QUICK"
            waiting = producer.submit_request("orders", "slow", timeout=2 * WAIT_S)
            assert got.wait(WAIT_S)
            cluster.stop("broker-a")
            cluster.start("broker-a")
            # It knows the requester again, which says so by itself.
            until(lambda: is_asking(cluster.address("broker-a"), producer.group))
            gate.set()
            assert waiting.result(2 * WAIT_S).text() == "SLOW"
            assert producer.request("orders", "quick", timeout=WAIT_S).text() == "QUICK"


def is_asking(address: str, group: str) -> bool:
    """Whether a producer of the group is connected to the broker."""
    from rmqpy._native import Client
    from rmqpy.protocol.requests.clients import GetProducerConnectionList
    from rmqpy.remoting.client import BlockingCaller, run

    client = Client()
    try:
        ask = GetProducerConnectionList(producer_group=group)
        return bool(run(BlockingCaller(client).ask(address, ask, timeout=WAIT_S)).connection_set)
    except errors.BrokerError:
        return False
    finally:
        client.close()


def test_reply_uses_another_broker_if_the_first_does_not_know_the_requester() -> None:
    with Cluster(brokers=("broker-a", "broker-b")) as cluster, rmqpy.Producer(cluster.namesrv) as producer:
        for _ in range(16):
            producer.send("orders", "first")
        with replier(cluster.namesrv, "orders"):
            until(lambda: {queue.broker for queue in producer.queues("orders")} >= {"broker-a", "broker-b"})
            replies = {producer.request("orders", f"a{n}", timeout=WAIT_S).store_host for n in range(16)}
    assert len(replies) == 2, "requests went to both brokers, and so did their replies"


def test_invalid_timeout_is_refused(requester: rmqpy.Producer) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="timeout must be more than 0"):
        requester.request("orders", "x", timeout=0)
    with pytest.raises(TypeError, match="callback must be callable"):
        requester.submit_request("orders", "x", callback="print")  # type: ignore[arg-type]
    assert time.monotonic() - began < WAIT_S
