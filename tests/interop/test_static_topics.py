"""Static topics with Java's tool and clients: at our brokers, and at ours together with one of Apache's."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqpy
from waiting import until

from . import servers
from .clients import InteropClient, ProcessClient
from .folders import SMALL_FILES, Folder
from .messages import MessageSpec, Received, SendOutcome

pytestmark = pytest.mark.timeout(300, func_only=True)

OURS = ("broker-a", "broker-b")
THEIRS = "broker-c"
QUEUES = 4
#: Java's clients look their routes up every 30 s.
ROUTE_SECONDS_MAX = 75.0
_groups = itertools.count()


class Three(NamedTuple):
    namesrv: str
    brokers: dict[str, str]


@pytest.fixture(scope="module")
def three(originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("static")
    jars = originals("apache")
    with ExitStack() as stack:
        namesrv, _ = stack.enter_context(servers.rmqpy_name_server(folder))
        started = {
            name: stack.enter_context(servers.rmqpy_broker(folder / name, namesrv, name)) for name in OURS
        }
        started[THEIRS] = stack.enter_context(servers.apache_broker(jars, folder / THEIRS, namesrv, THEIRS))
        yield Three(namesrv, {name: address for name, (address, _) in started.items()})


@pytest.fixture
def java(client_of: Callable[[str], InteropClient]) -> ProcessClient:
    client = client_of("java-5.5.0")
    assert isinstance(client, ProcessClient)
    return client


def leaders(namesrv: str, topic: str) -> set[str]:
    with rmqpy.Admin(namesrv) as admin:
        rows = admin.static_topic(topic)
    assert all(row.begin >= 0 for row in rows)
    return {row.broker for row in rows if row.is_leader}


def send(java: ProcessClient, three: Three, topic: str, numbers: range) -> list[SendOutcome]:
    """Send with Java's client, which may have an outdated route."""
    messages = [MessageSpec(str(number).encode()) for number in numbers]
    return until(
        lambda: java.send(three.namesrv, topic, messages), ROUTE_SECONDS_MAX, failing=Exception, pause=1.0
    )


def read(namesrv: str, topic: str, count: int) -> list[tuple[int, int, bytes]]:
    """Return queue, offset and body of this number of messages with our client."""
    found: list[tuple[int, int, bytes]] = []
    group = f"{topic}-ours-{next(_groups)}"
    with rmqpy.PullConsumer(group, namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic))

        def poll() -> bool:
            for message in consumer.poll(1.0):
                found.append((message.queue.queue_id, message.queue_offset, message.body))
            return len({body for *_, body in found}) >= count

        until(poll)
    return found


def positions(messages: list[Received]) -> list[tuple[int, int, bytes]]:
    return sorted((message.queue_id, message.queue_offset, message.body) for message in messages)


@pytest.mark.parametrize("way", ["at ours", "from ours to Apache's", "from Apache's to ours"])
def test_a_queue_moved_by_javas_tool_keeps_its_messages_and_offsets(
    three: Three, java: ProcessClient, way: str
) -> None:
    before, after = {
        "at ours": ("broker-a", "broker-b"),
        "from ours to Apache's": ("broker-a", THEIRS),
        "from Apache's to ours": (THEIRS, "broker-a"),
    }[way]
    topic = f"moved-{before}-{after}"
    create = f"-b {before} -t {topic} -qn {QUEUES}"
    java.mqadmin("updateStaticTopic", "-n", three.namesrv, *create.split())
    assert leaders(three.namesrv, topic) == {before}
    listener = java.listen(three.namesrv, topic, f"{topic}-java")
    first = send(java, three, topic, range(40))
    assert {outcome.queue_id for outcome in first} == set(range(QUEUES))
    listener.wait_for(40, ROUTE_SECONDS_MAX)
    java.mqadmin("remappingStaticTopic", "-n", three.namesrv, "-b", after, "-t", topic)
    assert leaders(three.namesrv, topic) == {after}
    later = send(java, three, topic, range(40, 80))
    assert min(outcome.queue_offset for outcome in later) >= 10_000
    listener.wait_for(80, ROUTE_SECONDS_MAX)
    consumed = listener.stop()
    expected = sorted(
        (outcome.queue_id, outcome.queue_offset, str(number).encode())
        for number, outcome in enumerate([*first, *later])
    )
    assert positions(consumed) == expected
    # From the old segments on, by a new group of either client.
    assert sorted(read(three.namesrv, topic, 80)) == expected
    pulled = java.pull(three.namesrv, topic, f"{topic}-old", api="old", count=80)
    assert positions(pulled) == expected


def test_our_tool_moves_queues_between_brokers_of_both_kinds(three: Three, java: ProcessClient) -> None:
    topic, count = "moved-by-ours", 0
    with rmqpy.Admin(three.namesrv) as admin:
        admin.create_static_topic(topic, QUEUES, brokers=[THEIRS])
        for brokers in ([THEIRS], ["broker-b"], [THEIRS, "broker-a"]):
            admin.remap_static_topic(topic, brokers=brokers)
            with rmqpy.Producer(three.namesrv) as producer:
                for number in range(count, count + 20):
                    producer.send(topic, str(number))
            count += 20
    assert leaders(three.namesrv, topic) == {THEIRS, "broker-a"}
    found = sorted(read(three.namesrv, topic, count))
    assert sorted(body for *_, body in found) == sorted(str(number).encode() for number in range(count))
    pulled = java.pull(three.namesrv, topic, f"{topic}-old", api="old", count=count)
    assert positions(pulled) == found


def test_a_folder_with_a_static_topic_goes_from_apache_to_rmqpy_and_back(
    originals: Callable[[str], Path], java: ProcessClient, namesrv: str, tmp_path: Path
) -> None:
    topic, sent = "in-a-folder", 0
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **SMALL_FILES)

    def write() -> None:
        nonlocal sent
        with rmqpy.Producer(namesrv) as producer:
            for number in range(sent, sent + 10):
                until(lambda: producer.send(topic, str(number)), failing=rmqpy.RocketMQError)  # noqa: B023
        sent += 10

    def check(queues: int) -> None:
        with rmqpy.Admin(namesrv) as admin:
            rows = until(lambda: admin.static_topic(topic), failing=rmqpy.RocketMQError)
        assert [row.queue for row in rows] == list(range(queues))
        found = until(lambda: sorted(read(namesrv, topic, sent)), failing=rmqpy.RocketMQError)
        assert sorted(body for *_, body in found) == sorted(str(number).encode() for number in range(sent))

    with folder.served_by("apache"):
        create = f"-b {servers.BROKER_NAME} -t {topic} -qn 2"
        java.mqadmin("updateStaticTopic", "-n", namesrv, *create.split())
        write()
        check(2)
    with folder.served_by("rmqpy"):
        check(2)
        write()
        with rmqpy.Admin(namesrv) as admin:
            admin.create_static_topic(topic, 3)
        write()
        check(3)
    with folder.served_by("apache") as broker:
        check(3)
        write()
        check(3)
        broker.kill()
