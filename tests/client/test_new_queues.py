"""Queues that a consumer first sees later: of a growing topic, a new topic, or a joining broker.

A group that begins at the end of its queues misses earlier messages; messages sent to a queue that appears
later are delivered, to every kind of consumer. The same holds if the group has progress in the topic.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group import membership_keeper
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import BlockingCaller, run
from rmqpy.server import Standalone
from rmqpy.testing import Cluster
from waiting import until

from .live import Seen

Reader = Callable[..., AbstractContextManager[Seen]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members look at their group often."""
    monkeypatch.setattr(membership_keeper, "REBALANCE_S", 0.3)
    monkeypatch.setattr(membership_keeper, "MISSING", Backoff(0.3, 0.3))


@pytest.fixture(params=["push", "ordered", "broadcast", "poll", "assign", "stored"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    """A consumer of one kind, and the bodies it was given."""
    kind: str = request.param
    stored = _Store()

    @contextmanager
    def push(namesrv: str, group: str, topic: str, count: int) -> Iterator[Seen]:
        seen = Seen()
        options: dict[str, Any] = {
            "push": {},
            "ordered": {"ordered": True},
            "broadcast": {"broadcast": True, "offset_folder": tmp_path},
            "stored": {"offset_store": stored},
        }[kind]
        config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.2)
        consumer = rmqpy.PushConsumer(group, config, **options)
        consumer.on(topic, handler=seen)
        with consumer:
            until(lambda: sum(queue.topic == topic for queue in consumer.queues()) == count)
            yield seen

    @contextmanager
    def poll(namesrv: str, group: str, topic: str, count: int) -> Iterator[Seen]:
        seen, end = Seen(), threading.Event()
        config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.2)

        def read() -> None:
            while not end.is_set():
                if kind == "assign" and (queues := _queues(consumer, topic)):
                    consumer.assign(queues)
                if kind == "poll" or queues:
                    for message in consumer.poll(0.1):
                        seen(message)

        with rmqpy.PullConsumer(group, config) as consumer:
            # Its first view.
            _queues(consumer, topic)
            if kind == "poll":
                consumer.subscribe(topic)
            thread = threading.Thread(target=read)
            thread.start()
            try:
                until(lambda: len(consumer.assignment()) == count)
                yield seen
            finally:
                end.set()
                thread.join()

    return poll if kind in ("poll", "assign") else push


class _Store:
    """Progress in a table of the application's."""

    def __init__(self) -> None:
        self.offsets: dict[rmqpy.MessageQueue, int] = {}

    def load(self) -> None: ...

    def read(self, queue: rmqpy.MessageQueue) -> int | None:
        return self.offsets.get(queue)

    def update(self, queue: rmqpy.MessageQueue, offset: int) -> None:
        self.offsets[queue] = offset

    def persist(self, queues: Any) -> None: ...


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=["broker-a", "broker-b"]) as cluster:
        yield cluster


def _queues(consumer: rmqpy.PullConsumer, topic: str) -> list[rmqpy.MessageQueue]:
    try:
        return consumer.queues(topic)
    except rmqpy.errors.TopicNotFound:
        return []


def _make_at(cluster: Cluster, broker: str, topic: str) -> None:
    """Create a topic of two queues at one broker, and wait until name servers know it."""
    connection = ClusterConnection(rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=0.05))
    caller = BlockingCaller(connection.client)
    ask = UpdateAndCreateTopic(topic=topic, read_queue_nums=2, write_queue_nums=2, perm=6)
    run(caller.ask(cluster.address(broker), ask, timeout=3.0))

    def is_known() -> bool:
        try:
            return broker in run(connection.routes.subscribe(topic, caller)).brokers
        except rmqpy.errors.TopicNotFound:
            return False

    until(is_known)
    connection.close()


def _send(namesrv: str, topic: str, broker: str, queues: range, text: str) -> list[str]:
    """Send one message to each of these queues as soon as they are known; the bodies."""
    bodies = [f"{text}-{broker}-{number}" for number in queues]
    with rmqpy.Producer(namesrv) as producer, rmqpy.PullConsumer("probe", namesrv) as probe:
        for number, body in zip(queues, bodies, strict=True):
            queue = rmqpy.MessageQueue(topic, broker, number)
            until(lambda queue=queue: queue in _queues(probe, topic))  # type: ignore[misc]
            producer.send(topic, body, queue=queue)
    return bodies


def _name(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.replace("[", "-").replace("]", "")[-60:]


def test_new_queues_of_a_grown_topic_are_read_from_the_start(
    server: Standalone, reader: Reader, request: pytest.FixtureRequest
) -> None:
    topic = _name(request)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
        _send(server.namesrv, topic, "broker-a", range(2), "before")
        with reader(server.namesrv, topic, topic, 2) as seen:
            admin.update_topic(topic, read_queues=4, write_queues=4)
            sent = _send(server.namesrv, topic, "broker-a", range(4), "after")
            until(lambda: seen.has(*sent))
        assert sorted(seen.bodies) == sorted(sent)


def test_topic_created_after_the_start_is_read_from_the_start(
    server: Standalone, reader: Reader, request: pytest.FixtureRequest
) -> None:
    topic = _name(request)
    with (
        rmqpy.Admin(server.namesrv) as admin,
        reader(server.namesrv, topic, topic, 0) as seen,
    ):
        admin.create_topic(topic, read_queues=4, write_queues=4)
        sent = _send(server.namesrv, topic, "broker-a", range(4), "first")
        until(lambda: seen.has(*sent))
        assert sorted(seen.bodies) == sorted(sent)


def test_queues_of_a_joining_broker_are_read_from_the_start(
    cluster: Cluster, reader: Reader, request: pytest.FixtureRequest
) -> None:
    topic = _name(request)
    _make_at(cluster, "broker-a", topic)
    _send(cluster.namesrv, topic, "broker-a", range(2), "before")
    with reader(cluster.namesrv, topic, topic, 2) as seen:
        _make_at(cluster, "broker-b", topic)
        sent = _send(cluster.namesrv, topic, "broker-b", range(2), "joined")
        until(lambda: seen.has(*sent))
    assert sorted(seen.bodies) == sorted(sent)


def test_queues_added_while_the_group_was_offline_are_read_from_the_start(
    server: Standalone, reader: Reader, request: pytest.FixtureRequest
) -> None:
    topic = _name(request)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
        _send(server.namesrv, topic, "broker-a", range(2), "before")
        with reader(server.namesrv, topic, topic, 2) as seen:
            first = _send(server.namesrv, topic, "broker-a", range(2), "first")
            until(lambda: seen.has(*first))
        admin.update_topic(topic, read_queues=4, write_queues=4)
        sent = _send(server.namesrv, topic, "broker-a", range(4), "away")
        with reader(server.namesrv, topic, topic, 4) as again:
            until(lambda: again.has(*sent))
        assert sorted(again.bodies) == sorted(sent)


def test_new_group_begins_at_the_end_of_existing_queues(
    server: Standalone, reader: Reader, request: pytest.FixtureRequest
) -> None:
    topic = _name(request)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
        _send(server.namesrv, topic, "broker-a", range(2), "before")
        with reader(server.namesrv, topic, topic, 2) as seen:
            sent = _send(server.namesrv, topic, "broker-a", range(2), "after")
            until(lambda: seen.has(*sent))
        assert sorted(seen.bodies) == sorted(sent)
