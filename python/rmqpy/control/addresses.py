"""Addresses of this machine: free ports, and names as numbers. Pure but for the system; any thread."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Final

from rmqpy.config.addresses import LOOPBACK, HostPort
from rmqpy.config.broker import VIP_BELOW

log = logging.getLogger(__name__)

_FREE_PORT_TRIES: Final = 20


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
