"""Steps of consumer tests against our own servers: make topics, send, look at progress, wait."""

import threading
import time
from collections.abc import Callable
from typing import Any

import rmqpy
from rmqpy import errors
from rmqpy.server import Standalone

#: Enough for a loaded machine.
WAIT_S = 30.0

BODIES = [str(number) for number in range(500)]


def make_topic(server: Standalone, name: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer, rmqpy.PullConsumer("probe", server.namesrv) as probe:
        # The first message makes it; no test wants to see that one.
        producer.send(name, b"first", tag="first")
        until(lambda: knows(probe, name))


def knows(probe: rmqpy.PullConsumer, topic: str) -> bool:
    try:
        return bool(probe.queues(topic))
    except errors.RouteError:
        return False


def until(condition: Callable[[], Any], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def send(server: Standalone, topic: str, bodies: list[str], **fields: Any) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [producer.submit(rmqpy.Message(topic, body, tag="t", **fields)) for body in bodies]:
            future.result()


def committed(server: Standalone, group: str, topic: str) -> int:
    """Messages of the topic that the group has done with."""
    with rmqpy.PullConsumer(group, server.namesrv, auto_commit=False) as probe:
        return sum(probe.committed(queue) or 0 for queue in probe.queues(topic))


def end(server: Standalone, topic: str) -> int:
    with rmqpy.PullConsumer("probe", server.namesrv, auto_commit=False) as probe:
        return sum(probe.offsets(queue)[1] for queue in probe.queues(topic))


class Seen:
    """Messages that handlers were called with, from any thread."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, message: rmqpy.ReceivedMessage) -> None:
        with self._lock:
            self.bodies.append(message.text())

    def has(self, *bodies: str) -> bool:
        return set(bodies) <= set(self.bodies)
