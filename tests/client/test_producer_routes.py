"""Routes of a producer: looked up, kept while name servers are down, and refreshed."""

import time
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.protocol.names import AUTO_CREATE_TOPIC
from waiting import until

from .fakes import Brokers, NameServer, Network


def test_sends_continue_without_name_servers(name_server: NameServer, brokers: Brokers) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.02)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"first")
        name_server.stop()
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            # Old enough for a look-up in the background now and then, and for one in front at the end.
            producer.send("orders", b"x")
        time.sleep(0.1)  # the route ages past several times its refresh interval
        assert producer.send("orders", b"last").ok


def test_stale_route_is_used_without_name_servers(name_server: NameServer, brokers: Brokers) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.001)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        name_server.stop()
        # So old that it is looked up before it is used; that fails, and it is used.
        deadline = time.monotonic() + 0.02
        until(lambda: time.monotonic() > deadline)
        assert producer.send("orders", b"x").ok


def test_background_look_up_switches_name_servers_too(network: Network, brokers: Brokers) -> None:
    first, second = (network.name_server(brokers[:1], {"orders": 1}) for _ in range(2))
    config = rmqpy.ClientConfig(namesrv=[first.address, second.address], route_refresh=0.05)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        asked, other = (first, second) if first.asked else (second, first)
        asked.stop()
        other.brokers = list(brokers)
        until(lambda: producer.send("orders", b"x").queue.broker == "broker-b")


def test_dead_name_server_is_skipped(network: Network, brokers: Brokers) -> None:
    dead, alive = (network.name_server(brokers, {"orders": 1}) for _ in range(2))
    dead.stop()
    for _ in range(5):
        with rmqpy.Producer([dead.address, alive.address]) as producer:
            assert producer.send("orders", b"x").ok


def test_missing_name_server_and_missing_route_are_named(network: Network, brokers: Brokers) -> None:
    dead = network.name_server(brokers, {})
    dead.stop()
    with (
        rmqpy.Producer(dead.address) as producer,
        pytest.raises(errors.NameServerUnreachable, match=str(dead.port)),
    ):
        producer.send("orders", b"x")


def test_new_topic_borrows_template_queues_until_its_first_message(
    name_server: NameServer, brokers: Brokers
) -> None:
    name_server.topics[AUTO_CREATE_TOPIC] = 8
    with rmqpy.Producer(name_server.address) as producer:
        assert len(producer.queues("fresh")) == 2 * 4
        assert producer.send("fresh", b"x").ok


def test_unknown_topic_without_a_template_names_the_command(name_server: NameServer) -> None:
    with (
        rmqpy.Producer(name_server.address) as producer,
        pytest.raises(errors.TopicNotFound, match="rmqpy topic create fresh"),
    ):
        producer.send("fresh", b"x")


def test_topic_without_writable_queues_is_named(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.permission = 4
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(errors.NoWritableQueue):
        producer.send("orders", b"x")


def test_route_without_a_master_is_looked_up_again_soon(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        for broker in brokers:
            broker.registered_id = "2"
        with pytest.raises(errors.NoWritableQueue):
            producer.send("orders", b"x")
        brokers[0].registered_id = "0"

        def is_accepted() -> bool:
            try:
                return producer.send("orders", b"x").ok
            except errors.NoWritableQueue:
                return False

        until(is_accepted, seconds=5)


def test_changed_route_is_refreshed_in_the_background(
    network: Network, name_server: NameServer, brokers: Brokers
) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.01)
    newcomer = network.broker("broker-c")
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        name_server.brokers.append(newcomer)

        def reaches_newcomer() -> bool:
            return producer.send("orders", b"x").queue.broker == "broker-c"

        until(reaches_newcomer)


@pytest.mark.parametrize(
    "chosen",
    [
        rmqpy.MessageQueue("orders", "broker-a", 99),
        rmqpy.MessageQueue("orders", "elsewhere", 0),
        rmqpy.MessageQueue("refunds", "broker-a", 0),
        None,
    ],
)
def test_selector_must_choose_a_given_queue(name_server: NameServer, chosen: Any) -> None:
    with rmqpy.Producer(name_server.address, selector=lambda message, queues: chosen) as producer:
        for send in (producer.send, producer.submit):
            with pytest.raises(ValueError, match=r"the selector chose .* not among the queues of orders"):
                send("orders", b"x")
