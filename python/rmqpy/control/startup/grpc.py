"""gRPC: the port of 5.x clients, served by the native module."""

from __future__ import annotations

import asyncio
import errno
import logging

from rmqpy._native import Server
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.keys import GRPC_PORT
from rmqpy.remoting.certificates import Certificates

log = logging.getLogger(__name__)


async def serve_grpc(config: BrokerConfig, server: Server, certificates: Certificates) -> str | None:
    """Serve 5.x clients; return the address, `None` if gRPC is off. Raises `AddressError`.

    A port that is taken is an error only if it is not the default: several brokers may share a machine.
    """
    if not config.serves_grpc:
        return None
    host, port = config.listen_host, config.grpc_port
    tls = await asyncio.to_thread(certificates.grpc)
    with listening("grpcServerPort", host, port):
        try:
            bound = server.listen_grpc(host, port, tls)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port != GRPC_PORT:
                raise
            log.warning(
                "port %d is in use, so 5.x clients (gRPC) are not served: set grpcServerPort to a free port, or to "
                "-1 for no gRPC",
                port,
            )
            return None
    return str(HostPort(host, bound[1]))
