"""Other clients: the verbs of `client_load` with other brokers' clients, written as in their guides."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.client_load import BODY, POLL_MESSAGES, UNDER_WAY_MAX
from benchmarks.interval import Interval, RunMetrics, Verb

_SECONDS_MAX = 10.0


def kafka_send(address: str, topic: str, seconds: float) -> RunMetrics:
    """One message at a time, without lingering."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def step() -> None:
        producer.produce(topic, BODY, on_delivery=_stored)
        producer.flush()

    step()
    with Interval() as interval:
        sent = interval.repeat(seconds, step)
    return interval.metrics(sent)


def kafka_submit(address: str, topic: str, seconds: float) -> RunMetrics:
    """Pipelined; outcomes arrive meanwhile."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})

    def step() -> None:
        while True:
            try:
                producer.produce(topic, BODY, on_delivery=_stored)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    step()
    producer.flush()
    with Interval() as interval:
        sent = interval.repeat(seconds, step)
        producer.flush()
    return interval.metrics(sent)


def kafka_poll(address: str, topic: str, seconds: float) -> RunMetrics:
    """Read the whole topic repeatedly, touching every value."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    taken = 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=_SECONDS_MAX).topics[topic].partitions
    begin = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
    consumer.assign(begin)
    with Interval() as interval:
        while not interval.is_over(seconds):
            messages = consumer.consume(POLL_MESSAGES, 0.2)
            taken += sum(1 for message in messages if message.value())
            if not messages:
                consumer.assign(begin)
    consumer.close()
    return interval.metrics(taken)


def _stored(error: object, _: object) -> None:
    if error is not None:
        raise RuntimeError(f"not stored: {error}")


async def _nats_send(stream: Any, subject: str, seconds: float) -> RunMetrics:
    sent = 0
    with Interval() as interval:
        while not interval.is_over(seconds):
            await stream.publish(subject, BODY)
            sent += 1
    return interval.metrics(sent)


async def _nats_submit(stream: Any, subject: str, seconds: float) -> RunMetrics:
    sent = 0
    under_way: deque[Any] = deque()
    with Interval() as interval:
        while not interval.is_over(seconds):
            if len(under_way) == UNDER_WAY_MAX:
                await under_way.popleft()
            under_way.append(await stream.publish_async(subject, BODY))
            sent += 1
        for acknowledgement in under_way:
            await acknowledgement
    return interval.metrics(sent)


async def _nats_poll(stream: Any, subject: str, seconds: float) -> RunMetrics:
    from nats.errors import TimeoutError as NothingLeft
    from nats.js.api import AckPolicy, ConsumerConfig

    taken = 0
    with Interval() as interval:
        while not interval.is_over(seconds):
            consumer = await stream.pull_subscribe(subject, config=ConsumerConfig(ack_policy=AckPolicy.NONE))
            try:
                while not interval.is_over(seconds):
                    messages = await consumer.fetch(POLL_MESSAGES, timeout=0.2)
                    taken += sum(1 for message in messages if message.data)
            except NothingLeft:
                continue
            finally:
                await consumer.unsubscribe()
    return interval.metrics(taken)


def _nats(load: Callable[[Any, str, float], Awaitable[RunMetrics]]) -> Verb:
    """Wrap a coroutine verb that takes a stream with one message in it."""

    async def run(address: str, subject: str, seconds: float) -> RunMetrics:
        import nats

        connection = await nats.connect(f"nats://{address}")
        try:
            stream = connection.jetstream(publish_async_max_pending=UNDER_WAY_MAX)
            await stream.add_stream(name="bench", subjects=[subject])
            await stream.publish(subject, BODY)
            return await load(stream, subject, seconds)
        finally:
            await connection.close()

    return lambda address, subject, seconds: asyncio.run(run(address, subject, seconds))


VERBS: dict[str, Verb] = {
    "kafka-send": kafka_send,
    "kafka-submit": kafka_submit,
    "kafka-poll": kafka_poll,
    "nats-send": _nats(_nats_send),
    "nats-submit": _nats(_nats_submit),
    "nats-poll": _nats(_nats_poll),
}
