"""Steps of consumer tests against our servers: create topics, send, read progress, wait."""

import threading
from contextlib import suppress
from typing import Any

import rmqpy
from rmqpy import errors
from rmqpy._native import Client
from rmqpy.protocol.requests.clients import GetConsumerConnectionList, GetProducerConnectionList
from rmqpy.remoting.client import BlockingCaller, run
from rmqpy.server import Standalone
from waiting import until

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


def members(server: Standalone, group: str) -> int:
    """Clients of a group, consumers and producers, that the broker knows."""
    client = Client()
    try:
        caller = BlockingCaller(client)
        count = 0
        for ask in (
            GetConsumerConnectionList(consumer_group=group),
            GetProducerConnectionList(producer_group=group),
        ):
            with suppress(errors.BrokerError):
                count += len(run(caller.ask(server.broker, ask, timeout=WAIT_S)).connection_set)
        return count
    finally:
        client.close()


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
