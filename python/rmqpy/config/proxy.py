"""Configuration of a proxy: supported keys of `rmq-proxy.json`, or of the same keys as properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmqpy.config import json_file, servers
from rmqpy.config.access import AccessConfig
from rmqpy.config.addresses import HostPort
from rmqpy.config.keys import GRPC_PORT, NO_HTTP, LoadedConfig, key
from rmqpy.config.server_tls import TlsConfig
from rmqpy.config.servers import ServerConfig

#: Keys of Apache's proxy that have no counterpart.
HARMLESS: Final = frozenset(
    {
        "channelExpiredTimeout",
        "enableGrpcEpoll",
        "grpcBossLoopNum",
        "grpcClientIdleTimeMills",
        "grpcThreadPoolNums",
        "grpcThreadPoolQueueCapacity",
        "grpcWorkerLoopNum",
        "heartbeatSyncerTopicClusterName",
        "heartbeatSyncerTopicName",
        "localServeAddr",
        "proxyClusterName",
        "proxyName",
        "remotingListenPort",
        "rocketMQClusterName",
        "rocketmqMQClientNum",
        "transactionHeartbeatBatchNum",
        "transactionHeartbeatPeriodSecond",
        "useEndpointPortFromRequest",
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyConfig(ServerConfig):
    """Addresses and limits of a proxy in front of a cluster."""

    ROLE = "proxy"

    namesrv: str = servers.namesrv()
    mode: str = key(
        "proxyMode",
        "CLUSTER",
        "CLUSTER only: a broker of rmqpy serves 5.x clients itself.",
        choices=("CLUSTER", "cluster"),
    )
    bind_address: str = servers.bind_address()
    grpc_port: int = key(
        "grpcServerPort",
        GRPC_PORT,
        "Port of 5.x clients, which speak gRPC; 0 picks a free port.",
        low=0,
        high=65_535,
    )
    http_port: int = servers.http_port(ROLE)
    message_bytes_max: int = key(
        "maxMessageSize",
        4_194_304,
        "Largest message body. Brokers have their own limit.",
        unit="bytes",
        low=1_024,
        high=16 << 20,
    )
    connections_max: int = servers.connections_max(ROLE)
    connections_per_address_max: int = servers.connections_per_address_max(ROLE)
    auth_path: str = servers.auth_path("proxy")
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.name_servers
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)
        if self.http_port != NO_HTTP and self.tls.is_served:
            # Parsed once here, so that a mistake fails the start.
            _ = self.tls.http_suites

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of all name servers."""
        return servers.name_servers(self.namesrv)

    @property
    def address(self) -> HostPort:
        """Address to listen on."""
        return HostPort(self.bind_address, self.grpc_port)


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[ProxyConfig]:
    """Read `rmq-proxy.json`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for an unreadable file, a value out of bounds, and an unknown override.
    """
    known = ProxyConfig.served()
    given = servers.entries(json_file.read(path), overrides, known, HARMLESS)
    return LoadedConfig(ProxyConfig.read(given), servers.warnings(given, known, HARMLESS))
