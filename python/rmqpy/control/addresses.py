"""Addresses of this broker and this machine: where it is reached, free ports, names as numbers.

Threads: the event loop's; the functions are pure but for the system, and any thread's.
"""

from __future__ import annotations

import contextlib
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
        #: Where slaves connect; None until it is listened on.
        self.replica_port: int | None = None

    def __str__(self) -> str:
        """`host:port` as clients are told."""
        return str(HostPort(self.host, self.port))

    def choose_port(self, config: BrokerConfig) -> None:
        """Take a free one where the configuration leaves it open."""
        self.port = config.listen_port or self.port or free_port(config.listen_host)

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


def free_port(host: str) -> int:
    """A port that is free now, and so is the VIP port that belongs to it."""
    for _ in range(_FREE_PORT_TRIES):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as main, socket.socket(family) as vip:
            main.bind((host, 0))
            port = int(main.getsockname()[1])
            with contextlib.suppress(OSError):
                vip.bind((host, port - VIP_BELOW))
                return port
    raise OSError(f"no two free ports on {host}")


def numeric(host: str, port: int) -> str:
    """`ip:port` of an address that may be a name: records hold numbers."""
    try:
        found = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        log.warning("%s has no address; messages will name %s", host, LOOPBACK)
        found = LOOPBACK
    return str(HostPort(found, port))
