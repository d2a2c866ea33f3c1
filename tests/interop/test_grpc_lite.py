"""Lite topics with the official clients of 5.x: at the broker itself, and through a proxy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy.admin.topics import TopicType
from rmqpy.server import Standalone
from rmqpy.testing import broker

from . import grpc_clients, mqadmin
from .clients import InteropClient, ProcessClient
from .grpc_clients import GrpcClient, Running
from .proxies import proxy
from .servers import Cluster

pytestmark = pytest.mark.timeout(300, func_only=True)

LITE: TopicType = "LITE"


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with (
        broker(grpcServerPort=0, enableLmq="true", enableMultiDispatch="true") as server,
        rmqpy.Admin(server.namesrv) as admin,
    ):
        admin.create_topic("sessions", write_queues=2, read_queues=2, message_type=LITE)
        for client in ("java", "python"):
            for name in ("shared", "exclusive", "proxy", "admin"):
                admin.create_group(
                    f"{client}-{name}", lite_parent="sessions", lite_exclusive=name == "exclusive"
                )
            admin.create_group(f"{client}-plain")
        yield server


@pytest.fixture(scope="module", params=["java", "python"])
def client(request: pytest.FixtureRequest, originals: Callable[[str], Path]) -> GrpcClient:
    return grpc_clients.start(request.param, originals)


def grpc_of(server: Standalone) -> str:
    assert server.grpc is not None
    return server.grpc


def ready(member: Running) -> None:
    member.wait_for(lambda seen: any("ready" in line for line in seen))


def wait_for(member: Running, *expected: tuple[str, str]) -> None:
    """Wait until these have come, as body and lite topic."""
    member.wait_for(
        lambda seen: {(line["got"], line["lite"]) for line in seen if "got" in line} >= set(expected)
    )


def send(server: Standalone, lite_topic: str, *words: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for word in words:
            producer.send(rmqpy.Message("sessions", word, lite_topic=lite_topic))


def test_a_client_consumes_its_lite_topics_in_order(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    group, address = f"{client.name}-shared", grpc_of(server)
    one, two = f"{client.name}-one", f"{client.name}-two"
    with client.running(tmp_path, "lite", address, "sessions", group, one, two) as member:
        ready(member)
        sent = client.observe(tmp_path, "lite-send", address, "sessions", group, one, "a", "b", "c")
        assert sent == {"sent": ["a", "b", "c"]}
        send(server, two, "once", "d")
        send(server, "unwanted", "e")
        wait_for(member, ("a", one), ("b", one), ("c", one), ("once", two), ("d", two))
        of_one = [line["got"] for line in member.seen if line.get("lite") == one]
        of_two = [(line["got"], line["attempt"]) for line in member.seen if line.get("lite") == two]
        assert of_one == ["a", "b", "c"]
        assert {"e"}.isdisjoint(line.get("got") for line in member.seen)
        assert ("once", 1) in of_two


def test_the_last_client_of_an_exclusive_group_gets_the_lite_topic(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    if client.name == "python":
        pytest.skip("release 5.1.2 adds the letters of a name, and the name only to its complete set")
    group, address, name = f"{client.name}-exclusive", grpc_of(server), f"{client.name}-only"
    with client.running(tmp_path, "lite", address, "sessions", group, name) as first:
        ready(first)
        send(server, name, "1")
        wait_for(first, ("1", name))
        with client.running(tmp_path, "lite", address, "sessions", group, name) as second:
            ready(second)
            send(server, name, "2", "3")
            wait_for(second, ("2", name), ("3", name))
            assert {"2", "3"}.isdisjoint(first.values("got"))


def test_a_group_without_a_parent_and_a_wrong_name_are_refused(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    address, group = grpc_of(server), f"{client.name}-shared"
    refused = client.observe(tmp_path, "lite-send", address, "sessions", group, "a b", "x")
    assert refused["sent"] == []
    assert "refused" in refused


def test_a_client_consumes_lite_topics_through_a_proxy(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    group, name = f"{client.name}-proxy", f"{client.name}-behind"
    with (
        proxy(server.namesrv) as address,
        client.running(tmp_path, "lite", address, "sessions", group, name) as member,
    ):
        ready(member)
        assert client.observe(tmp_path, "lite-send", address, "sessions", group, name, "1", "2")["sent"]
        wait_for(member, ("1", name), ("2", name))


def test_mqadmin_shows_lite_topics_and_their_clients(
    server: Standalone,
    client: GrpcClient,
    client_of: Callable[[str], InteropClient],
    tmp_path: Path,
) -> None:
    tool, group, name = client_of("java-5.5.0"), f"{client.name}-admin", f"{client.name}-shown"
    assert isinstance(tool, ProcessClient)
    cluster = Cluster(server.namesrv, server.broker, ())
    with client.running(tmp_path, "lite", grpc_of(server), "sessions", group, name) as member:
        ready(member)
        send(server, name, "1", "2", "3")
        wait_for(member, ("1", name), ("2", name), ("3", name))
        environment = mqadmin.of_lite_topics(cluster, tool, "sessions", group, name)
        printed = environment.run({label: command.arguments for label, command in mqadmin.LITE.items()})
        silent = {
            label: missing
            for label, command in mqadmin.LITE.items()
            if (missing := environment.missing(printed[label], command.expected))
        }
        assert not silent, {label: printed[label] for label in silent}
