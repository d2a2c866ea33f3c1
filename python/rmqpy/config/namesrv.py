"""Configuration of the name server: supported keys of `namesrv.conf`, and messages about the others."""

import dataclasses
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from rmqpy.config import controller as controllers
from rmqpy.config import home
from rmqpy.config.access import AccessConfig
from rmqpy.config.controller import ControllerConfig
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
from rmqpy.config.listeners import Listeners
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.errors import ConfigError

#: Keys of Apache's name server for its threads and buffers, which have no counterpart.
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
#: Switches that others rely on; refused when on.
DANGEROUS: Final[Mapping[str, str]] = {
    "clusterTest": "lookup of unknown topics in another environment is not supported",
}


#: Requests of clients and tools for brokers: GET_ROUTEINFO_BY_TOPIC and GET_BROKER_CLUSTER_INFO.
ROUTE_CODES: Final = (105, 106)
#: Requests of brokers: REGISTER_BROKER, UNREGISTER_BROKER, REGISTER_TOPIC_IN_NAMESRV, QUERY_DATA_VERSION,
#: GET_BROKER_MEMBER_GROUP, BROKER_HEARTBEAT.
REGISTRATION_CODES: Final = (103, 104, 217, 322, 901, 904)


def _in_home(name: str) -> str:
    found = home.find()
    return "" if found is None else str(found / "namesrv" / name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameServerConfig(Settings):
    """Addresses, files, and behaviour of the name server."""

    # Network.
    listen_port: int = key("listenPort", 9876, "TCP port; 0 picks a free port.", low=0, high=65_535)
    bind_address: str = key(
        "bindAddress", "127.0.0.1", "Address to listen on; 0.0.0.0 lets other machines connect."
    )
    listeners_given: str = key(
        "listeners",
        "",
        "Further addresses to listen on, each with a name, for clients that reach brokers by other addresses: "
        "outer=0.0.0.0:30876;lan=10.0.0.5:9876. Apache's name server has no such key.",
    )
    advertised: str = key(
        "advertisedAddresses",
        "",
        "Rules LISTENER FROM=TO, separated by semicolons, that replace broker addresses for clients of a listener; "
        "the first match counts. FROM is host:port, a network, or *; TO is host:port, and may "
        "contain {host}, {port}, {port+20000}, {broker}, {cluster}, {id}: outer 10.42.0.0/16=203.0.113.7:{port}. "
        "Apache's has no such key.",
        changeable=True,
    )
    http_port: int = key(
        "httpPort",
        NO_HTTP,
        "HTTP port of /metrics, /livez, /healthz and /readyz; 0 picks a free port, -1 turns HTTP off. "
        "Apache's name server has no such key.",
        low=NO_HTTP,
        high=65_535,
    )
    idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "Close connections without traffic for this long.",
        unit="seconds",
        low=1,
        high=86_400,
    )
    connections_max: int = key(
        "maxConnections",
        CONNECTIONS_MAX,
        "Maximum connections; fewer if they would need more than three quarters of the process's file descriptors. "
        "Apache's name server has no such key.",
        low=1,
        high=1_000_000,
    )
    connections_per_address_max: int = key(
        "maxConnectionsPerAddress",
        0,
        "Maximum connections from one address, except loopback; 0: half of all. Apache's name server has no such key.",
        low=0,
        high=1_000_000,
    )

    # Files.
    kv_path: str = key(
        "kvConfigPath",
        lambda: _in_home("kvConfig.json"),
        "File of the key-value configuration; empty: in memory only.",
    )
    store_path: str = key(
        "configStorePath",
        lambda: _in_home("namesrv.properties"),
        "File for online changes of these settings. Default: the file given at the start.",
    )
    protected: str = key(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        "Keys that administrators cannot change online.",
    )

    # Brokers.
    scan_interval_ms: int = key(
        "scanNotActiveBrokerInterval",
        5_000,
        "Interval between checks for expired brokers.",
        unit="ms",
        low=10,
        high=120_000,
        changeable=True,
    )
    tells_smallest: bool = key(
        "notifyMinBrokerIdChanged",
        False,
        "Notify brokers that may act for their master when the smallest id of their group changes.",
        changeable=True,
    )
    acting_master: bool = key(
        "supportActingMaster",
        False,
        "Show the slave with the smallest id as master, for reading, if a group has no master.",
        changeable=True,
    )
    deletes_missing_topics: bool = key(
        "deleteTopicWithBrokerRegistration",
        False,
        "A registration removes topics that it does not list.",
        changeable=True,
    )
    order_topics_to_brokers: bool = key(
        "returnOrderTopicConfigToBroker",
        True,
        "Return the order topics to brokers that register.",
        changeable=True,
    )

    # Controller.
    has_controller: bool = key(
        "enableControllerInNamesrv",
        False,
        "Run a controller in this process, on the port in controllerDLegerPeers, with the settings of a controller.",
    )
    controller: ControllerConfig | None = None

    # Answers.
    order_topics_to_clients: bool = key(
        "orderMessageEnable", False, "Include the queues of order topics in routes.", changeable=True
    )
    lists_all_topics: bool = key("enableAllTopicList", True, "Serve the list of all topics.", changeable=True)
    lists_topics: bool = key("enableTopicList", True, "Serve the other lists of topics.", changeable=True)
    waits_for_brokers: bool = key(
        "needWaitForService",
        False,
        "Refuse routes after the start until brokers had time to register.",
        changeable=True,
    )
    wait_seconds: int = key(
        "waitSecondsForService",
        45,
        "Longest time that routes are refused with needWaitForService.",
        unit="seconds",
        low=0,
        high=3_600,
        changeable=True,
    )

    # Access control.
    auth_path: str = key(
        "authConfigPath",
        lambda: _in_home("auth"),
        "Folder of users.json and acls.json for access control.",
    )
    registration_authentication: str = key(
        "registrationAuthenticationEnabled",
        "",
        "Brokers must sign registrations as a user with the action Update on the cluster, see "
        "innerClientAuthenticationCredentials. Empty: true if authenticationEnabled or aclEnable is. Apache's name "
        "server has no such key.",
        choices=("", "true", "false"),
    )
    authenticates_routes: bool = key(
        "routeAuthenticationEnabled",
        False,
        "With access control, return routes only to users of the topic, and the list of brokers only to users with "
        "the action Get on the cluster. Apache's name server has no such key.",
    )
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.listeners
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)
        if self.http_port != NO_HTTP and self.tls.is_served:
            # Parsed once here, so that a mistake fails the start.
            _ = self.tls.http_suites

    @cached_property
    def listeners(self) -> Listeners:
        """The further listeners and their rules."""
        return Listeners.read(self.listeners_given, self.advertised)

    @property
    def authenticates_brokers(self) -> bool:
        """Whether brokers must sign registrations."""
        follows = self.access.authenticates or self.access.is_plain
        return self.registration_authentication == "true" or (
            not self.registration_authentication and follows
        )

    @property
    def open_codes(self) -> Collection[int]:
        """Request codes that access control leaves open."""
        routes = () if self.authenticates_routes else ROUTE_CODES
        return frozenset((*routes, *(() if self.authenticates_brokers else REGISTRATION_CODES)))

    def change(self, given: Mapping[str, str]) -> Self:
        """Like `Settings.change`, for every key of the file."""
        return dataclasses.replace(
            super().change(given), access=self.access.change(given), tls=self.tls.change(given)
        )

    def protects(self, wire: str) -> bool:
        """Whether administrators may not change this key online."""
        return protects(self.protected, wire)

    def write(self) -> dict[str, str]:
        """Every key with its value, in alphabetical order."""
        return dict(sorted((super().write() | self.access.write() | self.tls.write()).items()))


def for_standalone(given: Mapping[str, str]) -> dict[str, str]:
    """Of the entries for a process with both servers, return those for its name server: all but listen addresses,
    which differ."""
    known = served() - {"listenPort", "bindAddress", "httpPort"}
    return {wire: value for wire, value in given.items() if wire in known}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[NameServerConfig]:
    """Read `namesrv.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for an unreadable file, a value out of bounds, an unknown override, and a setting that is
    dangerous to ignore.
    """
    given = read_file(path)
    if path is not None:
        given.setdefault("configStorePath", str(path))
    known = served() | DANGEROUS.keys() | controllers.embedded_keys()
    for wire in overrides or {}:
        if wire not in known and wire not in HARMLESS:
            meant = nearest(wire, known)
            raise ConfigError(f"unknown key {wire}" + (f": did you mean {meant}?" if meant else ""))
    return read(with_file(given | dict(overrides or {})))


def served() -> set[str]:
    """Every supported key."""
    return {wire for kind in (NameServerConfig, AccessConfig, TlsConfig) for wire in kind.declared()}


def read(given: Mapping[str, str]) -> LoadedConfig[NameServerConfig]:
    """Return a configuration from the served entries, and a sentence for each of the others."""
    for wire, consequence in DANGEROUS.items():
        if given.get(wire, "false").lower() != "false":
            raise ConfigError(f"cannot start with {wire}={given[wire]}: {consequence}")
    known = served() | DANGEROUS.keys() | controllers.embedded_keys() | controllers.HARMLESS
    warnings = [_warning(wire, value, known) for wire, value in given.items() if wire not in known]
    warnings += _homeless(given)
    config = dataclasses.replace(
        NameServerConfig.read(given), access=AccessConfig.read(given), tls=TlsConfig.read(given)
    )
    if config.has_controller:
        config = dataclasses.replace(config, controller=controllers.read_embedded(given))
    return LoadedConfig(config, warnings)


def _homeless(given: Mapping[str, str]) -> list[str]:
    """Return warnings about files that are not kept because the user has no home folder."""
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
        return f"{wire}={value} is ignored: not needed here"
    meant = nearest(wire, known)
    return f"{wire}={value} is unknown and ignored" + (f"; did you mean {meant}?" if meant else "")
