"""Live brokers: found by address among all on the same connection."""

from rmqpy.protocol.topics import DataVersion
from rmqpy.routing.brokers import BrokerInfo, BrokerLiveInfo
from rmqpy.routing.live_brokers import LiveBrokers

VERSION = DataVersion(timestamp=1, counter=0, state_version=0)


def live(name: str, address: str, cluster: str = "c1") -> BrokerLiveInfo:
    info = BrokerInfo(cluster, name, 0, address, f"{address}1", connection=1)
    return BrokerLiveInfo(info, VERSION, None, 0.0)


def test_a_broker_is_found_by_its_address_among_all_that_share_its_connection() -> None:
    brokers = LiveBrokers()
    for number in range(1_000):
        brokers.put(live(f"broker-{number}", f"10.0.0.1:{number}"))
    brokers.put(live("broker-7", "10.0.0.1:7", cluster="c2"))
    (found,) = brokers.of_address("c1", "10.0.0.1:7")
    assert found.info.name == "broker-7"
    brokers.put(live("renamed", "10.0.0.1:7"))
    assert [each.info.name for each in brokers.of_address("c1", "10.0.0.1:7")] == ["broker-7", "renamed"]
    brokers.drop(found.info.key)
    assert [each.info.name for each in brokers.of_address("c1", "10.0.0.1:7")] == ["renamed"]
    assert len(brokers.of_connection(1)) == 1_001


def test_removed_brokers_leave_no_entries() -> None:
    brokers = LiveBrokers()
    one = live("broker-a", "10.0.0.1:1")
    brokers.put(one)
    brokers.drop(one.info.key)
    assert not brokers.of_address("c1", "10.0.0.1:1")
    assert not brokers.of_connection(1)
    assert not brokers.of_name("broker-a")
    assert len(brokers) == 0
