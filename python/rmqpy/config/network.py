"""Configuration of a broker in its network: identity, addresses, connections and registration."""

from __future__ import annotations

import dataclasses
import os
import socket

from rmqpy.config import servers
from rmqpy.config.addresses import ANY_HOST, LOOPBACK
from rmqpy.config.keys import GRPC_PORT, NO_GRPC, Settings, key
from rmqpy.errors import ConfigError

#: Name servers forget a broker after 120 s; less than 10 s only adds traffic. Apache's bounds.
REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000

#: Clients expect the VIP port this far below the main one.
VIP_BELOW = 2


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


def _zone_of_environment() -> str:
    return os.environ.get("ROCKETMQ_ZONE", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig(Settings):
    """Identity, addresses and connections of a broker."""

    cluster: str = key("brokerClusterName", "DefaultCluster", "Cluster of this broker.")
    name: str = key("brokerName", _host_name, "Name of the broker in routes; clients address queues by it.")
    region: str = key("regionId", "DefaultRegion", "Region, written into messages and returned to senders.")
    zone: str = key(
        "zoneName",
        _zone_of_environment,
        "Zone of the broker; clients of another zone do not see it. Apache's broker has only the variable.",
    )
    bind_address: str = key(
        "bindAddress", "", "Address to listen on; empty: loopback, or any with brokerIP1."
    )
    advertised_address: str = key(
        "brokerIP1", "", "Address that clients connect to; empty: the bind address."
    )
    listen_port: int = key(
        "listenPort", 10911, "Main port; 0 picks a free port. The VIP port is two below.", low=0, high=65_535
    )
    namesrv: str = servers.namesrv()
    http_port: int = servers.http_port("broker", "the console, /metrics")
    grpc_port: int = key(
        "grpcServerPort",
        GRPC_PORT,
        "Port of 5.x clients, which speak gRPC; 0 picks a free port, -1 turns gRPC off. The default is off while "
        "listenPort is 0, and where another process has the port. RocketMQ's proxy has this key.",
        low=NO_GRPC,
        high=65_535,
    )
    http_allows_changes: bool = key(
        "httpAllowChanges",
        False,
        "Allow changes in the console, which is read-only otherwise. Apache's broker has no such key.",
    )
    http_bodies: str = key(
        "httpBodies",
        "shown",
        "Message bodies in the console for users other than super users: shown, masked or hidden. Apache's "
        "broker has no such key.",
        choices=("shown", "masked", "hidden"),
    )
    idle_seconds: int = servers.idle_seconds()
    connections_max: int = servers.connections_max("broker")
    connections_per_address_max: int = servers.connections_per_address_max("broker")
    permission: int = key(
        "brokerPermission",
        6,
        "Permissions: 2 to write, 4 to read, 6 for both; registered with every topic.",
        low=0,
        high=7,
        changeable=True,
    )

    protected: str = servers.protected("configBlackList;brokerConfigPath")

    # Registration.
    register_period_ms: int = key(
        "registerNameServerPeriod",
        30_000,
        "Interval between registrations with name servers; limited to 10 to 60 s.",
        unit="ms",
        low=1,
    )
    register_timeout_ms: int = key(
        "registerBrokerTimeoutMills",
        24_000,
        "Timeout of one registration.",
        unit="ms",
        low=100,
        high=120_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or not self.cluster:
            raise ConfigError("brokerName and brokerClusterName must not be empty")
        if 0 < self.listen_port <= VIP_BELOW:
            raise ConfigError(
                f"listenPort={self.listen_port}: the VIP port, {VIP_BELOW} below, would not be valid"
            )
        _ = self.name_servers

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of all name servers."""
        return servers.name_servers(self.namesrv)

    @property
    def listen_host(self) -> str:
        """The address to listen on: loopback by default."""
        if self.bind_address:
            return self.bind_address
        if self.advertised_address in ("", LOOPBACK, "localhost"):
            return LOOPBACK
        # The advertised address may belong to a router, so it cannot be bound.
        return ANY_HOST

    @property
    def serves_grpc(self) -> bool:
        """Whether 5.x clients are served; not at the default port next to a broker at any free port."""
        return self.grpc_port != NO_GRPC and (self.listen_port != 0 or self.grpc_port != GRPC_PORT)

    @property
    def is_open(self) -> bool:
        """Whether other machines can connect."""
        return not (self.listen_host.startswith("127.") or self.listen_host in ("localhost", "::1"))

    @property
    def advertised_host(self) -> str:
        """The address that clients connect to."""
        if self.advertised_address:
            return self.advertised_address
        return _first_address() if self.listen_host == ANY_HOST else self.listen_host

    @property
    def register_interval_ms(self) -> int:
        """The registration interval, limited to its bounds."""
        return min(max(self.register_period_ms, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX)


def _first_address() -> str:
    """Return this machine's address on its default route. Looking up a route sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
