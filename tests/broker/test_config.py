"""broker.conf: each key is served, reported, or refused; no key is ignored silently."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqpy._native import Store
from rmqpy.config import broker, known
from rmqpy.config.broker import BrokerConfig
from rmqpy.errors import ConfigError

KEYS = [
    line
    for line in (Path(__file__).parent.parent / "vectors/broker_keys.txt").read_text().splitlines()
    if not line.startswith("#")
]
SERVED = broker.served()


def classes(key: str) -> list[str]:
    """Every class a key belongs to."""
    is_served = key in SERVED
    belongs = {
        "served": is_served,
        "harmless": key in known.HARMLESS,
        "guarded": known.is_guarded(key) and not is_served,
        "derived": key in known.DERIVED_PATHS,
    }
    return [name for name, does in belongs.items() if does]


def test_every_key_of_an_apache_broker_has_one_class() -> None:
    assert {key: found for key in KEYS if len(found := classes(key)) != 1} == {}


def test_shipped_broker_conf_starts_and_reports_ignored_keys() -> None:
    reading = broker.read(
        {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "deleteWhen": "04",
            "fileReservedTime": "48",
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
        }
    )
    assert reading.config.name == "broker-a"
    assert reading.warnings == []
    assert (reading.config.store.delete_hours, reading.config.store.reserved_hours) == ((4,), 48)


@pytest.mark.parametrize(
    "setting",
    [
        {"enableDLegerCommitLog": "true"},
        {"enableControllerMode": "true"},
        {"allAckInSyncStateSet": "true"},
        {"asyncLearner": "true"},
        {"brokerId": "-1"},
        {"storeType": "defaultRocksDB"},
        {"storePathCommitLog": "/mnt/a,/mnt/b"},
        {"messageStorePlugIn": "some.Plugin"},
        {"tls.server.mode": "enforcing"},
    ],
)
def test_start_refuses_settings_that_are_unsafe_to_ignore(setting: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        broker.read(setting)


def test_dangerous_key_with_a_harmless_value_is_accepted() -> None:
    assert broker.read({"aclEnable": "false", "totalReplicas": "1", "storeType": "default"}).warnings == []


def test_a_misspelt_key_is_reported_with_the_likely_one() -> None:
    assert broker.read({"lisenPort": "1"}).warnings == [
        "unknown key lisenPort is ignored: did you mean listenPort?"
    ]


def test_derived_paths_are_accepted_and_reported_only_where_they_differ() -> None:
    given = {
        "storePathRootDir": "/data",
        "storeCheckpoint": "/data/checkpoint",
        "abortFile": "/elsewhere/abort",
    }
    assert broker.read(given).warnings == [
        "abortFile=/elsewhere/abort is ignored: this broker uses /data/abort"
    ]


def test_folders_of_log_queues_and_index_are_below_the_root_unless_they_are_named() -> None:
    given = {
        "storePathRootDir": "/data",
        "storePathCommitLog": "/data/commitlog",
        "storePathConsumeQueue": "",
        "storePathIndex": "/elsewhere/index/",
    }
    reading = broker.read(given)
    assert reading.warnings == []
    assert reading.config.store.named_folders == (None, None, "/elsewhere/index")
    assert reading.config.store.folders == ("/data/commitlog", "/data/consumequeue", "/elsewhere/index")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"storePathCommitLog": "/mnt/a,/mnt/b"}, "must be in one folder"),
        ({"storePathCommitLog": "/data"}, "must not contain the root /data"),
        ({"storePathIndex": "/"}, "must not contain the root /data"),
        ({"storePathCommitLog": "/data/config/log"}, "config uses /data/config"),
        ({"storePathIndex": "/data/rmqpy"}, "rmqpy uses /data/rmqpy"),
        ({"storePathConsumeQueue": "/data/commitlog"}, "storePathCommitLog uses /data/commitlog"),
        (
            {"storePathCommitLog": "/mnt/a", "storePathIndex": "/mnt/a/index"},
            "storePathCommitLog uses /mnt/a",
        ),
        ({"storePathIndex": "/mnt/a\nb"}, "must not contain a line feed"),
    ],
)
def test_store_parts_need_separate_folders(setting: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        broker.read({"storePathRootDir": "/data"} | setting)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"listenPort": "70000"}, "from 0 to 65535"),
        ({"listenPort": "x"}, "whole number"),
        ({"listenPort": "2"}, "VIP port, 2 below"),
        ({"autoCreateTopicEnable": "yes"}, "true or false"),
        ({"flushDiskType": "NEVER"}, "ASYNC_FLUSH, SYNC_FLUSH"),
        ({"commitLogWritePath": "buffer"}, "ring, mapping"),
        ({"commitLogRingBytes": "1048576"}, "maxMessageSize=4194304 need"),
        ({"brokerPermission": "8"}, "from 0 to 7"),
        ({"namesrvAddr": "somewhere"}, "host:port"),
    ],
)
def test_a_bad_value_names_what_was_expected(setting: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        broker.read(setting)


@pytest.mark.parametrize(
    ("flush", "write_path", "durability"),
    [
        ("ASYNC_FLUSH", None, "page_cache"),
        ("ASYNC_FLUSH", "ring", "page_cache"),
        ("ASYNC_FLUSH", "mapping", "page_cache_mapped"),
        ("SYNC_FLUSH", None, "disk"),
        ("SYNC_FLUSH", "mapping", "disk_mapped"),
    ],
)
def test_two_keys_choose_a_durability_that_the_store_knows(
    flush: str, write_path: str | None, durability: str
) -> None:
    given = {"flushDiskType": flush} | ({"commitLogWritePath": write_path} if write_path else {})
    config, warnings = broker.read(given)
    assert (config.store.durability, warnings) == (durability, [])
    Store(config.store)


@pytest.mark.parametrize(
    ("setting", "durability", "words"),
    [
        ({"syncFlushMapped": "true"}, "disk_mapped", "syncFlushMapped is now commitLogWritePath=mapping"),
        ({"syncFlushMapped": "false"}, "disk", "syncFlushMapped is now commitLogWritePath=mapping"),
        (
            {"transientStorePoolEnable": "true"},
            "disk",
            "the write ring takes the place of the transient pool",
        ),
        ({"commitLogWritePath": "spool"}, "disk", "is now called commitLogWritePath=ring"),
    ],
)
def test_earlier_settings_of_the_write_path_are_accepted_and_explained(
    setting: Mapping[str, str], durability: str, words: str
) -> None:
    config, warnings = broker.read({"flushDiskType": "SYNC_FLUSH", **setting})
    assert config.store.durability == durability
    [warning] = warnings
    assert words in warning


def check_addresses(given: Mapping[str, str], *, listen: str, advertised: str, is_open: bool) -> None:
    config, warnings = broker.read(given)
    assert (config.listen_host, config.advertised_host, config.is_open) == (listen, advertised, is_open)
    assert warnings == []


def test_broker_listens_on_loopback_unless_configured() -> None:
    check_addresses({}, listen="127.0.0.1", advertised="127.0.0.1", is_open=False)
    check_addresses({"brokerIP1": "127.0.0.1"}, listen="127.0.0.1", advertised="127.0.0.1", is_open=False)
    check_addresses({"brokerIP1": "192.0.2.7"}, listen="0.0.0.0", advertised="192.0.2.7", is_open=True)
    check_addresses({"bindAddress": "192.0.2.7"}, listen="192.0.2.7", advertised="192.0.2.7", is_open=True)
    check_addresses(
        {"bindAddress": "0.0.0.0", "brokerIP1": "10.1.1.1"},
        listen="0.0.0.0",
        advertised="10.1.1.1",
        is_open=True,
    )


def test_only_listed_keys_can_be_changed_while_the_broker_runs() -> None:
    config = BrokerConfig(name="broker-a")
    assert config.change({"brokerPermission": "4"}).permission == 4
    for key in ("listenPort", "storePathRootDir", "brokerName", "rocketmqHome", "nonsense"):
        with pytest.raises(ConfigError, match=key):
            config.change({key: "1"})


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.conf"):
        broker.load(tmp_path / "missing.conf")


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=from-file\nlistenPort=10921\n")
    config = broker.load(path, {"listenPort": "0"}).config
    assert (config.name, config.listen_port) == ("from-file", 0)
