"""Static topics under load: queues move between brokers while clients send and consume.

Nothing acknowledged is lost, and no offset of a queue goes back.
"""

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqpy
from rmqpy.client.group import membership_keeper
from rmqpy.message import MessageQueue
from rmqpy.remoting.backoff import Backoff
from rmqpy.testing import Cluster
from waiting import until

BROKERS = ("broker-a", "broker-b", "broker-c")
QUEUES = 6
PSEUDO = "__syslo__global__"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members look at their group often."""
    monkeypatch.setattr(membership_keeper, "REBALANCE_S", 0.3)
    monkeypatch.setattr(membership_keeper, "MISSING", Backoff(0.3, 0.3))


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=BROKERS) as cluster:
        yield cluster


def config(cluster: Cluster) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=0.3)


class Ledger:
    """Messages that were acknowledged, and those that were received."""

    def __init__(self) -> None:
        self.sent: dict[bytes, tuple[int, int]] = {}
        self.received: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._lock = threading.Lock()

    def note_sent(self, body: bytes, result: rmqpy.SendResult) -> None:
        assert result.queue.broker == PSEUDO
        self.sent[body] = (result.queue.queue_id, result.queue_offset)

    def note_received(self, message: rmqpy.ReceivedMessage) -> None:
        assert message.queue.broker == PSEUDO
        with self._lock:
            self.received[message.queue.queue_id].append((message.queue_offset, message.body))

    def missing(self) -> set[bytes]:
        with self._lock:
            found = {body for messages in self.received.values() for _, body in messages}
        return self.sent.keys() - found

    def check(self) -> None:
        """Check that each message was received where it was stored, in the order of its queue."""
        assert not self.missing()
        for queue, messages in self.received.items():
            offsets = [offset for offset, _ in messages]
            assert offsets == sorted(offsets), f"queue {queue} went back"
            assert len(set(offsets)) == len(offsets), f"queue {queue} was read twice"
            for offset, body in messages:
                if body in self.sent:
                    # The broker does not know the offset while a queue moves.
                    assert self.sent[body] in ((queue, offset), (queue, -1))


@contextmanager
def sending(cluster: Cluster, topic: str, ledger: Ledger) -> Iterator[Callable[[int], None]]:
    """Send to the topic all the time; call the result to wait for this number of further messages."""
    end = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        with rmqpy.Producer(config(cluster), retries=20) as producer:
            for number in itertools.count():
                if end.is_set():
                    return
                body = str(number).encode()
                try:
                    ledger.note_sent(body, producer.send(topic, body))
                except Exception as error:
                    failures.append(error)
                    return

    def further(count: int) -> None:
        wanted = len(ledger.sent) + count
        until(lambda: len(ledger.sent) >= wanted or failures)
        assert not failures, failures

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield further
    finally:
        end.set()
        thread.join()
    assert not failures, failures


@pytest.fixture(params=["push", "ordered", "poll"])
def consuming(request: pytest.FixtureRequest, three: Cluster) -> Callable[[str, Ledger], object]:
    """A member of a group that reads a topic from its start."""
    kind: str = request.param

    @contextmanager
    def push(topic: str, ledger: Ledger) -> Iterator[None]:
        group = f"{topic}-readers"
        consumer = rmqpy.PushConsumer(
            group, config(three), start_from="earliest", ordered=kind == "ordered", workers=1
        )
        consumer.on(topic, handler=ledger.note_received)
        with consumer:
            yield

    @contextmanager
    def poll(topic: str, ledger: Ledger) -> Iterator[None]:
        end = threading.Event()

        def run() -> None:
            group = f"{topic}-readers"
            with rmqpy.PullConsumer(group, config(three), start_from="earliest") as consumer:
                consumer.subscribe(topic)
                while not end.is_set():
                    for message in consumer.poll(0.1):
                        ledger.note_received(message)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    return poll if kind == "poll" else push


def test_a_topic_grows_from_one_broker_to_three_under_load(
    three: Cluster, consuming: Callable[[str, Ledger], object], request: pytest.FixtureRequest
) -> None:
    topic = f"grows-{request.node.callspec.id}"
    ledger, committed = Ledger(), Progress(three, topic)
    with rmqpy.Admin(three.namesrv) as admin:
        admin.create_static_topic(topic, QUEUES, brokers=["broker-a"])
        with consuming(topic, ledger), sending(three, topic, ledger) as further:  # type: ignore[attr-defined]
            further(200)
            admin.remap_static_topic(topic)
            committed.look()
            further(200)
            # Back on the first broker, in other queues of it.
            admin.remap_static_topic(topic, brokers=["broker-b", "broker-a"])
            committed.look()
            further(200)
            committed.look()
        with consuming(topic, ledger):  # type: ignore[attr-defined]
            until(lambda: not ledger.missing())
        rows = admin.static_topic(topic)
    assert {row.broker for row in rows if row.is_leader} == {"broker-a", "broker-b"}
    assert max(row.generation for row in rows) == 2
    ledger.check()
    committed.look()
    committed.check({row.queue for row in rows if row.generation})


class Progress:
    """The committed offsets of the readers of a topic, over time."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._seen: defaultdict[MessageQueue, list[int]] = defaultdict(list)

    def look(self) -> None:
        with rmqpy.Catalog(config(self._cluster)) as catalog:
            found = until(
                lambda: catalog.committed(f"{self._topic}-readers", catalog.queues(self._topic)),
                wanted=lambda each: each is not None,
                failing=rmqpy.RocketMQError,
            )
        for queue, offset in found.items():
            self._seen[queue].append(offset)

    def check(self, moved: set[int]) -> None:
        assert len(self._seen) == QUEUES
        for queue, offsets in self._seen.items():
            assert offsets == sorted(offsets), f"the progress in {queue} went back"
        assert all(self._seen[MessageQueue(self._topic, PSEUDO, queue)][-1] >= 10_000 for queue in moved)


def test_a_catalog_knows_the_limits_of_logical_queues(three: Cluster) -> None:
    topic = "limits"
    with rmqpy.Admin(three.namesrv) as admin, rmqpy.Catalog(config(three)) as catalog:
        admin.create_static_topic(topic, 2, brokers=["broker-a"])
        queues = catalog.queues(topic)
        assert queues == [MessageQueue(topic, PSEUDO, number) for number in range(2)]
        with rmqpy.Producer(config(three)) as producer:
            results = [producer.send(topic, b"x", queue=queues[1]) for _ in range(3)]
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert catalog.offsets(queues) == {queues[0]: (0, 0), queues[1]: (0, 3)}
        admin.remap_static_topic(topic, brokers=["broker-b"])
        ends = until(lambda: catalog.offsets(queues), failing=rmqpy.RocketMQError)
        assert ends == {queues[0]: (0, 10_000), queues[1]: (0, 10_000)}


def test_a_restarted_broker_still_leads_its_queues(tmp_path: Path) -> None:
    with Cluster(brokers=BROKERS[:2]) as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_static_topic("kept", 2, brokers=["broker-a"])
        with rmqpy.Producer(config(cluster)) as producer:
            producer.send("kept", b"1")
        admin.remap_static_topic("kept", brokers=["broker-b"])
        before = admin.static_topic("kept")
        for broker in BROKERS[:2]:
            cluster.stop(broker)
            cluster.start(broker)
        assert until(lambda: admin.static_topic("kept"), failing=rmqpy.RocketMQError) == before
        with rmqpy.Producer(config(cluster)) as producer:
            result = until(lambda: producer.send("kept", b"2"), failing=rmqpy.RocketMQError)
        assert result.queue_offset >= 10_000
