"""Client load: the verbs of our Python client, each for some seconds, written as a user would."""

import asyncio
import importlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import Any

import rmqpy
from benchmarks.interval import Interval, RunMetrics, Verb
from rmqpy.load import machine

BODY = b"x" * 128
BATCH = 32
POLL_MESSAGES = 500
UNDER_WAY_MAX = 1024
TASKS = 64
WAITING_CONSUMERS = 16
#: Time until the memory of consumers is stable.
REST_SECONDS = 2.0


def send(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """One message at a time, in one thread."""
    with rmqpy.Producer(namesrv) as producer:
        producer.send(topic, BODY)
        with Interval() as interval:
            sent = interval.repeat(seconds, lambda: producer.send(topic, BODY))
    return interval.metrics(sent)


def submit(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Pipelined: results are read later."""
    under_way: deque[Any] = deque()
    with rmqpy.Producer(namesrv) as producer:

        def step() -> None:
            if len(under_way) == UNDER_WAY_MAX:
                under_way.popleft().result()
            under_way.append(producer.submit(topic, BODY))

        producer.send(topic, BODY)
        with Interval() as interval:
            sent = interval.repeat(seconds, step)
            for future in under_way:
                future.result()
    return interval.metrics(sent)


def awaited(
    run: Callable[[Coroutine[Any, Any, int]], int], namesrv: str, topic: str, seconds: float
) -> RunMetrics:
    """Tasks of one event loop, each awaiting its send before the next."""
    interval = Interval()

    async def sends() -> int:
        async with rmqpy.AsyncProducer(namesrv) as producer:

            async def task() -> int:
                count = 0
                while not interval.is_over(seconds):
                    await producer.send(topic, BODY)
                    count += 1
                return count

            await producer.send(topic, BODY)
            with interval:
                return sum(await asyncio.gather(*(task() for _ in range(TASKS))))

    return interval.metrics(run(sends()))


def send_batch(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Batches of 32."""
    with rmqpy.Producer(namesrv) as producer:

        def step() -> None:
            producer.send_batch([rmqpy.Message(topic, BODY) for _ in range(BATCH)])

        step()
        with Interval() as interval:
            sent = interval.repeat(seconds, step, BATCH)
    return interval.metrics(sent)


def poll(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Read the whole topic repeatedly, touching every body."""
    taken = 0
    with rmqpy.PullConsumer("bench-poll", namesrv, start_from="earliest", auto_commit=False) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        with Interval() as interval:
            while not interval.is_over(seconds):
                messages = consumer.poll(timeout=0.2, max_messages=POLL_MESSAGES)
                taken += sum(1 for message in messages if message.body)
                if not messages:
                    for queue in queues:
                        consumer.seek(queue, "begin")
    return interval.metrics(taken)


def push(groups: int, namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Counting handlers of several groups in one process; each group gets the whole topic."""
    handled = [0] * groups
    begun = [threading.Event() for _ in range(groups)]

    def handle(number: int, _: rmqpy.ReceivedMessage) -> None:
        handled[number] += 1
        begun[number].set()

    with ExitStack() as consumers:
        for number in range(groups):
            group = f"bench-push-{number}-{time.time_ns()}"
            # One worker, so that threads share no counter.
            consumer = rmqpy.PushConsumer(group, namesrv, start_from="earliest", workers=1)
            consumer.on(topic, handler=partial(handle, number))
            consumers.enter_context(consumer)
        for each in begun:
            each.wait()
        with Interval() as interval:
            before = sum(handled)
            time.sleep(seconds)
            count = sum(handled) - before
    return interval.metrics(count)


def waiting(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Private memory of one more waiting push consumer."""

    def private_bytes() -> int:
        time.sleep(max(seconds, REST_SECONDS))
        return machine.private_bytes(os.getpid()) or 0

    with ExitStack() as consumers:

        def consume(number: int) -> None:
            consumer = rmqpy.PushConsumer(f"bench-wait-{number}-{time.time_ns()}", namesrv)
            consumer.on(topic, handler=lambda _: None)
            consumers.enter_context(consumer)

        consume(0)
        alone = private_bytes()
        for number in range(WAITING_CONSUMERS):
            consume(number + 1)
        return {"consumer_bytes": (private_bytes() - alone) / WAITING_CONSUMERS}


VERBS: dict[str, Verb] = {
    "send": send,
    "submit": submit,
    f"await, {TASKS} tasks": partial(awaited, asyncio.run),
    "send_batch": send_batch,
    "poll": poll,
    "handler, 1 group": partial(push, 1),
    "handler, 4 groups": partial(push, 4),
    "handler, 16 groups": partial(push, 16),
}
if find_spec("uvloop"):
    VERBS[f"await on uvloop, {TASKS} tasks"] = partial(awaited, importlib.import_module("uvloop").run)

#: Verbs without a throughput.
WAITING = "waiting"
