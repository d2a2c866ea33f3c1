"""5.x clients at several proxies, and at one whose cluster changes: the official Python client."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from certificates import Authority
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.server import Setting, Standalone, Thread, written
from rmqpy.service import Service
from rmqpy.testing import SMALL, Cluster
from waiting import until

pytest.importorskip("rocketmq", reason="rocketmq-python-client is not installed", exc_type=ImportError)
from . import grpc_clients
from .grpc_python import SCENARIOS, observe
from .grpc_stubs import METADATA, named, services, stub
from .proxies import process, proxy, serving

pytestmark = pytest.mark.timeout(300, func_only=True)

OK, UNAUTHORIZED, TOPIC_NOT_FOUND, INTERNAL_ERROR = 20000, 40100, 40402, 50001


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    checks = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}
    with Cluster(brokers=("broker-a", "broker-b"), **checks) as cluster:
        with rmqpy.Admin(cluster.namesrv) as admin:
            for topic in ("ended", "checked"):
                admin.create_topic(topic, write_queues=2, read_queues=2, message_type="TRANSACTION")
            admin.create_topic("failing", write_queues=2, read_queues=2)
            admin.create_group("failing", retry_max=1)
        yield cluster


@pytest.fixture(scope="module")
def address(cluster: Cluster) -> Iterator[str]:
    with proxy(cluster.namesrv) as address:
        yield address


def test_any_proxy_ends_a_transaction(cluster: Cluster, address: str, tmp_path: Path) -> None:
    with process(cluster.namesrv) as other:
        seen = observe(tmp_path, "ended_elsewhere", address, "ended", other)
    # The broker refuses the second decision, that of the proxy which sent the half message.
    assert seen == {"codes": [OK, INTERNAL_ERROR] * 2, "found": ["commit"]}


@pytest.mark.parametrize("is_first", [True, False])
def test_check_reaches_a_client_of_any_proxy(
    cluster: Cluster, address: str, tmp_path: Path, is_first: bool
) -> None:
    with process(cluster.namesrv) as other:
        places = (address, other) if is_first else (other, address)
        seen = observe(tmp_path, "checked_elsewhere", places[0], "checked", places[1])
    assert seen == {"found": ["left behind"], "asked": ["left behind"]}


def test_unknown_transaction_is_refused(address: str) -> None:
    request = services.EndTransactionRequest(
        topic=named("ended"), message_id="none", transaction_id="none", resolution="COMMIT"
    )
    with stub(address) as calls:
        status = calls.EndTransaction(request, metadata=METADATA).status
    assert (status.code, status.message) == (INTERNAL_ERROR, "cannot found transaction data")


def test_half_message_of_a_user_is_looked_up_by_the_user_of_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    inner = {"innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"root-secret"}'}
    guarded: dict[str, Setting] = {**shared, **inner}
    with Cluster(name_servers=1, brokers=("broker-a",), **guarded) as cluster:
        credentials = rmqpy.Credentials("root", "root-secret")
        with rmqpy.Admin(rmqpy.ClientConfig(namesrv=cluster.namesrv, credentials=credentials)) as admin:
            admin.create_topic("bills", write_queues=2, read_queues=2, message_type="TRANSACTION")
            admin.create_user("billing", "billing-secret")
            admin.set_rule("billing", "Topic:bills", ["Pub", "Sub"])
            admin.set_rule("billing", "Group:*", ["Sub"])
        users = tmp_path / "auth"
        shutil.copytree(cluster.folder / "broker-a" / "config", users)
        monkeypatch.setenv("GRPC_USER", "billing")
        monkeypatch.setenv("GRPC_SECRET", "billing-secret")
        given = {"authConfigPath": str(users), **shared}
        with proxy(cluster.namesrv, **given) as one, proxy(cluster.namesrv, **given, **inner) as other:
            seen = observe(tmp_path, "ended_elsewhere", one, "bills", other)
            assert seen == {"codes": [OK, INTERNAL_ERROR] * 2, "found": ["commit"]}
            # Without a user of its own, the proxy asks as the client, which may not read half messages.
            seen = observe(tmp_path, "ended_elsewhere", other, "bills", one)
            assert seen == {"codes": [UNAUTHORIZED, OK] * 2, "found": ["commit"]}


def test_message_that_fails_in_a_listener_becomes_a_dead_letter(
    cluster: Cluster, address: str, originals: Callable[[str], Path], tmp_path: Path
) -> None:
    client = grpc_clients.start("python", originals)
    with (
        client.running(tmp_path, "push", address, "failing", "failing") as run,
        rmqpy.Producer(cluster.namesrv) as producer,
    ):
        run.wait_for(bool)
        for body in (b"good", b"bad"):
            producer.send("failing", body)
        run.wait_for(
            lambda seen: sorted(line["got"] for line in seen if "got" in line) == ["bad", "bad", "good"]
        )
        with rmqpy.SimpleConsumer("letters", cluster.namesrv, start_from="earliest") as reader:
            reader.subscribe("%DLQ%failing")
            (letter,) = reader.receive(wait=60)
    assert letter.body == b"bad"


def test_connections_to_clients_and_to_brokers_are_encrypted(
    originals: Callable[[str], Path], tmp_path: Path
) -> None:
    issued = Authority(tmp_path / "authority").issue()
    shared: dict[str, Any] = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": issued.cert,
        "tls.server.keyPath": issued.key,
        "tls.client.trustCertPath": issued.ca,
    }
    env = {"GRPC_TLS": "1", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": issued.ca}
    client = grpc_clients.start("python", originals)
    with Standalone(tmp_path / "data", namesrv_port=0, broker_port=0, **SMALL, **shared) as server:
        config = rmqpy.ClientConfig(namesrv=server.namesrv, tls=rmqpy.TLS(ca=issued.ca))
        with rmqpy.Admin(config) as admin:
            admin.create_topic("secret", write_queues=2, read_queues=2)
        with proxy(server.namesrv, **{"tls.enable": "true"}, **shared) as address:
            seen = client.observe(tmp_path, "normal", address, "secret", "readers", env=env)
            assert [one["body"] for one in seen["found"]] == ["hello"]
            assert "refused" in client.observe(tmp_path, "send", address, "secret", "readers")
        # Without TLS, the proxy reaches no name server.
        with proxy(server.namesrv, **shared) as address:
            assert "refused" in client.observe(tmp_path, "send", address, "secret", "readers", env=env)


def made(folder: Path, namesrv: str, **settings: Setting) -> Broker:
    """A broker of the set `broker-a`."""
    given: dict[str, Setting] = {
        "brokerName": "broker-a",
        "namesrvAddr": namesrv,
        "listenPort": 0,
        "storePathRootDir": str(folder / f"store-{settings.get('brokerId', 0)}"),
    }
    return Broker(broker_config.read(written({**given, **SMALL, **settings})).config)


@contextmanager
def running(*servers: Service) -> Iterator[None]:
    with ExitStack() as stack:
        for server in servers:
            thread = Thread(server)
            thread.start()
            stack.callback(thread.stop)
        yield


def test_clients_go_on_at_a_new_master(tmp_path: Path) -> None:
    names = NameServer(NameServerConfig(listen_port=0, kv_path="", store_path=""))
    with running(names):
        master = made(tmp_path, names.address)
        slave = made(tmp_path, names.address, brokerRole="SLAVE", brokerId=1)
        with (
            running(master, slave),
            rmqpy.Admin(names.address) as admin,
            proxy(names.address) as address,
        ):
            admin.create_topic("orders", write_queues=2, read_queues=2)
            command = [sys.executable, str(SCENARIOS), "without_broker", address, "orders"]
            environment = os.environ | {"HOME": str(tmp_path)}
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            ) as sender:
                assert sender.stdout is not None
                assert json.loads(sender.stdout.readline()) == {"sent": 4}
                until(lambda: 1 in {replica.broker_id for replica in admin.replicas()})
                admin.promote("broker-a", 1)
                out, _ = sender.communicate(b"\n", timeout=100)
            assert json.loads(out) == {"sent": 20}
            found: list[dict[str, Any]] = observe(tmp_path, "from_remoting", address, "orders", "20")
            assert sorted(int(one["body"]) for one in found) == list(range(20))


def test_calls_are_counted_by_method(cluster: Cluster) -> None:
    with serving(cluster.namesrv, httpPort="0") as server, stub(server.address) as calls:
        for topic, code in (("ended", OK), ("nowhere", TOPIC_NOT_FOUND)):
            reply = calls.QueryRoute(services.QueryRouteRequest(topic=named(topic)), metadata=METADATA)
            assert reply.status.code == code
        lines = urllib.request.urlopen(f"http://{server.http_address}/metrics").read().decode().splitlines()
    counted = {line.split("{")[0]: line.split()[-1] for line in lines if 'method="QueryRoute"' in line}
    assert counted == {"rmqpy_grpc_calls_total": "2.0", "rmqpy_grpc_refused_calls_total": "1.0"}
    assert any(line.startswith("rocketmq_proxy_up{") and line.endswith(" 1.0") for line in lines)
