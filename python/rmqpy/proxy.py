"""Proxy: serves 5.x clients, which speak gRPC, in front of a cluster's brokers, rmqpy's or Apache's.

It keeps nothing on disk, and clients may change from one proxy to another. Routes and settings of topics and groups
come from name servers and brokers. The native module does all of the work.

Threads: the event loop that called `start`.
"""

import asyncio
import logging
from pathlib import Path

from rmqpy import __version__
from rmqpy._native import Server
from rmqpy.clock import Clock, SystemClock
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.keys import NO_HTTP
from rmqpy.config.proxy import ProxyConfig
from rmqpy.control.access.audit import AUDIT_SECONDS
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.errors import ConfigError
from rmqpy.monitor import connections, grpc, process
from rmqpy.monitor.exposition import Exposition, expose, plain
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import pages
from rmqpy.remoting.admission import REFUSALS_SECONDS, Refusals, connection_limits
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS
from rmqpy.remoting.certificates import Certificates
from rmqpy.service import Service

log = logging.getLogger(__name__)


class ProxyServer(Service):
    """One proxy.

    ::

        async with ProxyServer(ProxyConfig(namesrv="10.0.0.1:9876", grpc_port=0)) as proxy:
            print(proxy.address)

    Raises `ConfigError` without a name server.
    """

    def __init__(self, config: ProxyConfig, *, clock: Clock | None = None) -> None:
        if not config.name_servers:
            raise ConfigError("a proxy needs name servers: set namesrvAddr=HOST:PORT, or give -n")
        self._config = config
        self._certificates = Certificates(config.tls, [config.bind_address])
        self._access = AccessRules(config.access, "", Path(config.auth_path), clock or SystemClock())
        limits = connection_limits(config.connections_max, config.connections_per_address_max)
        self._server = Server(idle_ms=120_000, **limits._asdict())
        self._refusals = Refusals(limits, self._server.statistics, self._server.take_foreign_clients)
        self._periodic = PeriodicTasks()
        self._bound: tuple[str, int] | None = None
        self._http: HttpServer | None = None
        self._http_address: str | None = None

    @property
    def address(self) -> str:
        """`host:port` of its listener, once started."""
        return str(HostPort(*self._bound) if self._bound else self._config.address)

    @property
    def http_address(self) -> str | None:
        """`host:port` of /metrics, /healthz and /readyz; None if HTTP is off."""
        return self._http_address

    async def start(self) -> None:
        """Read users, listen, serve. Raises `ConfigError` for a damaged file, `AddressError` for a port in use."""
        config, access = self._config, self._config.access
        if access.is_on:
            await self._access.load()
            self._access.follow(self._server)
        tls = await asyncio.to_thread(self._certificates.grpc)
        user = access.configured_inner_user
        host, port = config.address
        try:
            with listening("grpcServerPort", host, port):
                self._bound = self._server.listen_proxy(
                    host,
                    port,
                    tls,
                    name_servers=list(config.name_servers),
                    message_bytes_max=config.message_bytes_max,
                    user=None if user is None else (user.name, user.secret),
                    client_tls=self._certificates.client,
                )
            await self._serve_http()
        except OSError:
            await self.stop(grace_ms=0)
            raise
        self._periodic.every(REFUSALS_SECONDS, self._refusals.log)
        self._periodic.every(CERTIFICATES_SECONDS, self._certificates.watch)
        self._periodic.every(AUDIT_SECONDS, self._access.log_refusals)
        if self._access.plain is not None:
            self._periodic.every(WATCH_SECONDS, self._access.plain.watch)
        log.info(
            "rmqpy %s: proxy serves %s, brokers of %s, HTTP %s; %s",
            *(__version__, self.address, config.namesrv, self.http_address or "off", config.changed()),
        )

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Answer received requests, close every connection. Idempotent."""
        await self._periodic.stop()
        if self._http is not None:
            await self._http.stop()
            self._http, self._http_address = None, None
        if self._bound is not None:
            log.info("the proxy at %s stops", self.address)
            self._bound = None
        await asyncio.to_thread(self._server.stop, grace_ms)

    async def _serve_http(self) -> None:
        config = self._config
        if config.http_port == NO_HTTP:
            return
        self._http = HttpServer(
            pages(self._exposition, fault=lambda: None, unready=self._unready),
            token=config.access.page_token(config.bind_address),
            tls=self._certificates.http,
            is_encrypted=self._certificates.is_enforced,
        )
        self._http_address = await self._http.listen(config.bind_address, config.http_port)

    def _unready(self) -> str | None:
        return None if self._server.finds_brokers() else f"no name server of {self._config.namesrv} answers"

    async def _exposition(self, accept: str) -> Exposition:
        """All metrics, for a client that accepts these content types."""
        labels = {"node_type": "proxy", "node_id": self.address, "proxy_mode": "cluster"}
        families = [
            plain("rocketmq_proxy_up", "gauge", "Always 1.", 1),
            *grpc.families(self._server.grpc_calls()),
            *connections.families(self._server.statistics()),
            *process.families(),
        ]
        return await asyncio.to_thread(expose, families, labels, accept)
