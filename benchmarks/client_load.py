"""One verb of the Python client for some seconds, in a process of its own: `python -m benchmarks.client_load VERB …`.

Prints messages each second and this process's processor time for each message. Written as a user would write it.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import rmqpy

BODY = b"x" * 128
BATCH = 32
UNDER_WAY_MAX = 1024
_LOOK_EVERY = 64


def send(namesrv: str, topic: str, seconds: float) -> int:
    """One message at a time, in one thread."""
    with rmqpy.Producer(namesrv) as producer:
        return _repeat(seconds, lambda: producer.send(topic, BODY), 1)


def submit(namesrv: str, topic: str, seconds: float) -> int:
    """Pipelined: results are looked at later."""
    under_way: deque[Any] = deque()
    with rmqpy.Producer(namesrv) as producer:

        def step() -> None:
            if len(under_way) == UNDER_WAY_MAX:
                under_way.popleft().result()
            under_way.append(producer.submit(topic, BODY))

        sent = _repeat(seconds, step, 1)
        for future in under_way:
            future.result()
    return sent


def send_batch(namesrv: str, topic: str, seconds: float) -> int:
    """Batches of 32."""
    with rmqpy.Producer(namesrv) as producer:
        return _repeat(
            seconds, lambda: producer.send_batch([rmqpy.Message(topic, BODY) for _ in range(BATCH)]), BATCH
        )


def poll(namesrv: str, topic: str, seconds: float) -> int:
    """Everything the topic holds, again and again; every body is looked at."""
    taken = 0
    until = time.monotonic() + seconds
    with rmqpy.PullConsumer("bench-poll", namesrv, start_from="earliest", auto_commit=False) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        while time.monotonic() < until:
            messages = consumer.poll(timeout=0.2, max_messages=500)
            taken += sum(1 for message in messages if message.body)
            if not messages:
                for queue in queues:
                    consumer.seek(queue, "begin")
    return taken


def _repeat(seconds: float, step: Callable[[], object], messages_each: int) -> int:
    count = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(_LOOK_EVERY):
            step()
        count += _LOOK_EVERY * messages_each
    return count


VERBS: dict[str, Callable[[str, str, float], int]] = {
    "send": send,
    "submit": submit,
    "send_batch": send_batch,
    "poll": poll,
}


def main(verb: str, namesrv: str, topic: str, seconds: str) -> None:
    """Run one verb and print its figures."""
    began, used = time.monotonic(), time.process_time()
    count = VERBS[verb](namesrv, topic, float(seconds))
    elapsed, spent = time.monotonic() - began, time.process_time() - used
    print(json.dumps({"throughput": count / elapsed, "client_cpu_us": spent / max(1, count) * 1e6}))


if __name__ == "__main__":
    main(*sys.argv[1:])
