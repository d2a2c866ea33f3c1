"""Configuration of a controller: supported keys of `controller.conf`, and of `namesrv.conf` for an embedded one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from rmqpy.config import servers
from rmqpy.config.access import AccessConfig
from rmqpy.config.addresses import HostPort, is_loopback, parse
from rmqpy.config.keys import LoadedConfig, key
from rmqpy.config.server_tls import TlsConfig
from rmqpy.config.servers import ChangeableConfig
from rmqpy.errors import ConfigError

#: Keys of Apache's controller for its threads, buffers and scans, which have no counterpart.
HARMLESS: Final = frozenset(
    {
        "controllerRequestThreadPoolQueueCapacity",
        "controllerThreadPoolNums",
        "controllerType",
        "electMasterMaxRetryCount",
        "isProcessReadEvent",
        "mappedFileSize",
        "metricsExporterType",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "rocketmqHome",
        "scanInactiveMasterInterval",
        "scanNotActiveBrokerInterval",
    }
)
#: The most controllers of a group: each must have every change.
PEERS_MAX: Final = 9
#: The fewest characters of a secret.
SECRET_MIN: Final = 16
_PEER: Final = re.compile(r"([A-Za-z0-9_]{1,32})-(.+)")
#: Keys of the process, which a name server has for itself and for its controller.
_PROCESS: Final = frozenset(
    {
        "listenPort",
        "httpPort",
        "configStorePath",
        "configBlackList",
        "authConfigPath",
        "serverChannelMaxIdleTimeSeconds",
        "maxConnections",
        "maxConnectionsPerAddress",
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControllerConfig(ChangeableConfig):
    """Addresses, files and rules of a controller."""

    ROLE = "controller"
    PROTECTED = "Can not update config in black list."

    # Network.
    listen_port: int = key(
        "listenPort",
        19_876,
        "TCP port; 0 picks a free port. controllerDLegerPeers replaces it.",
        low=0,
        high=65_535,
    )
    bind_address: str = servers.bind_address()
    http_port: int = servers.http_port(ROLE)
    idle_seconds: int = servers.idle_seconds()
    connections_max: int = servers.connections_max(ROLE)
    connections_per_address_max: int = servers.connections_per_address_max(ROLE)

    # Group.
    group: str = key("controllerDLegerGroup", "controllers", "Name of the group of controllers, for tools.")
    peers_given: str = key(
        "controllerDLegerPeers",
        "",
        "Every controller of the group, ID-HOST:PORT separated by semicolons: n0-10.0.0.5:9878;n1-…;n2-…, the same at "
        "each. This controller listens on the port of its entry. A group of three survives the loss of one, a group of "
        "five of two.",
    )
    self_id_given: str = key(
        "controllerDLegerSelfId",
        "",
        "This controller's ID in controllerDLegerPeers; empty if there is one only.",
    )
    group_secret: str = key(
        "controllerGroupSecret",
        "",
        "Secret of the controllers of a group, the same at each, which seals their calls to each other. Required if "
        "controllerDLegerPeers names other machines. Apache's controller has no such key.",
        secret=True,
    )

    # Files.
    controller_path: str = servers.home_path(
        "controllerStorePath", "controller", "store", "Folder of the controller's log and snapshot."
    )
    store_path: str = servers.store_path("controller")
    protected: str = servers.protected("configBlackList;configStorePath;rocketmqHome")

    # Elections.
    lease_ms: int = key(
        "masterLeaseMillis",
        1_500,
        "Time for which a master may acknowledge messages after a heartbeat that this controller answered; another "
        "master is elected only after it. 0: no leases, so a master that is cut off may acknowledge messages that are "
        "lost. Apache's controller has no such key.",
        unit="ms",
        low=0,
        high=60_000,
        changeable=True,
    )
    first_election_wait_ms: int = key(
        "firstElectionWaitMillis",
        2_000,
        "Longest wait for heartbeats of all registered replicas before the first election of a broker set. "
        "Apache's controller has no such key.",
        unit="ms",
        low=0,
        high=60_000,
        changeable=True,
    )
    elects_unclean: bool = key(
        "enableElectUncleanMaster",
        False,
        "Elect a replica out of sync if no other is alive: acknowledged messages may be lost.",
        changeable=True,
    )
    notifies_roles: bool = key(
        "notifyBrokerRoleChanged",
        True,
        "Notify brokers of an election immediately; otherwise they learn of it within syncBrokerMetadataPeriod.",
        changeable=True,
    )

    # Access control.
    auth_path: str = servers.auth_path("controller")
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.address, self.self_id
        self._check_group()
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)

    @cached_property
    def peers(self) -> Mapping[str, str]:
        """ID → `host:port` of every controller of the group; empty if it has no list."""
        peers: dict[str, str] = {}
        for entry in filter(None, (each.strip() for each in self.peers_given.split(";"))):
            matched = _PEER.fullmatch(entry)
            if matched is None:
                raise ConfigError(
                    f"controllerDLegerPeers: {entry!r} is not ID-HOST:PORT, as n0-10.0.0.5:9878"
                )
            name, address = matched.groups()
            if name in peers:
                raise ConfigError(f"controllerDLegerPeers has {name} twice")
            peers[name] = str(parse(address))
        if len(peers) > PEERS_MAX:
            raise ConfigError(
                f"controllerDLegerPeers has {len(peers)} controllers, more than {PEERS_MAX}: name three or five"
            )
        return peers

    def _check_group(self) -> None:
        """Raise `ConfigError` if the controllers of the group could not trust each other."""
        if len(self.peers) < 2:
            return
        if not self.self_id_given:
            raise ConfigError(
                "controllerDLegerPeers has several controllers: set controllerDLegerSelfId to this one's ID"
            )
        far = [name for name, peer in self.peers.items() if not is_loopback(parse(peer).host)]
        if far and len(self.group_secret) < SECRET_MIN:
            raise ConfigError(
                f"controllers {', '.join(far)} are on other machines: set controllerGroupSecret to the same "
                f"{SECRET_MIN} characters or more at each, as from: openssl rand -hex 32"
            )
        if self.access.is_on and self.access.configured_inner_user is None:
            raise ConfigError(
                "with access control the controllers of a group sign their calls: set "
                "innerClientAuthenticationCredentials, the same at each"
            )

    @cached_property
    def self_id(self) -> str:
        """This controller's ID."""
        if not self.self_id_given:
            return next(iter(self.peers), "n0")
        if self.peers and self.self_id_given not in self.peers:
            known = ", ".join(self.peers)
            raise ConfigError(
                f"controllerDLegerSelfId={self.self_id_given} is not in controllerDLegerPeers: {known}"
            )
        return self.self_id_given

    @cached_property
    def address(self) -> HostPort:
        """Address to listen on."""
        if not self.peers:
            return HostPort(self.bind_address, self.listen_port)
        return HostPort(self.bind_address, parse(self.peers[self.self_id]).port)


def embedded_keys() -> set[str]:
    """The keys that `namesrv.conf` has for a controller inside a name server."""
    return set(ControllerConfig.declared()) - _PROCESS - {"bindAddress"}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[ControllerConfig]:
    """Read `controller.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for an unreadable file, a value out of bounds, and an unknown override.
    """
    return read(
        servers.entries(servers.changeable_file(path), overrides, ControllerConfig.served(), HARMLESS)
    )


def read(given: Mapping[str, str]) -> LoadedConfig[ControllerConfig]:
    """Return a configuration from the served entries, and a sentence for each of the others."""
    warnings = servers.warnings(given, ControllerConfig.served(), HARMLESS)
    config = ControllerConfig.read(given)
    _check_folder(config)
    return LoadedConfig(config, warnings)


def read_embedded(given: Mapping[str, str]) -> ControllerConfig:
    """Return the configuration of a controller inside a name server, from the entries of `namesrv.conf`."""
    config = ControllerConfig.read({wire: value for wire, value in given.items() if wire not in _PROCESS})
    if not config.peers:
        raise ConfigError(
            "enableControllerInNamesrv=true needs the controller's address: set "
            "controllerDLegerPeers=n0-HOST:PORT, with another port than listenPort"
        )
    _check_folder(config)
    return config


def _check_folder(config: ControllerConfig) -> None:
    if not config.controller_path:
        raise ConfigError("the user has no home folder: set controllerStorePath")
