"""5.x clients at the gRPC port: every official client that runs here, with every kind of message.

What a client has no method for is skipped with its name; `docs/grpc.md` has the table.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import pytest

import rmqpy
from certificates import Authority
from rmqpy.server import Setting, Standalone
from rmqpy.testing import broker

from . import grpc_clients, servers, wire
from .grpc_clients import ABSENT, CLIENTS, GrpcClient
from .servers import free_ports

pytestmark = pytest.mark.timeout(420, func_only=True)

Kind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"]
KINDS: tuple[Kind, ...] = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
CHECKS = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0, **CHECKS) as server, rmqpy.Admin(server.namesrv) as admin:
        for client in CLIENTS:
            for kind in KINDS:
                name = f"{client}-{kind}"
                admin.create_topic(name, write_queues=2, read_queues=2, message_type=kind)
            for name in ("again", "tags", "sql", "typed", "push", "ordered"):
                kind = "FIFO" if name == "ordered" else "NORMAL"
                admin.create_topic(f"{client}-{name}", write_queues=2, read_queues=2, message_type=kind)
            admin.create_group(f"{client}-fifo", order=True)
            admin.create_group(f"{client}-push", retry_max=1)
            admin.create_group(f"{client}-ordered", retry_max=1, order=True)
        yield server


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, originals: Callable[[str], Path]) -> GrpcClient:
    return grpc_clients.start(request.param, originals)


def grpc_of(server: Standalone) -> str:
    assert server.grpc is not None
    return server.grpc


def names(client: GrpcClient, topic: str, group: str) -> tuple[str, str]:
    return f"{client.name}-{topic}", f"{client.name}-{group}"


def test_client_receives_what_it_sent_and_acknowledges_it(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    seen = client.observe(tmp_path, "normal", grpc_of(server), *names(client, "NORMAL", "normal"))
    (found,) = seen["found"]
    assert found.pop("id") == seen["sent"]
    attempt = found.pop("attempt")
    assert attempt == 1
    assert found == {"body": "hello", "tag": "greeting", "keys": ["key-1"], "color": "blue"}
    assert seen["rest"] == 0


@pytest.mark.parametrize("has_certificate", [False, True], ids=["self-signed", "issued"])
def test_client_encrypts(client: GrpcClient, tmp_path: Path, has_certificate: bool) -> None:
    """Java and Go clients take any certificate, Node and Python only one of an authority that they know."""
    if client.name == "rust":
        pytest.skip("the rust client has no TLS")
    if client.name in ("node", "python") and not has_certificate:
        pytest.skip(f"the {client.name} client checks certificates")
    issued = Authority(tmp_path / "authority").issue()
    settings: dict[str, Setting] = {}
    if has_certificate:
        settings = {
            "tls.server.mode": "permissive",
            "tls.server.certPath": issued.cert,
            "tls.server.keyPath": issued.key,
        }
    env = {"GRPC_TLS": "1", "NODE_EXTRA_CA_CERTS": issued.ca, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": issued.ca}
    with broker(grpcServerPort=0, **settings) as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("secret", write_queues=2, read_queues=2)
        arguments = (grpc_of(server), "secret", "readers")
        seen = client.observe(tmp_path, "normal", *arguments, env=env)
        assert [one["body"] for one in seen["found"]] == ["hello"]
        plain = client.observe(tmp_path, "send", *arguments)
        assert "sent" in plain, plain


def test_ordered_group_receives_a_message_group_in_order(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    seen = client.observe(tmp_path, "fifo", grpc_of(server), *names(client, "FIFO", "fifo"))
    assert seen == {"found": ["0", "1", "2", "3"], "groups": ["order-1"] * 4}


def test_delayed_message_arrives_later(server: Standalone, client: GrpcClient, tmp_path: Path) -> None:
    seen = client.observe(tmp_path, "delay", grpc_of(server), *names(client, "DELAY", "delay"))
    assert seen["found"] == ["later"]
    assert 2 <= seen["after"] < 15
    assert seen["recall"] in (True, None)


def test_delayed_message_is_recalled(server: Standalone, client: GrpcClient, tmp_path: Path) -> None:
    seen = client.observe(tmp_path, "recall", grpc_of(server), *names(client, "DELAY", "recall"))
    assert seen["recalled"] == seen["sent"]


def test_transactions_are_committed_rolled_back_and_checked(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    seen = client.observe(
        tmp_path, "transactions", grpc_of(server), *names(client, "TRANSACTION", "transactions")
    )
    assert sorted(seen["found"]) == ["check", "commit"]
    assert "check" in seen["asked"]
    assert "commit" not in seen["asked"]


def test_changed_time_brings_a_message_again(server: Standalone, client: GrpcClient, tmp_path: Path) -> None:
    seen = client.observe(tmp_path, "again", grpc_of(server), *names(client, "again", "again"))
    assert seen == {"attempts": [1, 2]}


@pytest.mark.parametrize(
    ("topic", "kind", "expression", "wanted"),
    [("tags", "TAG", "odd || none", ["1", "3"]), ("sql", "SQL", "number >= 2", ["2", "3"])],
)
def test_filter(
    server: Standalone,
    client: GrpcClient,
    tmp_path: Path,
    topic: str,
    kind: str,
    expression: str,
    wanted: list[str],
) -> None:
    arguments = (*names(client, topic, topic), kind, expression)
    seen = client.observe(tmp_path, "filter", grpc_of(server), *arguments)
    assert sorted(seen["found"]) == wanted


def test_topic_refuses_messages_of_another_type(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    seen = client.observe(tmp_path, "send", grpc_of(server), *names(client, "FIFO", "typed"))
    assert "refused" in seen, seen
    missing = client.observe(tmp_path, "send", grpc_of(server), f"{client.name}-nowhere", "typed")
    assert "refused" in missing, missing
    with rmqpy.Admin(server.namesrv) as admin:
        assert f"{client.name}-nowhere" not in admin.topics()


@pytest.mark.parametrize("name", ["push", "ordered"])
def test_message_that_fails_in_a_listener_becomes_a_dead_letter(
    server: Standalone, client: GrpcClient, tmp_path: Path, name: str
) -> None:
    topic, group = names(client, name, name)
    every = ["bad", "bad", "good", "next"]
    with (
        client.running(tmp_path, "push", grpc_of(server), topic, group) as run,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        run.wait_for(bool)
        for body in (b"good", b"bad", b"next"):
            if name == "ordered":
                producer.send(topic, body, sharding_key="order-1")
            else:
                producer.send(topic, body)
        run.wait_for(lambda seen: sorted(line["got"] for line in seen if "got" in line) == every)
        with rmqpy.SimpleConsumer("letters", server.namesrv, start_from="earliest") as reader:
            reader.subscribe(f"%DLQ%{group}")
            (letter,) = reader.receive(wait=60)
        assert letter.body == b"bad"
    got = run.values("got")
    assert sorted(got) == every
    # The Go client goes on with the next message of a batch while it retries one.
    if name == "ordered" and client.name != "go":
        assert got == ["good", "bad", "bad", "next"]


def test_client_goes_on_after_a_broker_that_was_killed(
    client: GrpcClient, namesrv: str, tmp_path: Path
) -> None:
    home, port, grpc = tmp_path / "broker", servers.broker_port(), free_ports(1)
    home.mkdir()
    servers.write_broker_conf(home / "broker.conf", port, namesrv, grpcServerPort=grpc)
    address, topic = f"127.0.0.1:{grpc}", "steady"

    def start(number: int) -> servers.Child:
        child = servers.Child(f"broker-{number}", servers.rmqpy_broker_command(), home)
        child.wait_until(lambda: wire.knows(namesrv, servers.BROKER_NAME) and _accepts(grpc), 30)
        return child

    first = start(1)
    try:
        with rmqpy.Admin(namesrv) as admin:
            admin.create_topic(topic, write_queues=2, read_queues=2)
            admin.create_group("steady")
        with client.running(tmp_path, "steady", address, topic, "steady") as sender:
            sender.wait_for(lambda seen: len([line for line in seen if "sent" in line]) >= 5)
            with ExitStack() as stack:
                consumer = None
                if "push" not in ABSENT.get(client.name, ()):
                    push = client.running(tmp_path, "push", address, topic, "steady")
                    consumer = stack.enter_context(push)
                    consumer.wait_for(bool)
                first.kill()
                sent = len(sender.values("sent"))
                first = start(2)
                sender.wait_for(lambda seen: len([line for line in seen if "sent" in line]) >= sent + 20)
                if consumer is None:
                    return
                wanted = set(sender.values("sent"))
                consumer.wait_for(lambda seen: wanted <= {line["got"] for line in seen if "got" in line}, 90)
    finally:
        first.kill()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="module")
def guarded() -> Iterator[Standalone]:
    settings = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }
    with broker(grpcServerPort=0, **settings) as server:
        config = rmqpy.ClientConfig(
            namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "root-secret")
        )
        with rmqpy.Admin(config) as admin:
            admin.create_user("billing", "billing-secret")
            admin.create_user("reader", "reader-secret")
            for name in CLIENTS:
                admin.create_topic(f"{name}-bills", write_queues=2, read_queues=2)
                admin.set_rule("billing", f"Topic:{name}-bills", ["Pub", "Sub"])
                admin.set_rule("billing", f"Group:{name}-billing", ["Sub"])
                admin.set_rule("reader", f"Topic:{name}-bills", ["Sub"])
        yield server


def test_signed_calls_have_the_rights_of_their_user(
    guarded: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    arguments = (grpc_of(guarded), *names(client, "bills", "billing"))

    def env(user: str, secret: str) -> dict[str, str]:
        return {"GRPC_USER": user, "GRPC_SECRET": secret}

    seen = client.observe(tmp_path, "normal", *arguments, env=env("billing", "billing-secret"))
    assert [one["body"] for one in seen["found"]] == ["hello"]
    for user, secret in (("billing", "wrong"), ("reader", "reader-secret"), ("stranger", "secret")):
        refused = client.observe(tmp_path, "send", *arguments, env=env(user, secret))
        assert "refused" in refused, (user, refused)
