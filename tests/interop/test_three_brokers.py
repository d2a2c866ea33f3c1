"""Two brokers of ours and one of Apache's in one cluster, under two name servers of ours, with Java's tool and clients.

Every client but Go's knows both name servers. The last test stops servers permanently.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.processes import Child
from waiting import until

from . import servers, wire
from .clients import InteropClient, ProcessClient
from .messages import MessageSpec, Received, SendOutcome, bodies, numbered

pytestmark = pytest.mark.timeout(200, func_only=True)

OURS = ("broker-a", "broker-b")
THEIRS = "broker-c"
EVERYWHERE = frozenset({*OURS, THEIRS})
QUEUES = 2
READY_SECONDS_MAX = 30.0

_ROUTE = 105
_TOPIC_CONFIG = 351


@dataclass(frozen=True)
class Three:
    """The cluster."""

    name_servers: tuple[str, str]
    #: By name.
    brokers: dict[str, str]
    #: By name of broker; a name server's is its address.
    processes: dict[str, Child]

    @property
    def namesrv(self) -> str:
        """The addresses for clients."""
        return ";".join(self.name_servers)

    def namesrv_of(self, client_name: str) -> str:
        """The addresses for this client: Go's accepts only one."""
        return self.name_servers[1] if client_name == "go" else self.namesrv

    def wait_for_route(self, topic: str, brokers: frozenset[str], queues: int = QUEUES) -> None:
        """Wait until both name servers list exactly these brokers, with this number of queues each."""
        expected = dict.fromkeys(brokers, (queues, queues))
        for namesrv in self.name_servers:
            until(partial(_route, namesrv, topic), READY_SECONDS_MAX, wanted=lambda found: found == expected)


def _route(namesrv: str, topic: str) -> dict[str, tuple[int, int]]:
    """Queues to read and to write by broker."""
    try:
        _, body = wire.request(namesrv, _ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    except wire.Refused:
        return {}
    route = json.loads(body)
    assert {broker["brokerName"] for broker in route["brokerDatas"]} == {
        queue["brokerName"] for queue in route["queueDatas"]
    }
    return {
        queue["brokerName"]: (queue["readQueueNums"], queue["writeQueueNums"])
        for queue in route["queueDatas"]
    }


@pytest.fixture(scope="module")
def three(originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("three")
    jars = originals("apache")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(servers.rmqpy_name_server(folder / name)) for name in ("one", "two")
        )
        namesrv = f"{first[0]};{second[0]}"
        started = {
            name: stack.enter_context(servers.rmqpy_broker(folder / name, namesrv, name)) for name in OURS
        }
        started[THEIRS] = stack.enter_context(servers.apache_broker(jars, folder / THEIRS, namesrv, THEIRS))
        yield Three(
            (first[0], second[0]),
            {name: address for name, (address, _) in started.items()},
            {name: child for name, (_, child) in started.items()} | dict([first, second]),
        )


@pytest.fixture
def admin(client_of: Callable[[str], InteropClient]) -> ProcessClient:
    client = client_of("java-5.5.0")
    assert isinstance(client, ProcessClient)
    return client


def make_everywhere(three: Three, admin: ProcessClient, topic: str) -> None:
    """Create a topic in cluster mode."""
    options = f"-c {servers.CLUSTER_NAME} -t {topic} -r {QUEUES} -w {QUEUES}"
    printed = admin.mqadmin("updateTopic", "-n", three.namesrv, *options.split())
    for address in three.brokers.values():
        assert f"create topic to {address} success" in printed
    three.wait_for_route(topic, EVERYWHERE)


def consume(namesrv: str, client: InteropClient, topic: str, count: int) -> list[Received]:
    """Return all messages of a topic, read by a new group."""
    if not isinstance(client, ProcessClient):
        return client.pull(namesrv, topic, f"{topic}-group", api="poll", count=count)
    listener = client.listen(namesrv, topic, f"{topic}-group")
    listener.wait_for(count, 60.0)
    return listener.stop()


def ports_of(messages: Sequence[SendOutcome]) -> set[int]:
    """The ports of the brokers that took them: part of each message's id."""
    return {int(message.offset_id[8:16], 16) for message in messages}


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_the_tool_sees_one_cluster_at_either_name_server(three: Three, admin: ProcessClient) -> None:
    for namesrv in three.name_servers:
        deadline = time.monotonic() + READY_SECONDS_MAX
        # Apache's broker cannot report its state before it has sampled its statistics once.
        while (found := _listed(admin, namesrv)) != three.brokers:
            assert time.monotonic() < deadline, f"{namesrv} lists {found}"


def _listed(admin: ProcessClient, namesrv: str) -> dict[str, str]:
    """The cluster as the tool shows it: addresses of brokers by name."""
    [printed] = admin.mqadmin_all([("clusterList", "-n", namesrv)])
    lines = [line.split() for line in printed.out.splitlines()]
    return {line[1]: line[3] for line in lines if line[:1] == [servers.CLUSTER_NAME]}


@pytest.mark.parametrize("client_name", ["java-5.5.0", "java-4.9.8", "go", "rmqpy"])
def test_a_topic_made_in_cluster_mode_takes_and_gives_messages_at_all_three(
    three: Three, client_name: str, admin: ProcessClient, client_of: Callable[[str], InteropClient]
) -> None:
    client, topic = client_of(client_name), f"everywhere-{client_name}".replace(".", "_")
    make_everywhere(three, admin, topic)
    messages = numbered(90)
    sent = client.send(three.namesrv_of(client_name), topic, messages)
    assert ports_of(sent) == {port(address) for address in three.brokers.values()}
    assert bodies(consume(three.namesrv_of(client_name), client, topic, 90)) == [
        message.body for message in messages
    ]


def test_a_topic_made_in_broker_mode_is_at_that_broker_only(three: Three, admin: ProcessClient) -> None:
    for name, address in three.brokers.items():
        topic = f"only-at-{name}"
        options = f"-b {address} -t {topic} -r 3 -w 3"
        printed = admin.mqadmin("updateTopic", "-n", three.namesrv, *options.split())
        assert f"create topic to {address} success" in printed
        three.wait_for_route(topic, frozenset({name}), queues=3)
        [sent] = admin.send(three.namesrv, topic, [MessageSpec(b"here")])
        assert ports_of([sent]) == {port(address)}
        assert bodies(admin.pull(three.namesrv, topic, f"{topic}-group", api="assign", count=1)) == [b"here"]


def test_a_topic_deleted_in_the_cluster_is_gone_at_brokers_and_name_servers(
    three: Three, admin: ProcessClient
) -> None:
    make_everywhere(three, admin, "short-lived")
    admin.mqadmin("deleteTopic", "-n", three.namesrv, "-c", servers.CLUSTER_NAME, "-t", "short-lived")
    three.wait_for_route("short-lived", frozenset())
    for address in three.brokers.values():
        with pytest.raises(wire.Refused, match="code 17"):
            wire.request(address, _TOPIC_CONFIG, {"topic": "short-lived"})


def test_clients_continue_without_one_broker_and_one_name_server(three: Three, admin: ProcessClient) -> None:
    topic, gone = "outlives", OURS[0]
    make_everywhere(three, admin, topic)
    listener = admin.listen(three.namesrv, topic, f"{topic}-group")
    messages = numbered(90)
    admin.send(three.namesrv, topic, messages[:30])
    listener.wait_for(30, 60.0)
    three.processes[gone].kill()
    three.wait_for_route(topic, EVERYWHERE - {gone})
    three.processes[three.name_servers[0]].kill()
    sent = admin.send(three.namesrv, topic, messages[30:])
    assert ports_of(sent) == {port(address) for name, address in three.brokers.items() if name != gone}
    listener.wait_for(90, 60.0)
    assert {message.body for message in listener.stop()} == {message.body for message in messages}
