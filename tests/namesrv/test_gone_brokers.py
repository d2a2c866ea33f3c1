"""Brokers that left: name servers keep their last address until they are back, for a day."""

import pytest

from fakebroker import topics
from rmqpy.clock import HandClock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.protocol.requests.routes import GoneBroker
from rmqpy.protocol.topics import TopicTable
from rmqpy.remoting.configuration import Configuration
from rmqpy.routing import gone_brokers
from rmqpy.routing.brokers import BrokerInfo
from rmqpy.routing.routes import Routes

MASTER = BrokerInfo("c1", "broker-a", 0, "10.0.0.7:10911", "", 1)
SLAVE = BrokerInfo("c1", "broker-a", 1, "10.0.0.8:10911", "", 2)


@pytest.fixture
def routes(clock: HandClock) -> Routes:
    return Routes(clock, Configuration(NameServerConfig()))


def join(routes: Routes, *brokers: BrokerInfo) -> None:
    for each in brokers:
        routes.register(each, TopicTable(topic_config_table=topics("orders", "refunds")))


def gone(routes: Routes) -> list[tuple[str, int, str, bool]]:
    return [
        (each.broker_name, each.broker_id, each.broker_addr, each.is_stopped)
        for each in routes.cluster_info().gone_brokers or ()
    ]


def test_lost_broker_is_listed_with_its_last_address_and_the_time_since(
    routes: Routes, clock: HandClock
) -> None:
    join(routes, MASTER, SLAVE)
    routes.unregister([MASTER.key])
    clock.advance(65)
    assert routes.cluster_info().gone_brokers == [
        GoneBroker(
            cluster="c1",
            broker_name="broker-a",
            broker_id=0,
            broker_addr="10.0.0.7:10911",
            gone_millis=65_000,
        )
    ]


def test_stopped_broker_is_marked_and_a_returning_one_is_not_listed(routes: Routes) -> None:
    join(routes, MASTER, SLAVE)
    routes.unregister([MASTER.key, SLAVE.key], {SLAVE.key})
    assert gone(routes) == [
        ("broker-a", 0, "10.0.0.7:10911", False),
        ("broker-a", 1, "10.0.0.8:10911", True),
    ]
    join(routes, MASTER._replace(address="10.0.0.9:10911"))
    assert gone(routes) == [("broker-a", 1, "10.0.0.8:10911", True)]


def test_promoted_slave_takes_the_places_of_both(routes: Routes) -> None:
    join(routes, MASTER, SLAVE)
    routes.unregister([MASTER.key])
    routes.unregister([SLAVE.key], [SLAVE.key])
    join(routes, SLAVE._replace(broker_id=0))
    assert gone(routes) == []


def test_gone_brokers_are_bounded_in_number_and_time(
    routes: Routes, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone_brokers, "GONE_MAX", 2)
    brokers = [MASTER._replace(name=f"broker-{number}", address=f"10.0.0.{number}:1") for number in range(3)]
    join(routes, *brokers)
    for each in brokers:
        routes.unregister([each.key])
    assert [name for name, *_ in gone(routes)] == ["broker-1", "broker-2"]
    clock.advance(gone_brokers.GONE_SECONDS + 1)
    assert routes.cluster_info().gone_brokers is None
