"""Configuration of the name server: supported keys of `namesrv.conf`, and messages about the others."""

import dataclasses
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from rmqpy.config import controller as controllers
from rmqpy.config import home, servers
from rmqpy.config.access import AccessConfig
from rmqpy.config.controller import ControllerConfig
from rmqpy.config.keys import NO_HTTP, LoadedConfig, key
from rmqpy.config.listeners import Listeners
from rmqpy.config.server_tls import TlsConfig
from rmqpy.config.servers import ChangeableConfig
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameServerConfig(ChangeableConfig):
    """Addresses, files, and behaviour of the name server."""

    ROLE = "name server"

    # Network.
    listen_port: int = key("listenPort", 9876, "TCP port; 0 picks a free port.", low=0, high=65_535)
    bind_address: str = servers.bind_address()
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
    http_port: int = servers.http_port(ROLE)
    idle_seconds: int = servers.idle_seconds()
    connections_max: int = servers.connections_max(ROLE)
    connections_per_address_max: int = servers.connections_per_address_max(ROLE)

    # Files.
    kv_path: str = servers.home_path(
        "kvConfigPath",
        "namesrv",
        "kvConfig.json",
        "File of the key-value configuration; empty: in memory only.",
    )
    store_path: str = servers.store_path("namesrv")
    protected: str = servers.protected("configBlackList;configStorePath;kvConfigPath")

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
    auth_path: str = servers.auth_path("namesrv")
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


def for_standalone(given: Mapping[str, str]) -> dict[str, str]:
    """Of the entries for a process with both servers, return those for its name server: all but listen addresses,
    which differ."""
    known = NameServerConfig.served() - {"listenPort", "bindAddress", "httpPort"}
    return {wire: value for wire, value in given.items() if wire in known}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[NameServerConfig]:
    """Read `namesrv.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for an unreadable file, a value out of bounds, an unknown override, and a setting that is
    dangerous to ignore.
    """
    known = NameServerConfig.served() | DANGEROUS.keys() | controllers.embedded_keys()
    return read(servers.entries(servers.changeable_file(path), overrides, known, HARMLESS))


def read(given: Mapping[str, str]) -> LoadedConfig[NameServerConfig]:
    """Return a configuration from the served entries, and a sentence for each of the others."""
    for wire, consequence in DANGEROUS.items():
        if given.get(wire, "false").lower() != "false":
            raise ConfigError(f"cannot start with {wire}={given[wire]}: {consequence}")
    known = NameServerConfig.served() | DANGEROUS.keys() | controllers.embedded_keys() | controllers.HARMLESS
    warnings = servers.warnings(given, known, HARMLESS) + _homeless(given)
    config = NameServerConfig.read(given)
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
