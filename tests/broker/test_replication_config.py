"""Settings of replication: master and slave roles, and the copies that a reply promises."""

from collections.abc import Mapping

import pytest

from rmqpy.config import broker
from rmqpy.config.replication import ReplicationConfig
from rmqpy.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"brokerRole": "SLAVE"}, "brokerId=0 with brokerRole=SLAVE: a slave has a brokerId above 0"),
        (
            {"brokerId": "1"},
            "brokerId=1 with .*MASTER: a master has brokerId=0; brokerRole=SLAVE makes a slave",
        ),
        ({"brokerRole": "SYNC_MASTER", "brokerId": "2"}, "a master has brokerId=0"),
        ({"brokerId": "-1"}, "must be from 0"),
        ({"haMasterAddress": "somewhere"}, "haMasterAddress: .*host:port"),
        (
            {"haSendHeartbeatInterval": "9000", "haHousekeepingInterval": "9000"},
            "heartbeats come too late",
        ),
        ({"brokerRole": "SYNC_MASTER", "minInSyncReplicas": "3"}, "at most inSyncReplicas=2"),
        (
            {"enableRemoteEscape": "true"},
            "enableRemoteEscape=true: has no effect without enableSlaveActingMaster",
        ),
        ({"skipPreOnline": "true"}, "skipPreOnline=true: has no effect without enableSlaveActingMaster"),
        (
            {"brokerHeartbeatInterval": "1000", "brokerNotActiveTimeoutMillis": "1500"},
            "live brokers count as gone",
        ),
    ],
)
def test_contradictory_settings_are_refused(setting: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ReplicationConfig.read(setting)


@pytest.mark.parametrize(
    ("setting", "copies", "is_said"),
    [
        ({}, 1, False),
        ({"inSyncReplicas": "3"}, 1, False),
        ({"brokerRole": "SYNC_MASTER"}, 2, True),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}, 1, False),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3"}, 3, False),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, 1, False),
    ],
)
def test_sync_master_waits_for_one_slave_by_default(
    setting: Mapping[str, str], copies: int, is_said: bool
) -> None:
    config = ReplicationConfig.read(setting)
    assert (config.copies, config.promise is not None) == (copies, is_said)


def test_acting_slave_without_name_servers_does_not_start() -> None:
    with pytest.raises(ConfigError, match="needs name servers"):
        broker.read({"enableSlaveActingMaster": "true"})


def test_locks_that_most_brokers_of_a_name_give_are_refused() -> None:
    with pytest.raises(ConfigError, match="lockInStrictMode"):
        broker.read({"lockInStrictMode": "true"})


def test_keys_of_replication_are_served() -> None:
    reading = broker.read({"brokerId": "0", "slaveTimeout": "1000", "slaveReadEnable": "true"})
    assert reading.warnings == []
