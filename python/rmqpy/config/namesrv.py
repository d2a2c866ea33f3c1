"""Configuration of the name server: the keys of `namesrv.conf` that it supports, and what becomes of the others."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Self

from rmqpy.config import home
from rmqpy.config.access import AccessConfig
from rmqpy.config.keys import (
    CONNECTIONS_MAX,
    NO_HTTP,
    LoadedConfig,
    Settings,
    key,
    nearest,
    protects,
    read_file,
)
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.errors import ConfigError

#: Keys of Apache's name server that tune its threads and buffers: we have none of them.
HARMLESS: Final = frozenset(
    {
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "enableShutdownGracefully",
        "productEnvName",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "shutdownWaitTimeSeconds",
        "unRegisterBrokerQueueCapacity",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    }
)
#: Switches that change what others rely on; on, they are refused.
DANGEROUS: Final[Mapping[str, str]] = {
    "clusterTest": "unknown topics are not looked up in another environment",
    "enableControllerInNamesrv": "there is no controller in this name server",
}


#: What clients and tools ask to find brokers: GET_ROUTEINFO_BY_TOPIC and GET_BROKER_CLUSTER_INFO.
ROUTE_CODES: Final = (105, 106)
#: What brokers send: REGISTER_BROKER, UNREGISTER_BROKER, REGISTER_TOPIC_IN_NAMESRV, QUERY_DATA_VERSION,
#: GET_BROKER_MEMBER_GROUP, BROKER_HEARTBEAT.
REGISTRATION_CODES: Final = (103, 104, 217, 322, 901, 904)


def _in_home(name: str) -> str:
    found = home.find()
    return "" if found is None else str(found / "namesrv" / name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameServerConfig(Settings):
    """Addresses of the name server, what it remembers, and how it answers."""

    # Network.
    listen_port: int = key("listenPort", 9876, "TCP port; 0 takes a free one.", low=0, high=65_535)
    bind_address: str = key(
        "bindAddress", "127.0.0.1", "Address to listen on; 0.0.0.0 lets other machines connect."
    )
    http_port: int = key(
        "httpPort",
        NO_HTTP,
        "HTTP port of /metrics, /livez, /healthz and /readyz; 0 takes a free one, -1: off. Apache's has no such key.",
        low=NO_HTTP,
        high=65_535,
    )
    idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection with no traffic for so long is closed.",
        unit="seconds",
        low=1,
        high=86_400,
    )
    connections_max: int = key(
        "maxConnections",
        CONNECTIONS_MAX,
        "Connections at once; fewer where the system gives the process few descriptors, three quarters of which "
        "connections may use. Apache's has no such key.",
        low=1,
        high=1_000_000,
    )
    connections_per_address_max: int = key(
        "maxConnectionsPerAddress",
        0,
        "Connections of one address at once, loopback excepted; 0: half of all. Apache's has no such key.",
        low=0,
        high=1_000_000,
    )

    # Files.
    kv_path: str = key(
        "kvConfigPath",
        lambda: _in_home("kvConfig.json"),
        "Where the key-value configuration is kept; empty: in memory only.",
    )
    store_path: str = key(
        "configStorePath",
        lambda: _in_home("namesrv.properties"),
        "Where online changes of these settings are written; the file given at start, if one was.",
    )
    protected: str = key(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        "Keys that no administrator can change online.",
    )

    # Brokers.
    scan_interval_ms: int = key(
        "scanNotActiveBrokerInterval",
        5_000,
        "How often brokers that were silent for too long are looked for.",
        unit="ms",
        low=10,
        high=120_000,
        changeable=True,
    )
    tells_smallest: bool = key(
        "notifyMinBrokerIdChanged",
        False,
        "Brokers that may act for their master are told when the smallest id of their group changes.",
        changeable=True,
    )
    acting_master: bool = key(
        "supportActingMaster",
        False,
        "The smallest slave of a group without master is shown as its master, for reading.",
        changeable=True,
    )
    deletes_missing_topics: bool = key(
        "deleteTopicWithBrokerRegistration",
        False,
        "A registration also removes the topics it does not list.",
        changeable=True,
    )
    order_topics_to_brokers: bool = key(
        "returnOrderTopicConfigToBroker",
        True,
        "Brokers that register are told the order topics.",
        changeable=True,
    )

    # Answers.
    order_topics_to_clients: bool = key(
        "orderMessageEnable", False, "Routes of order topics name their queues.", changeable=True
    )
    lists_all_topics: bool = key(
        "enableAllTopicList", True, "The list of all topics is given out.", changeable=True
    )
    lists_topics: bool = key("enableTopicList", True, "Other lists of topics are given out.", changeable=True)
    waits_for_brokers: bool = key(
        "needWaitForService",
        False,
        "Routes are refused at first, until brokers had time to register.",
        changeable=True,
    )
    wait_seconds: int = key(
        "waitSecondsForService",
        45,
        "How long routes are refused at most with needWaitForService.",
        unit="seconds",
        low=0,
        high=3_600,
        changeable=True,
    )

    # Access control.
    auth_path: str = key(
        "authConfigPath",
        lambda: _in_home("auth"),
        "The folder of users.json and acls.json, where access control is on.",
    )
    registration_authentication: str = key(
        "registrationAuthenticationEnabled",
        "",
        "Brokers register only with requests signed by a user who may Update the cluster, by their "
        "innerClientAuthenticationCredentials. Empty: true where authenticationEnabled or aclEnable is. Apache's has "
        "no such key.",
        choices=("", "true", "false"),
    )
    authenticates_routes: bool = key(
        "routeAuthenticationEnabled",
        False,
        "With access control on, routes are told only to users who may use the topic, and the list of brokers to those "
        "who may Get the cluster. Apache's has no such key.",
    )
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)
        if self.http_port != NO_HTTP and self.tls.is_served:
            # Read once, so that a mistake stops the start.
            _ = self.tls.http_suites

    @property
    def authenticates_brokers(self) -> bool:
        """Whether brokers sign what they register."""
        follows = self.access.authenticates or self.access.is_plain
        return self.registration_authentication == "true" or (
            not self.registration_authentication and follows
        )

    @property
    def open_codes(self) -> Collection[int]:
        """Codes of requests that access control leaves open."""
        routes = () if self.authenticates_routes else ROUTE_CODES
        return frozenset((*routes, *(() if self.authenticates_brokers else REGISTRATION_CODES)))

    def change(self, given: Mapping[str, str]) -> Self:
        """As `Settings.change`, for every key of the file."""
        return dataclasses.replace(
            super().change(given), access=self.access.change(given), tls=self.tls.change(given)
        )

    def protects(self, wire: str) -> bool:
        """Whether an administrator may not change this key online."""
        return protects(self.protected, wire)

    def write(self) -> dict[str, str]:
        """Every key with its value, in alphabetical order."""
        return dict(sorted((super().write() | self.access.write() | self.tls.write()).items()))


def for_standalone(given: Mapping[str, str]) -> dict[str, str]:
    """Those entries for both servers of one process that its name server takes: all but where to listen, which each of
    the two has its own of."""
    known = served() - {"listenPort", "bindAddress", "httpPort"}
    return {wire: value for wire, value in given.items() if wire in known}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[NameServerConfig]:
    """Read `namesrv.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for a file that cannot be read, a value out of bounds, an override that no name server knows,
    and a setting that is dangerous to ignore.
    """
    given = read_file(path)
    if path is not None:
        given.setdefault("configStorePath", str(path))
    known = served() | DANGEROUS.keys()
    for wire in overrides or {}:
        if wire not in known and wire not in HARMLESS:
            meant = nearest(wire, known)
            raise ConfigError(f"unknown key {wire}" + (f": did you mean {meant}?" if meant else ""))
    return read(with_file(given | dict(overrides or {})))


def served() -> set[str]:
    """Every key that is supported."""
    return {wire for kind in (NameServerConfig, AccessConfig, TlsConfig) for wire in kind.declared()}


def read(given: Mapping[str, str]) -> LoadedConfig[NameServerConfig]:
    """A configuration from the entries served, a sentence for each of the others."""
    for wire, consequence in DANGEROUS.items():
        if given.get(wire, "false").lower() != "false":
            raise ConfigError(f"cannot start with {wire}={given[wire]}: {consequence}")
    known = served() | DANGEROUS.keys()
    warnings = [_warning(wire, value, known) for wire, value in given.items() if wire not in known]
    warnings += _homeless(given)
    config = dataclasses.replace(
        NameServerConfig.read(given), access=AccessConfig.read(given), tls=TlsConfig.read(given)
    )
    return LoadedConfig(config, warnings)


def _homeless(given: Mapping[str, str]) -> list[str]:
    """What is not kept because its file would be in a home folder, and the user has none."""
    if home.find() is not None:
        return []
    return [
        f"{wire} is not set, and the user has no home folder: {lost} when the name server stops; set HOME, or {wire}"
        for wire, lost in (
            ("kvConfigPath", "key-value pairs are lost"),
            ("configStorePath", "online changes of settings are lost"),
        )
        if wire not in given
    ]


def _warning(wire: str, value: str, known: set[str]) -> str:
    if wire in HARMLESS:
        return f"{wire}={value} is ignored: it has no counterpart here"
    meant = nearest(wire, known)
    return f"{wire}={value} is unknown and ignored" + (f"; did you mean {meant}?" if meant else "")
