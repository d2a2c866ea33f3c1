"""IPv6: servers on ::1, and clients with every spelling of an address."""

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.client.identity import client_id
from rmqpy.config.addresses import HostPort, parse
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.client import addresses
from waiting import until

from .live import knows


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("::1", "[::1]:9876"),
        ("[::1]", "[::1]:9876"),
        ("[::1]:1234", "[::1]:1234"),
        ("2001:db8::9876", "[2001:db8::9876]:9876"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9876"),
        ("rmq://[::1]:1,[::2]", "[::1]:1 [::2]:9876"),
        ("::1;a:1;b", "[::1]:9876 a:1 b:9876"),
    ],
)
def test_address_with_many_colons_is_a_host_without_a_port(written: str, meant: str) -> None:
    assert " ".join(addresses(written)) == meant


@pytest.mark.parametrize(
    "written", ["a:b", "a:1:2", "[::1", "::1]:1", "[a]:1", "a:0", "a:65536", ":1", "a b:1", "[]:1"]
)
def test_invalid_address_is_refused_with_the_valid_form(written: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"is not an address; write host:port, or \[::1\]:port"):
        addresses(written)
    with pytest.raises(errors.ConfigError, match="namesrvAddr"):
        BrokerConfig(namesrv=written)


def test_written_addresses_are_parsed_back() -> None:
    for address in (HostPort("::1", 1), HostPort("localhost", 65535), HostPort("10.0.0.1", 9876)):
        assert parse(str(address)) == address
    with pytest.raises(errors.ConfigError):
        parse("localhost")


def test_clients_reach_ipv6_servers_by_advertised_addresses() -> None:
    with testing.broker(host="::1") as server:
        assert server.namesrv.startswith("[::1]:")
        assert server.broker.startswith("[::1]:")
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
        with rmqpy.Producer(server.namesrv) as producer, rmqpy.PullConsumer("g", server.namesrv) as consumer:
            until(lambda: knows(consumer, "orders"))
            producer.send("orders", "over six")
            [queue] = consumer.queues("orders")
            consumer.assign([queue])
            consumer.seek(queue, 0)
            assert [message.text() for message in consumer.poll(20)] == ["over six"]


def test_a_client_id_has_the_address_towards_its_name_server() -> None:
    assert client_id(addresses("::1"), "i") == "::1@i"
    assert client_id(addresses("127.0.0.1"), "i") == "127.0.0.1@i"
