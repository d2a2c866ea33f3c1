"""The broker: starts and stops its parts, which are in `rmqpy.control` and in the native module.

Owns the order. Start: lock and recover the store, read the tables, cut offsets to the surviving messages, listen,
register. Stop: unregister, answer received requests, save the offsets, flush and close the store. Parts stop in
reverse order, also after a start that failed. The steps are in `rmqpy.control.startup`.

Threads: one event loop, the one that called `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqpy import __version__
from rmqpy._native import Client, Metadata
from rmqpy.clock import Clock, SystemClock
from rmqpy.config import home
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.client import ClientConfig, Credentials
from rmqpy.config.network import VIP_BELOW
from rmqpy.console.mount import console
from rmqpy.control.addresses import Addresses
from rmqpy.control.election.election import Election
from rmqpy.control.election.identity_file import IdentityFile
from rmqpy.control.election.running_broker import RunningBroker
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.plugins.running import Plugins
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import STREAM_LOOK_SECONDS
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.replicas.succession import give_way
from rmqpy.control.settings import LiveConfig
from rmqpy.control.standing import LOOK_SECONDS
from rmqpy.control.startup.grpc import serve_grpc
from rmqpy.control.startup.handlers import make_endpoint
from rmqpy.control.startup.history import sample_history
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.startup.ports import check_ports, claim_http
from rmqpy.control.startup.replicas import Replicas, copied_end, make_replicas
from rmqpy.control.startup.restart import Restarts
from rmqpy.control.startup.servers import Servers
from rmqpy.control.startup.service import ClientService
from rmqpy.control.startup.slave import SlaveRole
from rmqpy.control.startup.storage import BrokerStorage
from rmqpy.control.statistics.history import History
from rmqpy.control.statistics.metrics import Metrics
from rmqpy.control.store.cut import cut_log
from rmqpy.control.tables.full_disk import unless_full
from rmqpy.errors import ConfigError
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import pages
from rmqpy.monitor.push import LogExporter, MetricsPush
from rmqpy.plugins.loading import load as load_plugins
from rmqpy.protocol.codes import RequestCode
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.service import Service

if TYPE_CHECKING:
    from rmqpy.alerts.watch import AlertWatch

log = logging.getLogger(__name__)


class Broker(Service):
    """One broker.

    ::

        async with Broker(BrokerConfig(name="broker-a", namesrv="127.0.0.1:9876")) as broker:
            print(broker.address)
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        path: Path | None = None,
        clock: Clock | None = None,
        progress: Callable[[str], None] = log.info,
        takes_any_http_port: bool = False,
    ) -> None:
        """`path` is the configuration file, to which online changes are written; `progress`
        gets the progress of a long recovery. With `takes_any_http_port`, HTTP uses a free
        port if the configured one is in use.
        """
        self._takes_any_http_port = takes_any_http_port
        self._progress = progress
        self._clock = clock or SystemClock()
        self._given = config
        self._config = LiveConfig(config, self._clock, path)
        self._started = contextlib.AsyncExitStack()
        #: The connections to controllers, which take the end of one for the broker's death.
        self._connected = contextlib.AsyncExitStack()
        self._restarts = Restarts(config.name, self._start, self._stop)
        self._election = self._make_election(config)
        self._leadership = self._election.leadership if self._election else Leadership(config)
        self._addresses = Addresses(config)
        self._endpoint: Endpoint | None = None
        self._http: tuple[str, int] | None = None
        self._grpc: str | None = None
        #: For a slave: the master's addresses, kept across restarts.
        self._master = KnownMaster()
        self._history = History(self._clock)

    def _make_election(self, config: BrokerConfig) -> Election | None:
        """Return the part that asks controllers for the role, if there are any."""
        if not config.replication.is_controlled:
            return None
        identity = IdentityFile(Path(config.store.folder), config.cluster, config.name)
        return Election(config, identity, self._restarts.begin)

    @property
    def address(self) -> str:
        """The advertised address, `host:port`."""
        return str(self._addresses)

    @property
    def replica_address(self) -> str:
        """The address for slaves, `host:port`, once started."""
        return self._addresses.identity(self._config.now).replica_address

    @property
    def http_address(self) -> str | None:
        """`host:port` of the console, /metrics, /healthz and /readyz; `None` if HTTP is off."""
        return str(HostPort(*self._http)) if self._http else None

    @property
    def grpc_address(self) -> str | None:
        """`host:port` for 5.x clients; `None` if gRPC is off."""
        return self._grpc

    def table(self) -> dict[RequestCode, str]:
        """Return every request code with its handler, once started."""
        assert self._endpoint is not None, "start() creates the table"
        return self._endpoint.table()

    async def start(self) -> None:
        """Recover, listen, register.

        Raises `StoreError` or `ConfigError` naming the unusable file, `ConfigError` if another broker of
        this name answers, `AddressError` for a port in use. After a failure, `stop` releases everything.
        """
        self._restarts.allow()
        await self._leadership.load()
        await self._start()
        if self._election is not None:
            certificates = await asyncio.to_thread(Certificates, self._given.tls, (self._addresses.host,))
            caller = self._caller(self._given, certificates, self._connected)
            self._election.start(self.address, caller.peer)

    async def _start(self) -> None:
        config = self._leadership.config()
        self._config.assume(config)
        if config.is_open and not config.access.is_closed:
            log.warning(
                "%s accepts requests from other machines without access control: see authenticationEnabled "
                "and authorizationEnabled",
                config.listen_host,
            )
        if config.replication.promise is not None:
            log.info("%s", config.replication.promise)
        await check_ports(config)
        http_port = await claim_http(config, takes_any_port=self._takes_any_http_port)
        if http_port is not None:
            self._started.callback(http_port.close)
        local = await self._prepare(config)
        servers = Servers(local, self._caller(config, local.certificates, self._started))
        name_servers = servers.name_servers.values()
        # With an election the controller knows the leader, and the old master may not answer.
        if self._election is None and await give_way(
            self._leadership, config.name, self.address, name_servers, servers.peer
        ):
            await self._stop()
            await self._start()
            return
        ended, cut = await local.take_place(name_servers, servers.peer), self._restarts.cut
        if cut is not None:
            await asyncio.to_thread(cut_log, config.store, cut)
        storage = BrokerStorage(local, servers.registration)
        await storage.recover(self._progress, self._started, is_cut=cut is not None)
        self._restarts.cut = None
        self._started.push_async_callback(local.plugins.stop)
        await local.plugins.start(storage.store, storage.offsets)
        service = ClientService(local, storage, servers.peer)
        replicas = make_replicas(local, servers, storage, service)
        await storage.start_tier(partial(copied_end, local, storage, replicas.stream), self._started)
        if self._election is not None:
            self._election.prepare(service.server)
        await self._serve(local, servers, storage, service, replicas)
        metrics = self._metrics(local, storage, service, replicas)
        register = partial(servers.register, storage.topics, storage.static_topics, ended, self._started)
        if self._election is None:
            await register()
        if replicas.members is not None:
            self._started.push_async_callback(replicas.members.stop)
            replicas.members.start()
        alerts = await self._watch_alerts(config)
        self._watch(local, servers, storage, replicas, metrics, http_port, alerts)
        self._push(config, metrics)
        if self._election is not None:
            await self._attach(self._election, local, servers, storage, service, replicas, register)
        log.info(
            "rmqpy %s: broker %s serves %s, replicas %s, HTTP %s, gRPC %s; data in %s; %s",
            *(__version__, config.name, self.address, self.replica_address),
            *(self.http_address or "off", self._grpc or "off", config.store.folder, config.changed()),
        )

    async def stop(self) -> None:
        """Undo `start`, last step first. Idempotent, and harmless after a failed start."""
        await self._restarts.end()
        try:
            if self._election is not None:
                await self._election.stop()
        finally:
            await self._connected.aclose()
            await self._stop()

    async def _stop(self) -> None:
        is_serving = self._endpoint is not None
        try:
            await self._started.aclose()
        finally:
            self._endpoint, self._http, self._grpc = None, None, None
        if is_serving:
            log.info("broker %s stopped, store closed", self._config.now.name)

    async def _prepare(self, config: BrokerConfig) -> LocalBroker:
        self._addresses.choose_port(config)
        self._started.callback(self._addresses.release_port)
        certificates = await asyncio.to_thread(
            Certificates, config.tls, (self._addresses.host, config.listen_host)
        )
        metadata = Metadata(config, self._addresses.numeric())
        is_slave = config.replication.is_slave
        plugins = await asyncio.to_thread(load_plugins, config.plugins)
        return LocalBroker(
            config=config,
            settings=self._config,
            given_broker_id=self._election.leadership.own_id
            if self._election
            else self._given.replication.broker_id,
            addresses=self._addresses,
            clock=self._clock,
            certificates=certificates,
            leadership=self._leadership,
            master=self._master,
            metadata=metadata,
            role=BrokerRole(config.name, is_slave=is_slave, metadata=metadata, master=self._master),
            restart=self._restarts.begin,
            replaced=self._leadership.untold,
            history=self._history,
            election=self._election,
            plugins=Plugins(plugins, config, Path(config.store.folder) / "config"),
        )

    async def _attach(
        self,
        election: Election,
        local: LocalBroker,
        servers: Servers,
        storage: BrokerStorage,
        service: ClientService,
        replicas: Replicas,
        register: Callable[[], Awaitable[None]],
    ) -> None:
        """Let the election change the role of the running parts. It lets go of them before anything else stops."""
        running = RunningBroker(
            led_epoch=None if local.is_slave else self._leadership.epoch,
            broker_id=local.config.replication.broker_id,
            stream=replicas.stream,
            server=service.server,
            metadata=local.metadata,
            store=storage.store,
            electable=storage.electable,
            role=local.role,
            master=local.master,
            peer=servers.peer,
            register=register,
            abandon=servers.registration.abandon,
            finish_copies=replicas.role.finish_copies if isinstance(replicas.role, SlaveRole) else None,
        )
        self._started.push_async_callback(election.detach)
        await election.attach(running)

    def _caller(
        self, config: BrokerConfig, certificates: Certificates, undo: contextlib.AsyncExitStack
    ) -> LoopCaller:
        """Open connections to name servers and other brokers."""
        inner = config.access.inner_user
        client = Client(
            credentials=None if inner is None else (inner.name, inner.secret, None),
            tls=certificates.client,
        )
        caller = LoopCaller(client)
        undo.push_async_callback(asyncio.to_thread, client.close)
        undo.callback(caller.close)
        return caller

    async def _serve(
        self,
        local: LocalBroker,
        servers: Servers,
        storage: BrokerStorage,
        service: ClientService,
        replicas: Replicas,
    ) -> None:
        """Start as a master or a slave, listen, and start the periodic tasks."""
        config, undo, server = local.config, self._started, service.server
        self._endpoint = endpoint = make_endpoint(local, servers, storage, service, replicas)
        await service.load(undo)
        undo.push_async_callback(endpoint.stop)
        undo.callback(storage.topics.end_waits)
        undo.callback(storage.groups.end_waits)
        # Before the groups are dropped.
        undo.push_async_callback(unless_full(service.save_filters))
        periodic = PeriodicTasks()
        undo.push_async_callback(periodic.stop)
        undo.push_async_callback(replicas.stream.stop)
        undo.push_async_callback(replicas.succession.stop)
        periodic.every(STREAM_LOOK_SECONDS, replicas.stream.look)
        periodic.every(LOOK_SECONDS, replicas.standing.look)
        undo.push_async_callback(replicas.role.stop)
        await replicas.role.start(endpoint.start)
        host, port = config.listen_host, self._addresses.port
        with listening("listenPort", host, port):
            server.listen(host, port)
        with listening("listenPort", host, port, below=VIP_BELOW):
            server.listen(host, port - VIP_BELOW, vip=True)
        self._addresses.release_port()
        self._grpc = await serve_grpc(config, server, local.certificates)
        storage.repeat(periodic)
        service.repeat(periodic)
        sample_history(local, service, replicas, periodic)

    def _metrics(
        self, local: LocalBroker, storage: BrokerStorage, service: ClientService, replicas: Replicas
    ) -> Metrics:
        return Metrics(
            lambda: self._config.now,
            storage.topics,
            storage.groups,
            service.consumers,
            service.producers,
            service.statistics,
            storage.store,
            storage.offsets,
            service.server,
            service.due,
            service.transactions,
            service.replies.counts,
            replicas.status.now,
            self._clock,
            local.plugins,
            storage.tier,
        )

    def _watch(
        self,
        local: LocalBroker,
        servers: Servers,
        storage: BrokerStorage,
        replicas: Replicas,
        metrics: Metrics,
        claimed: socket.socket | None,
        alerts: AlertWatch | None,
    ) -> None:
        """Serve metrics, health and the console over HTTP. The console needs name servers."""
        config, store, certificates = local.config, storage.store, local.certificates
        if claimed is None:
            return
        http = HttpServer(
            pages(
                metrics.exposition,
                fault=lambda: store.failure,
                unready=lambda: replicas.standing.refusal or servers.registration.fault,
            ),
            console(
                self._console_config(config),
                allow_changes=config.http_allows_changes,
                # The console's own requests are unsigned, so only logged-in users are served.
                needs_login=config.access.is_on,
                bodies=config.http_bodies,
                alerts=alerts,
                prometheus=config.telemetry.prometheus_url,
            )
            if config.name_servers
            else None,
            token=config.access.page_token(config.listen_host),
            tls=certificates.http,
            is_encrypted=certificates.is_enforced,
        )
        self._started.push_async_callback(http.stop)
        with listening("httpPort", config.listen_host, config.http_port):
            self._http = http.start(claimed)

    @staticmethod
    def _console_config(config: BrokerConfig) -> ClientConfig:
        return ClientConfig(namesrv=config.name_servers, tls=config.tls.client)

    async def _watch_alerts(self, config: BrokerConfig) -> AlertWatch | None:
        """Start the alerts of the configuration. Raises `ConfigError` for a mistake in their file."""
        path = config.telemetry.alerts_file
        if not path:
            return None
        from rmqpy.alerts.rules import load
        from rmqpy.alerts.watch import AlertWatch

        if not config.name_servers:
            raise ConfigError("alertsFile needs name servers: set namesrvAddr")
        rules = await asyncio.to_thread(load, Path(home.expand(path)))
        client = self._console_config(config)
        if (user := config.access.inner_user) is not None:
            client = dataclasses.replace(client, credentials=Credentials(user.name, user.secret))
        watch = AlertWatch(rules, client)
        watch.start()
        self._started.push_async_callback(watch.stop)
        return watch

    def _push(self, config: BrokerConfig, metrics: Metrics) -> None:
        """Push metrics if configured. Raises `ConfigError` without the required extra."""
        to, periodic = config.telemetry, PeriodicTasks()
        self._started.push_async_callback(periodic.stop)
        if to.log_interval_ms:
            push = MetricsPush(metrics.figures, LogExporter())
            periodic.every(to.log_interval_ms / 1_000, push.run)
        if to.otlp_endpoint:
            try:
                from rmqpy.otel.push import OtlpExporter
            except ImportError as missing:
                raise ConfigError(
                    f"otlpEndpoint needs OpenTelemetry ({missing})", hint="pip install 'rmqpy[otel]'"
                ) from None
            exporter = OtlpExporter(to.otlp_endpoint, name=config.name, role="broker")
            periodic.every(to.otlp_interval_ms / 1_000, MetricsPush(metrics.figures, exporter).run)
