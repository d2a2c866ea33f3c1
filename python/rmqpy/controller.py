"""Controller: builds, starts and stops the parts in `rmqpy.election`.

A controller hands out the ids of brokers, keeps their in-sync sets, and elects masters. What it agreed to is durable
before it answers.

Threads: the event loop that called `start`.
"""

import asyncio
import logging
from pathlib import Path

from rmqpy import __version__
from rmqpy._native import Controller, Server
from rmqpy.clock import Clock, SystemClock
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.controller import ControllerConfig
from rmqpy.config.keys import NO_HTTP
from rmqpy.control.access.audit import AUDIT_SECONDS, note_request
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.handlers.access import AccessHandlers
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.election.driver import Driver
from rmqpy.election.group import Group
from rmqpy.election.handlers import BrokerHandlers, CallHandlers, ElectionHandlers, GroupHandlers
from rmqpy.election.metrics import Metrics
from rmqpy.election.notifications import RoleNotifications
from rmqpy.errors import ConfigError
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import pages
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.unserved import UNSERVED_BY_CONTROLLER
from rmqpy.remoting.admission import REFUSALS_SECONDS, Refusals, connection_limits
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.configuration import Configuration
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.service import Service

log = logging.getLogger(__name__)


class ControllerServer(Service):
    """One controller.

    ::

        async with ControllerServer(ControllerConfig(listen_port=0)) as controller:
            print(controller.address)
    """

    def __init__(self, config: ControllerConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._certificates = Certificates(config.tls, [config.bind_address])
        self._access = AccessRules(config.access, "", Path(config.auth_path), self._clock)
        limits = connection_limits(config.connections_max, config.connections_per_address_max)
        self._server = Server(
            idle_ms=config.idle_seconds * 1000, tls=self._certificates.server, **limits._asdict()
        )
        self._refusals = Refusals(limits, self._server.statistics, self._server.take_foreign_clients)
        self._configuration = Configuration(config, self._configure)
        self._notifications = RoleNotifications(self._configuration, self._certificates.client)
        self._native: Controller | None = None
        self._driver: Driver | None = None
        self._endpoint: Endpoint | None = None
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

    def table(self) -> dict[RequestCode, str]:
        """Every request code with its handler, once started."""
        return self._endpoint.table() if self._endpoint else {}

    async def start(self) -> None:
        """Read the log, listen, serve. Raises `ConfigError` for a damaged file, `AddressError` for a port in use."""
        config = self._config
        if config.access.is_on:
            await self._access.load()
            self._access.follow(self._server)
        try:
            self._native = await asyncio.to_thread(_open, config)
            group = Group(config, self._certificates.client)
            self._driver = Driver(self._native, self._notifications.role_changed, group)
            self._endpoint = self._connected(self._driver, group)
            host, port = config.address
            with listening("listenPort", host, port):
                self._bound = self._server.listen(host, port)
            await self._serve_http(self._native, self._driver)
        except (OSError, ConfigError):
            await self.stop(grace_ms=0)
            raise
        self._driver.start()
        self._endpoint.start()
        self._periodic.every(REFUSALS_SECONDS, self._refusals.log)
        self._periodic.every(CERTIFICATES_SECONDS, self._certificates.watch)
        self._periodic.every(AUDIT_SECONDS, self._access.log_refusals)
        if self._access.plain is not None:
            self._periodic.every(WATCH_SECONDS, self._access.plain.watch)
        if not config.lease_ms:
            log.warning(
                "masterLeaseMillis=0: a master that is cut off from the controller continues to acknowledge messages, "
                "which are lost when another is elected"
            )
        log.info(
            "rmqpy %s: controller serves %s, HTTP %s; %s",
            *(__version__, self.address, self.http_address or "off", config.changed()),
        )

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Answer received requests, close every connection. Idempotent."""
        await self._periodic.stop()
        if self._http is not None:
            await self._http.stop()
            self._http, self._http_address = None, None
        if self._endpoint is not None:
            log.info("the controller at %s stops", self.address)
            await self._endpoint.stop(grace_ms)
            self._endpoint = None
        else:
            await asyncio.to_thread(self._server.stop, grace_ms)
        if self._driver is not None:
            await self._driver.stop()
            self._driver = None
        await asyncio.to_thread(self._notifications.close)

    def _connected(self, driver: Driver, group: Group) -> Endpoint:
        access = self._config.access
        return Endpoint(
            self._server,
            (
                BrokerHandlers(driver),
                ElectionHandlers(driver),
                GroupHandlers(driver, self._configuration, lambda: self.address),
                *((CallHandlers(driver, group),) if group.has_others else ()),
                *((AccessHandlers(self._access.users, self._access.policies),) if access.is_on else ()),
            ),
            role="controller",
            unserved=UNSERVED_BY_CONTROLLER,
            changed=note_request if access.is_on else None,
        )

    def _configure(self, config: ControllerConfig) -> None:
        if self._native is not None:
            self._native.configure(
                lease_ms=config.lease_ms,
                first_election_wait_ms=config.first_election_wait_ms,
                elects_unclean=config.elects_unclean,
            )

    async def _serve_http(self, native: Controller, driver: Driver) -> None:
        config = self._config
        if config.http_port == NO_HTTP:
            return
        metrics = Metrics(native, self._server.statistics, self.address, config)
        self._http = HttpServer(
            pages(metrics.exposition, fault=lambda: driver.fault, unready=lambda: driver.fault),
            token=config.access.page_token(config.bind_address),
            tls=self._certificates.http,
            is_encrypted=self._certificates.is_enforced,
        )
        self._http_address = await self._http.listen(config.bind_address, config.http_port)


def _open(config: ControllerConfig) -> Controller:
    try:
        return Controller(
            config.controller_path,
            own_name=config.self_id,
            members=set(config.peers) or {config.self_id},
            lease_ms=config.lease_ms,
            first_election_wait_ms=config.first_election_wait_ms,
            elects_unclean=config.elects_unclean,
        )
    except OSError as error:
        raise ConfigError(f"cannot open controllerStorePath={config.controller_path}: {error}") from None
