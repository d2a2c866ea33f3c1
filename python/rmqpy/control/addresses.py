"""Addresses of this broker and this machine: advertised address, free ports, resolved names.

Threads: the event loop's; the functions query only the system, and are for any thread.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from rmqpy.config.addresses import LOOPBACK, HostPort
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.network import VIP_BELOW
from rmqpy.control.identity import Identity

log = logging.getLogger(__name__)

_FREE_PORT_TRIES: Final = 20


class Addresses:
    """The addresses of one broker. A port chosen at its start stays the same after a restart."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` is the configuration as given."""
        self.host = config.advertised_host
        self.port = config.listen_port
        self._held: tuple[socket.socket, ...] = ()
        #: The port for slaves; `None` before the broker listens on it.
        self.replica_port: int | None = None

    def __str__(self) -> str:
        """The advertised address, `host:port`."""
        return str(HostPort(self.host, self.port))

    def choose_port(self, config: BrokerConfig) -> None:
        """Choose and hold a free port if the configuration names none. The broker listens only after store recovery;
        without the hold, another program's connection could get the port."""
        self.port = config.listen_port or self.port
        if not self.port:
            self._held = held_ports(config.listen_host)
            self.port = int(self._held[0].getsockname()[1])

    def release_port(self) -> None:
        """Release the held port, because the broker listens on it, or never will."""
        for each in self._held:
            each.close()
        self._held = ()

    def numeric(self) -> str:
        """The address as records contain it."""
        return numeric(self.host, self.port)

    def identity(self, config: BrokerConfig) -> Identity:
        """Return the identity that a broker at this address reports to others."""
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
    """Return sockets that hold a free port and its VIP port."""
    for _ in range(_FREE_PORT_TRIES):
        main = _holding(host, 0)
        try:
            return main, _holding(host, int(main.getsockname()[1]) - VIP_BELOW)
        except OSError:
            main.close()
    raise OSError(f"cannot find two free ports on {host}")


def _holding(host: str, port: int) -> socket.socket:
    """Return a socket that holds an address exclusively, and shares it once bound."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        held.bind((host, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        held.close()
        raise
    return held


def numeric(host: str, port: int) -> str:
    """Return `ip:port` for an address that may be a name, because records contain numbers."""
    try:
        found = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        log.warning("cannot resolve %s: messages will name %s", host, LOOPBACK)
        found = LOOPBACK
    return str(HostPort(found, port))
