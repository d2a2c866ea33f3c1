"""Addresses of this broker and this machine: where it is reached, free ports, names as numbers.

Threads: the event loop's; the functions are pure but for the system, and any thread's.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from rmqpy.config.addresses import LOOPBACK, HostPort
from rmqpy.config.broker import VIP_BELOW, BrokerConfig
from rmqpy.control.identity import Identity

log = logging.getLogger(__name__)

_FREE_PORT_TRIES: Final = 20


class Addresses:
    """Where one broker is reached. A port that was chosen at its start stays when it starts again."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` as it was given."""
        self.host = config.advertised_host
        self.port = config.listen_port
        self._held: tuple[socket.socket, ...] = ()
        #: Where slaves connect; None until it is listened on.
        self.replica_port: int | None = None

    def __str__(self) -> str:
        """`host:port` as clients are told."""
        return str(HostPort(self.host, self.port))

    def choose_port(self, config: BrokerConfig) -> None:
        """Take a free one where the configuration leaves it open, and hold it: until somebody listens there, which is
        after the recovery of a store, the system may give it to a connection of another program."""
        self.port = config.listen_port or self.port
        if not self.port:
            self._held = held_ports(config.listen_host)
            self.port = int(self._held[0].getsockname()[1])

    def release_port(self) -> None:
        """The broker listens there now, or never will."""
        for each in self._held:
            each.close()
        self._held = ()

    def numeric(self) -> str:
        """As records hold it."""
        return numeric(self.host, self.port)

    def identity(self, config: BrokerConfig) -> Identity:
        """What others are told of a broker that is reached there."""
        replication = config.replication
        replica_host = replication.advertised_address or self.host
        replica_port = self.replica_port or replication.listen_port or self.port + 1
        return Identity(
            cluster=config.cluster,
            broker=config.name,
            address=str(self),
            replica_address=str(HostPort(replica_host, replica_port)),
            broker_id=replication.broker_id,
            zone=config.zone or None,
            may_act=replication.may_act,
            silence_ms=replication.beat_silence_ms_max if replication.may_act else None,
        )


def held_ports(host: str) -> tuple[socket.socket, socket.socket]:
    """Sockets that hold a free port and the VIP port that belongs to it."""
    for _ in range(_FREE_PORT_TRIES):
        main = _holding(host, 0)
        try:
            return main, _holding(host, int(main.getsockname()[1]) - VIP_BELOW)
        except OSError:
            main.close()
    raise OSError(f"no two free ports on {host}")


def _holding(host: str, port: int) -> socket.socket:
    """A socket that has an address to itself until it is bound, and from then on shares it with who listens there."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        held.bind((host, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        held.close()
        raise
    return held


def numeric(host: str, port: int) -> str:
    """`ip:port` of an address that may be a name: records hold numbers."""
    try:
        found = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        log.warning("%s has no address; messages will name %s", host, LOOPBACK)
        found = LOOPBACK
    return str(HostPort(found, port))
