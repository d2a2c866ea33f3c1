"""Addresses of a cluster: address servers, units, VIP ports, and one native client for equal configurations."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.remoting import address_server
from rmqpy.server import Standalone
from waiting import until

from .fakes import Brokers, NameServer, Network


class AddressServer:
    """Answers every GET with `content`, or with an error."""

    def __init__(self) -> None:
        self.content = ""
        self.status = 200
        self.asked: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append(self.path)
                self.send_response(owner.status)
                self.end_headers()
                self.wfile.write(owner.content.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def names() -> Iterator[AddressServer]:
    with closing(AddressServer()) as names:
        yield names


def test_every_kind_of_client_uses_an_address_server(
    server: Standalone, topic: str, names: AddressServer
) -> None:
    names.content = f"{server.namesrv}\n"
    with rmqpy.Producer(names.url) as producer, rmqpy.Admin(names.url) as admin:
        assert producer.send(topic, b"x").ok
        assert topic in admin.topics()
        with rmqpy.PullConsumer("asking", names.url, start_from="earliest") as consumer:
            consumer.assign(consumer.queues(topic))
            assert consumer.poll(60)
    got = threading.Event()
    pushed = rmqpy.PushConsumer("pushed", names.url, start_from="earliest")
    pushed.on(topic, handler=lambda message: got.set())
    with pushed:
        assert got.wait(60)

    async def ask() -> list[str]:
        async with rmqpy.AsyncAdmin(names.url) as admin:
            return await admin.topics()

    assert topic in asyncio.run(ask())
    assert set(names.asked) == {"/rocketmq/nsaddr"}


def test_new_list_is_applied_and_lost_address_server_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, network: Network, brokers: Brokers, names: AddressServer
) -> None:
    monkeypatch.setattr(address_server, "POLL_S", 0.05)
    first, second = (network.name_server(brokers, {"orders": 1}) for _ in range(2))
    names.content = first.address
    config = rmqpy.ClientConfig(namesrv=names.url, route_refresh=0.02)
    with rmqpy.Producer(config) as producer:
        assert producer.send("orders", b"x").ok
        names.content = second.address
        until(lambda: producer.send("orders", b"x").ok and second.asked)
        names.status = 500
        polls = len(names.asked)
        until(lambda: producer.send("orders", b"x").ok and len(names.asked) > polls + 1)
        first.stop()
        assert producer.send("orders", b"x").ok


def test_empty_address_server_is_named_in_the_error(names: AddressServer) -> None:
    for content, status in [("", 200), ("what is this?:x", 200), ("http://another/", 200), ("a:1", 404)]:
        names.content, names.status = content, status
        with (
            rmqpy.Producer(names.url) as producer,
            pytest.raises(errors.NameServerUnreachable, match="nsaddr"),
        ):
            producer.send("orders", b"x")
    with pytest.raises(errors.ConfigError, match="cannot be combined with other addresses"):
        rmqpy.ClientConfig(namesrv=["a:9876", names.url])


def test_unit_is_part_of_the_query_and_of_client_ids(
    server: Standalone, topic: str, names: AddressServer
) -> None:
    names.content = server.namesrv
    config = rmqpy.ClientConfig(namesrv=names.url, unit="unit-7")
    with rmqpy.Producer(config, group="in-a-unit") as producer, rmqpy.Admin(server.namesrv) as admin:
        producer.send(topic, b"x")
        until(lambda: admin.clients("in-a-unit"))
        assert admin.clients("in-a-unit")[0].client_id.endswith("@unit-7")
    assert names.asked == ["/rocketmq/nsaddr-unit-7?nofix=1"]
    with pytest.raises(errors.ConfigError, match="unit"):
        rmqpy.ClientConfig(unit="a/b")


def test_sends_use_the_vip_port_if_configured() -> None:
    with testing.broker() as server:
        # Nothing else leads to the port that is advertised.
        nowhere = {server.broker: "127.0.0.1:1"}
        plain = rmqpy.ClientConfig(namesrv=server.namesrv, address_map=nowhere)
        vip = rmqpy.ClientConfig(namesrv=server.namesrv, address_map=nowhere, vip=True)
        with rmqpy.Producer(plain, retries=0) as producer, pytest.raises(errors.SendError):
            producer.send("orders", b"x")
        with rmqpy.Producer(vip) as producer:
            assert producer.send("orders", b"x").ok


def test_equal_configurations_share_a_native_client_and_the_last_one_closes_it(
    name_server: NameServer, brokers: Brokers
) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address)
    first, second = rmqpy.Producer(config), rmqpy.Producer(name_server.address)
    other = rmqpy.Producer(rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=2.0))
    puller = rmqpy.PullConsumer("sharing", config)
    try:
        shared = first._cluster.client
        assert second._cluster.client is shared
        assert puller._cluster.client is shared
        assert other._cluster.client is not shared
        for producer in (first, second, other):
            producer.send("orders", b"x", queue=rmqpy.MessageQueue("orders", "broker-a", 0))
        assert len(brokers[0].connections) == 2, "one for each native client"
        first.close()
        assert second.send("orders", b"x").ok
        second.close()
        assert puller.queues("orders")
    finally:
        for client in (first, second, other, puller):
            client.close()
    until(lambda: not brokers[0].connections)
    with rmqpy.Producer(config) as again:
        assert again._cluster.client is not shared
        assert again.send("orders", b"x").ok
