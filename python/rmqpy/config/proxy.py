"""Configuration of a proxy: supported keys of `rmq-proxy.json`, or of the same keys as properties."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rmqpy.config import addresses, home
from rmqpy.config.access import AccessConfig
from rmqpy.config.addresses import HostPort
from rmqpy.config.keys import CONNECTIONS_MAX, GRPC_PORT, LoadedConfig, Settings, key, nearest, read_file
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.errors import ConfigError

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


def _name_servers_of_environment() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


def _in_home(name: str) -> str:
    found = home.find()
    return "" if found is None else str(found / "proxy" / name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyConfig(Settings):
    """Addresses and limits of a proxy in front of a cluster."""

    namesrv: str = key(
        "namesrvAddr", _name_servers_of_environment, "Name servers as host:port, separated by semicolons."
    )
    mode: str = key(
        "proxyMode",
        "CLUSTER",
        "CLUSTER only: a broker of rmqpy serves 5.x clients itself.",
        choices=("CLUSTER", "cluster"),
    )
    bind_address: str = key(
        "bindAddress",
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 lets other machines connect. Apache's proxy has no such key.",
    )
    grpc_port: int = key(
        "grpcServerPort",
        GRPC_PORT,
        "Port of 5.x clients, which speak gRPC; 0 picks a free port.",
        low=0,
        high=65_535,
    )
    message_bytes_max: int = key(
        "maxMessageSize",
        4_194_304,
        "Largest message body. Brokers have their own limit.",
        unit="bytes",
        low=1_024,
        high=16 << 20,
    )
    connections_max: int = key(
        "maxConnections",
        CONNECTIONS_MAX,
        "Maximum connections of clients; fewer if they would need more than three quarters of the process's file "
        "descriptors. Apache's proxy has no such key.",
        low=1,
        high=1_000_000,
    )
    connections_per_address_max: int = key(
        "maxConnectionsPerAddress",
        0,
        "Maximum connections from one address, except loopback; 0: half of all. Apache's proxy has no such key.",
        low=0,
        high=1_000_000,
    )
    auth_path: str = key(
        "authConfigPath",
        lambda: _in_home("auth"),
        "Folder of users.json and acls.json for access control: the same users as at the brokers.",
    )
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in self.name_servers:
            try:
                addresses.parse(address)
            except ConfigError as error:
                raise ConfigError(f"namesrvAddr: {error}") from None
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of all name servers."""
        return tuple(part.strip() for part in self.namesrv.split(";") if part.strip())

    @property
    def address(self) -> HostPort:
        """Address to listen on."""
        return HostPort(self.bind_address, self.grpc_port)

    def write(self) -> dict[str, str]:
        """Every key with its value, in alphabetical order."""
        return dict(sorted((super().write() | self.access.write() | self.tls.write()).items()))


def served() -> set[str]:
    """Every supported key."""
    return {wire for kind in (ProxyConfig, AccessConfig, TlsConfig) for wire in kind.declared()}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[ProxyConfig]:
    """Read `rmq-proxy.json`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for an unreadable file, a value out of bounds, and an unknown override.
    """
    for wire in overrides or {}:
        if wire not in served() and wire not in HARMLESS:
            meant = nearest(wire, served())
            raise ConfigError(f"unknown key {wire}" + (f": did you mean {meant}?" if meant else ""))
    given = with_file(_entries(path) | dict(overrides or {}))
    warnings = [_warning(wire, value) for wire, value in given.items() if wire not in served()]
    config = dataclasses.replace(
        ProxyConfig.read(given), access=AccessConfig.read(given), tls=TlsConfig.read(given)
    )
    return LoadedConfig(config, warnings)


def _entries(path: str | Path | None) -> dict[str, str]:
    """Return the entries of a file, a JSON object or properties."""
    if path is None:
        return {}
    try:
        text = Path(path).read_bytes().strip()
        if not text.startswith(b"{"):
            return read_file(path)
        entries: dict[str, Any] = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return {
        wire: str(value).lower() if isinstance(value, bool) else str(value) for wire, value in entries.items()
    }


def _warning(wire: str, value: str) -> str:
    if wire in HARMLESS:
        return f"{wire}={value} is ignored: not needed here"
    meant = nearest(wire, served())
    return f"{wire}={value} is unknown and ignored" + (f"; did you mean {meant}?" if meant else "")
