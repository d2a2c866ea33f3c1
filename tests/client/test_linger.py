"""Linger: single sends leave as one batch, and each has its own result."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.producer import linger
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.server import Standalone
from waiting import until

from .fakes import Brokers, NameServer

LINGER_S = 0.1


def requests(brokers: Brokers) -> list[int]:
    return [frame.code for broker in brokers for frame in broker.sends]


def stored(server: Standalone, topic: str, count: int) -> dict[str, rmqpy.ReceivedMessage]:
    """Messages by the ids of their producers."""
    found: dict[str, rmqpy.ReceivedMessage] = {}
    with rmqpy.PullConsumer("linger-reader", server.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic))
        until(lambda: found.update({m.message_id: m for m in consumer.poll(0.5)}) or len(found) >= count)
    return found


def test_sends_of_threads_share_a_batch_with_separate_results(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv, linger=LINGER_S) as producer, ThreadPoolExecutor(8) as pool:
        results = dict(
            zip(range(64), pool.map(lambda number: producer.send(topic, str(number)), range(64)), strict=True)
        )
    messages = stored(server, topic, 65)
    for number, result in results.items():
        message = messages[result.message_id]
        assert (message.text(), message.queue, message.queue_offset) == (
            str(number), result.queue, result.queue_offset,
        )  # fmt: skip


def test_a_batch_leaves_after_its_time_or_when_it_is_full(
    name_server: NameServer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rmqpy.Producer(name_server.address, linger=LINGER_S) as producer, ThreadPoolExecutor(8) as pool:
        producer.queues("orders")
        list(pool.map(lambda number: producer.send("orders", str(number)), range(8)))
        assert len(requests(brokers)) < 8
        began = time.monotonic()
        producer.send("orders", b"alone")
        assert time.monotonic() - began >= LINGER_S
        monkeypatch.setattr(linger, "COUNT_MAX", 4)
        with rmqpy.Producer(name_server.address, linger=60) as patient:
            senders = [
                threading.Thread(target=patient.send, args=("orders", b"x"), daemon=True) for _ in range(5)
            ]
            for sender in senders:
                sender.start()
            until(lambda: sum(not sender.is_alive() for sender in senders) == 4)
            # The last one waits for others.
            patient._linger.hurry()
            senders[-1].join(30)
            until(lambda: not any(sender.is_alive() for sender in senders))


def test_message_with_queue_or_time_is_sent_alone_and_immediately(
    name_server: NameServer, brokers: Brokers
) -> None:
    with rmqpy.Producer(name_server.address, linger=60) as producer:
        producer.send("orders", b"x", sharding_key="customer-7")
        producer.send("orders", b"x", delay_level=1)
        producer.send("orders", b"x", queue=producer.queues("orders")[0])
        producer.send("orders", b"x", timeout=3)
        producer.send("orders", b"x" * 5000)
        producer.submit("orders", b"x").result()
    assert requests(brokers) == [RequestCode.SEND_MESSAGE_V2] * 6


def test_each_message_of_a_failed_batch_gets_the_error(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(ResponseCode.SYSTEM_ERROR)

    def fail(producer: rmqpy.Producer, topic: str) -> type[BaseException]:
        with pytest.raises(errors.RocketMQError) as caught:
            producer.send(topic, b"x")
        return caught.type

    with rmqpy.Producer(name_server.address, linger=LINGER_S) as producer, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: fail(producer, "orders"), range(4))) == {errors.SendError}
        assert set(pool.map(lambda _: fail(producer, "nowhere"), range(4))) == {errors.TopicNotFound}


def test_sends_of_tasks_share_a_batch_too(server: Standalone, topic: str) -> None:
    told: list[rmqpy.Message] = []

    class Telling(rmqpy.ProducerInterceptor):
        def after_send(self, message: rmqpy.Message, outcome: object) -> None:
            told.append(message)

    async def send() -> dict[int, rmqpy.SendResult]:
        interceptors = [Telling()]
        async with rmqpy.AsyncProducer(
            server.namesrv, linger=LINGER_S, max_in_flight=16, interceptors=interceptors
        ) as producer:
            results = await asyncio.gather(*(producer.send(topic, str(number)) for number in range(64)))
        async with rmqpy.AsyncProducer(server.namesrv, linger=60, interceptors=interceptors) as producer:
            await producer.submit(topic, "flushed")
            began = time.monotonic()
            await producer.flush()
            assert time.monotonic() - began < 30
        return dict(enumerate(results))

    results = asyncio.run(send())
    messages = stored(server, topic, 66)
    assert {messages[result.message_id].text() for result in results.values()} == set(map(str, range(64)))
    assert all(messages[result.message_id].text() == str(number) for number, result in results.items())
    assert len(told) == 65


def test_tasks_get_batch_errors_and_buffer_full(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(ResponseCode.SYSTEM_ERROR)

    async def send() -> None:
        async with rmqpy.AsyncProducer(
            name_server.address, linger=LINGER_S, max_in_flight=2, when_full="raise"
        ) as producer:
            futures = [await producer.submit("orders", b"x") for _ in range(2)]
            with pytest.raises(errors.BufferFull):
                await producer.submit("orders", b"x")
            for future in futures:
                with pytest.raises(errors.SendError):
                    await future

    asyncio.run(send())
