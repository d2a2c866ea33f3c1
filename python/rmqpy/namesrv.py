"""Name server: builds, starts and stops the parts in `rmqpy.routing`.

A name server keeps what brokers register in memory only; just the key-value configuration is on disk. Name servers do
not know each other: a broker registers with each, a client asks any.

Threads: the event loop that called `start`.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from rmqpy import __version__
from rmqpy._native import Server
from rmqpy.clock import Clock, SystemClock
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.keys import NO_HTTP
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.control.access.audit import AUDIT_SECONDS, note_request
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.handlers.access import AccessHandlers
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.controller import ControllerServer
from rmqpy.errors import ConfigError
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import pages
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.unserved import UNSERVED_BY_NAME_SERVER
from rmqpy.remoting.admission import REFUSALS_SECONDS, Refusals, connection_limits
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.configuration import Configuration
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.routing.handlers import (
    ConfigurationHandlers,
    KvHandlers,
    RegistrationHandlers,
    RouteHandlers,
    TopicHandlers,
)
from rmqpy.routing.kv import KeyValues
from rmqpy.routing.metrics import Metrics
from rmqpy.routing.notifications import BrokerNotifications
from rmqpy.routing.routes import Routes
from rmqpy.routing.unregistration import expire_silent
from rmqpy.service import Service

log = logging.getLogger(__name__)


class NameServer(Service):
    """One name server.

    ::

        async with NameServer(NameServerConfig(listen_port=0)) as server:
            print(server.address)
    """

    def __init__(self, config: NameServerConfig | None = None, *, clock: Clock | None = None) -> None:
        config = config or NameServerConfig()
        clock = clock or SystemClock()
        self._config = config
        self._configuration = Configuration(config)
        self._certificates = Certificates(
            config.tls,
            [config.bind_address, *(address.host for address in config.listeners.addresses.values())],
        )
        self._notifications = BrokerNotifications(self._configuration, self._certificates.client)
        self._routes = Routes(clock, self._configuration, self._notifications.min_broker_id_changed)
        self._values = KeyValues(Path(config.kv_path) if config.kv_path else None)
        self._access = AccessRules(
            config.access, "", Path(config.auth_path), clock, open_codes=config.open_codes
        )
        limits = connection_limits(config.connections_max, config.connections_per_address_max)
        self._server = Server(
            idle_ms=config.idle_seconds * 1000, tls=self._certificates.server, **limits._asdict()
        )
        self._refusals = Refusals(limits, self._server.statistics, self._server.take_foreign_clients)
        self._endpoint = Endpoint(
            self._server,
            (
                RegistrationHandlers(self._routes, self._values, self._configuration),
                RouteHandlers(self._routes, self._values, self._configuration, clock),
                TopicHandlers(self._routes, self._configuration),
                KvHandlers(self._values),
                ConfigurationHandlers(self._configuration),
                *(
                    (AccessHandlers(self._access.users, self._access.policies),)
                    if config.access.is_on
                    else ()
                ),
            ),
            role="name server",
            unserved=UNSERVED_BY_NAME_SERVER,
            changed=note_request if config.access.is_on else None,
        )
        self._controller = None if config.controller is None else ControllerServer(config.controller)
        self._expiry: asyncio.Task[None] | None = None
        self._periodic = PeriodicTasks()
        self._bound: tuple[str, int] | None = None
        self._http: HttpServer | None = None
        self._http_address: str | None = None

    @property
    def address(self) -> str:
        """`host:port` of its listener, once started."""
        return str(HostPort(*(self._bound or (self._config.bind_address, self._config.listen_port))))

    @property
    def http_address(self) -> str | None:
        """`host:port` of /metrics, /healthz and /readyz; None if HTTP is off."""
        return self._http_address

    @property
    def controller_address(self) -> str | None:
        """`host:port` of its controller; None without one."""
        return self._controller.address if self._controller else None

    def table(self) -> dict[RequestCode, str]:
        """Every request code with its handler."""
        return self._endpoint.table()

    async def start(self) -> None:
        """Read the files, listen, serve. Raises `ConfigError` for a damaged file, `AddressError` for a port in use."""
        await asyncio.to_thread(self._values.load)
        if self._config.access.is_on:
            await self._access.load()
            self._access.follow(self._server)
        try:
            with listening("listenPort", self._config.bind_address, self._config.listen_port):
                self._bound = self._server.listen(self._config.bind_address, self._config.listen_port)
            for host, port in self._config.listeners.addresses.values():
                with listening("listeners", host, port):
                    self._server.listen(host, port)
            await self._serve_http()
            if self._controller is not None:
                await self._controller.start()
        except (OSError, ConfigError):
            await self.stop(grace_ms=0)
            raise
        self._endpoint.start()
        self._expiry = asyncio.create_task(
            expire_silent(self._routes, self._configuration, self._server.close_connection)
        )
        self._periodic.every(REFUSALS_SECONDS, self._refusals.log)
        self._periodic.every(CERTIFICATES_SECONDS, self._certificates.watch)
        self._periodic.every(AUDIT_SECONDS, self._access.log_refusals)
        if self._access.plain is not None:
            self._periodic.every(WATCH_SECONDS, self._access.plain.watch)
        for name, address in self._config.listeners.addresses.items():
            log.info("listener %s: serves %s", name, address)
        log.info(
            "rmqpy %s: name server serves %s, HTTP %s; %s",
            *(__version__, self.address, self.http_address or "off", self._config.changed()),
        )

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Answer received requests, close every connection. Idempotent."""
        if self._expiry is not None:
            self._expiry.cancel()
            with suppress(asyncio.CancelledError):
                await self._expiry
            self._expiry = None
            log.info("the name server at %s stops", self.address)
        await self._periodic.stop()
        if self._http is not None:
            await self._http.stop()
            self._http, self._http_address = None, None
        if self._controller is not None:
            await self._controller.stop(grace_ms)
        await self._endpoint.stop(grace_ms)
        await asyncio.to_thread(self._notifications.close)

    async def _serve_http(self) -> None:
        if self._config.http_port == NO_HTTP:
            return
        metrics = Metrics(self._routes, self._server.statistics, self.address)
        # Nothing it holds can fail or needs waiting.
        self._http = HttpServer(
            pages(metrics.exposition, fault=lambda: None, unready=lambda: None),
            token=self._config.access.page_token(self._config.bind_address),
            tls=self._certificates.http,
            is_encrypted=self._certificates.is_enforced,
        )
        self._http_address = await self._http.listen(self._config.bind_address, self._config.http_port)
