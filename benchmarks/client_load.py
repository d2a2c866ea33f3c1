"""The verbs of our Python client, each for some seconds, written as a user would write it."""

from collections import deque
from typing import Any

import rmqpy
from benchmarks.interval import Interval, RunMetrics, Verb

BODY = b"x" * 128
BATCH = 32
POLL_MESSAGES = 500
UNDER_WAY_MAX = 1024


def send(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """One message at a time, in one thread."""
    with rmqpy.Producer(namesrv) as producer:
        producer.send(topic, BODY)
        with Interval() as interval:
            sent = interval.repeat(seconds, lambda: producer.send(topic, BODY))
    return interval.metrics(sent)


def submit(namesrv: str, topic: str, seconds: float) -> RunMetrics:
    """Pipelined: results are looked at later."""
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
    """Everything the topic holds, again and again; every body is looked at."""
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


VERBS: dict[str, Verb] = {"send": send, "submit": submit, "send_batch": send_batch, "poll": poll}
