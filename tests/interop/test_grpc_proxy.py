"""5.x clients at `rmqpy proxy`: every official client in front of two brokers of ours, Python's also of Apache's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import rmqpy
from rmqpy.server import Setting
from rmqpy.testing import Cluster
from waiting import until

from . import grpc_clients, servers
from .grpc_clients import CLIENTS, GrpcClient
from .grpc_python import SCENARIOS, needs_client, observe
from .proxies import proxy

pytestmark = [needs_client, pytest.mark.timeout(300, func_only=True)]

BROKERS = ("broker-a", "broker-b")
TYPES: tuple[Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"], ...] = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
)
RELEASE = "5.1.2"
CHECKS = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}


def create(namesrv: str) -> None:
    with rmqpy.Admin(namesrv) as admin:
        for topic in ("greetings", "many", "pushed", "again", "tags", "sql", "foreign", "left"):
            admin.create_topic(topic, write_queues=2, read_queues=2)
        for kind in TYPES:
            admin.create_topic(f"typed-{kind}", write_queues=2, read_queues=2, message_type=kind)
        for client in CLIENTS:
            admin.create_topic(f"{client}-normal", write_queues=2, read_queues=2)
            for kind in ("FIFO", "TRANSACTION"):
                admin.create_topic(f"{client}-{kind}", write_queues=2, read_queues=2, message_type=kind)
            admin.create_group(f"{client}-fifo", order=True)
        admin.create_topic("ordered", write_queues=2, read_queues=2, message_type="FIFO")
        admin.create_group("in-order", order=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=BROKERS, **CHECKS) as cluster:
        create(cluster.namesrv)
        yield cluster


@pytest.fixture(scope="module")
def address(cluster: Cluster) -> Iterator[str]:
    with proxy(cluster.namesrv) as address:
        yield address


@pytest.fixture(scope="module")
def apache(originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a proxy in front of Apache's servers."""
    with servers.apache(originals("apache"), tmp_path_factory.mktemp("apache")) as found:
        create(found.namesrv)
        with proxy(found.namesrv) as address:
            yield address


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, originals: Callable[[str], Path]) -> GrpcClient:
    return grpc_clients.start(request.param, originals)


def stored(namesrv: str, topic: str) -> dict[str, int]:
    """The messages of a topic at each broker."""
    with rmqpy.Admin(namesrv) as admin:
        counts = dict.fromkeys(BROKERS, 0)
        for queue in admin.topic(topic):
            counts[queue.broker] += queue.end
        return counts


def test_message_is_received_and_acknowledged(address: str, tmp_path: Path) -> None:
    seen = observe(tmp_path, "round_trip", address, "greetings")
    (found,) = seen["found"]
    assert found["id"] == seen["sent"]
    assert (found["body"], found["tag"], found["keys"]) == ("hello", "greeting", ["key-1"])
    assert seen["rest"] == 0


def test_messages_go_to_every_broker_and_are_acknowledged_there(
    cluster: Cluster, address: str, tmp_path: Path
) -> None:
    seen = observe(tmp_path, "many", address, "many", "12")
    assert sorted(map(int, seen["found"])) == list(range(12))
    assert seen["rest"] == 0
    assert stored(cluster.namesrv, "many") == {"broker-a": 6, "broker-b": 6}


def test_message_groups_keep_their_order_over_all_brokers(
    cluster: Cluster, address: str, tmp_path: Path
) -> None:
    found = observe(tmp_path, "in_order", address, "ordered", "12")
    for group in range(3):
        wanted = [str(number) for number in range(12) if number % 3 == group]
        assert [body for name, body in found if name == f"order-{group}"] == wanted
    # The jump hash counts the queues of all brokers: 0, 3 and 2 of four.
    with rmqpy.Admin(cluster.namesrv) as admin:
        used = {(queue.broker, queue.queue_id): queue.end for queue in admin.topic("ordered") if queue.end}
    assert used == {("broker-a", 0): 4, ("broker-b", 1): 4, ("broker-b", 0): 4}


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY"])
def test_topic_takes_messages_of_its_type(address: str, tmp_path: Path, kind: str) -> None:
    seen = observe(tmp_path, "typed", address, f"typed-{kind}", kind)
    (found,) = seen["found"]
    assert found["body"] == kind
    assert seen["recall"] == (kind == "DELAY")
    assert kind != "DELAY" or seen["after"] >= 1


def test_topic_refuses_messages_of_another_type(address: str, tmp_path: Path) -> None:
    assert "type" in observe(tmp_path, "typed", address, "typed-FIFO", "NORMAL")["refused"]


def test_unknown_topic_is_refused(cluster: Cluster, address: str, tmp_path: Path) -> None:
    assert "refused" in observe(tmp_path, "typed", address, "nowhere", "NORMAL")
    with rmqpy.Admin(cluster.namesrv) as admin:
        assert "nowhere" not in admin.topics()


def test_delayed_message_is_recalled_at_its_broker(address: str, tmp_path: Path) -> None:
    seen = observe(tmp_path, "recall", address, "typed-DELAY")
    assert seen["recalled"] == seen["sent"]


def test_transactions_are_committed_rolled_back_and_checked(address: str, tmp_path: Path) -> None:
    seen = observe(tmp_path, "transactions", address, "typed-TRANSACTION")
    assert sorted(one["body"] for one in seen["found"]) == ["check", "commit"]
    assert seen["asked"] == ["check"]


def test_changed_time_brings_a_message_again(address: str, tmp_path: Path) -> None:
    assert observe(tmp_path, "again", address, "again") == {"attempts": [1, 2], "is_new": True}


def test_filters_by_tag_and_by_property(address: str, tmp_path: Path) -> None:
    assert observe(tmp_path, "filters", address, "tags", "TAG", "odd || none") == ["1", "3"]
    assert observe(tmp_path, "filters", address, "sql", "SQL", "number >= 2") == ["2", "3"]


def test_push_consumer_gets_messages_of_every_broker(cluster: Cluster, address: str, tmp_path: Path) -> None:
    found = observe(tmp_path, "push", address, "pushed", "8")
    assert sorted(one["body"] for one in found) == ["0", *map(str, range(8))]
    assert stored(cluster.namesrv, "pushed") == {"broker-a": 4, "broker-b": 4}


def test_brokers_know_the_clients_of_the_proxy(cluster: Cluster, address: str, tmp_path: Path) -> None:
    command, known = [sys.executable, str(SCENARIOS), "without_broker", address, "greetings"], set(BROKERS)
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_env(tmp_path)
        ) as sender,
        rmqpy.Admin(cluster.namesrv) as admin,
    ):
        assert sender.stdout is not None
        sender.stdout.readline()
        # Registered at each of them.
        until(lambda: {broker for client in admin.clients("greetings") for broker in client.brokers} == known)
        (client,) = admin.clients("greetings")
        assert (client.language, client.release) == ("PYTHON", RELEASE)
        sender.communicate(b"\n", timeout=60)


def test_producer_goes_on_when_a_broker_is_gone(tmp_path: Path) -> None:
    with Cluster(brokers=BROKERS) as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic("left", write_queues=2, read_queues=2)
        with proxy(cluster.namesrv) as address:
            command = [sys.executable, str(SCENARIOS), "without_broker", address, "left"]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_env(tmp_path)
            ) as sender:
                assert sender.stdout is not None
                assert json.loads(sender.stdout.readline()) == {"sent": 4}
                cluster.stop("broker-a")
                out, _ = sender.communicate(b"\n", timeout=100)
                assert json.loads(out) == {"sent": 20}


def test_users_of_the_brokers_are_users_of_the_proxy(tmp_path: Path) -> None:
    shared = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }
    inner = '{"accessKey":"root","secretKey":"root-secret"}'
    guarded: dict[str, Setting] = {**shared, "innerClientAuthenticationCredentials": inner}
    with Cluster(name_servers=1, brokers=BROKERS, **guarded) as cluster:
        credentials = rmqpy.Credentials("root", "root-secret")
        with rmqpy.Admin(rmqpy.ClientConfig(namesrv=cluster.namesrv, credentials=credentials)) as admin:
            admin.create_topic("bills", write_queues=2, read_queues=2)
        with proxy(cluster.namesrv, authConfigPath=str(tmp_path / "auth"), **shared) as address:
            assert observe(tmp_path, "signed", address, "bills", "root", "root-secret") == {"sent": True}
            for user, secret in (("root", "wrong"), ("stranger", "root-secret")):
                assert "refused" in observe(tmp_path, "signed", address, "bills", user, secret)


def test_every_client_receives_what_it_sent(address: str, client: GrpcClient, tmp_path: Path) -> None:
    seen = client.observe(tmp_path, "normal", address, f"{client.name}-normal", f"{client.name}-normal")
    (found,) = seen["found"]
    assert (found["id"], found["body"]) == (seen["sent"], "hello")
    assert seen["rest"] == 0


def test_every_client_receives_a_message_group_in_order(
    address: str, client: GrpcClient, tmp_path: Path
) -> None:
    seen = client.observe(tmp_path, "fifo", address, f"{client.name}-FIFO", f"{client.name}-fifo")
    assert seen == {"found": ["0", "1", "2", "3"], "groups": ["order-1"] * 4}


def test_every_client_ends_transactions(address: str, client: GrpcClient, tmp_path: Path) -> None:
    name = f"{client.name}-TRANSACTION"
    seen = client.observe(tmp_path, "transactions", address, name, name)
    assert sorted(seen["found"]) == ["check", "commit"]
    assert "check" in seen["asked"]


def test_apache_broker_behind_the_proxy(apache: str, tmp_path: Path) -> None:
    seen = observe(tmp_path, "round_trip", apache, "greetings")
    (found,) = seen["found"]
    assert (found["id"], found["body"], found["attempt"]) == (seen["sent"], "hello", 1)
    assert seen["rest"] == 0
    assert observe(tmp_path, "again", apache, "again") == {"attempts": [1, 2], "is_new": True}
    assert observe(tmp_path, "filters", apache, "tags", "TAG", "odd || none") == ["1", "3"]


@pytest.mark.parametrize("kind", ["FIFO", "DELAY"])
def test_apache_broker_takes_messages_of_types(apache: str, tmp_path: Path, kind: str) -> None:
    seen = observe(tmp_path, "typed", apache, f"typed-{kind}", kind)
    assert [one["body"] for one in seen["found"]] == [kind]
    assert kind != "DELAY" or seen["after"] >= 1
    assert "type" in observe(tmp_path, "typed", apache, f"typed-{kind}", "NORMAL")["refused"]


def test_apache_broker_keeps_the_order_of_message_groups(apache: str, tmp_path: Path) -> None:
    found = observe(tmp_path, "in_order", apache, "ordered", "9")
    for group in range(3):
        wanted = [str(number) for number in range(9) if number % 3 == group]
        assert [body for name, body in found if name == f"order-{group}"] == wanted


def test_apache_broker_checks_transactions_through_the_proxy(apache: str, tmp_path: Path) -> None:
    seen = observe(tmp_path, "transactions", apache, "typed-TRANSACTION")
    assert sorted(one["body"] for one in seen["found"]) == ["check", "commit"]
    assert "check" in seen["asked"]


def _env(folder: Path) -> dict[str, str]:
    return os.environ | {"HOME": str(folder)}
