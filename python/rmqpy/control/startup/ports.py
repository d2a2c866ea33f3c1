"""Ports of a broker: checks all of them, and claims that of HTTP, before store recovery."""

from __future__ import annotations

import errno
import socket

from rmqpy.config.addresses import listening
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.keys import NO_HTTP
from rmqpy.config.network import VIP_BELOW
from rmqpy.monitor.http import claim


async def check_ports(config: BrokerConfig) -> None:
    """Raise `AddressError` for a configured port that is in use."""
    host, replication = config.listen_host, config.replication
    ports = [("listenPort", host, config.listen_port, 0), ("listenPort", host, config.listen_port, VIP_BELOW)]
    if not replication.is_slave:
        ports.append(("haListenPort", replication.listen_host, replication.listen_port, 0))
    for key, host, port, below in ports:
        if port:
            with listening(key, host, port, below=below):
                (await claim(host, port - below)).close()


async def claim_http(config: BrokerConfig, *, takes_any_port: bool) -> socket.socket | None:
    """Return a socket that holds the HTTP port; `None` if HTTP is off. Raises `AddressError`."""
    host, port = config.listen_host, config.http_port
    if port == NO_HTTP:
        return None
    with listening("httpPort", host, port):
        try:
            return await claim(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not takes_any_port:
                raise
            return await claim(host, 0)
