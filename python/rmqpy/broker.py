"""The broker: builds its parts, which are in `rmqpy.control` and in the native half, starts and stops them.

Owns the order. Start: lock and recover the store, read the tables, cut offsets to what survived, listen, register.
Stop: leave the name servers, answer what has arrived, save the offsets, flush and close the store. What was started
is stopped in reverse, also when a later step of the start failed. The steps are in `rmqpy.control.startup`.

Threads: one event loop, the one that called `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from rmqpy import __version__
from rmqpy._native import Client, HandClock
from rmqpy.clock import Clock, SystemClock
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.broker import VIP_BELOW, BrokerConfig
from rmqpy.config.client import ClientConfig
from rmqpy.config.keys import NO_HTTP
from rmqpy.console.mount import console
from rmqpy.control.addresses import Addresses
from rmqpy.control.duplicates import refuse_duplicate
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.registration import Registration
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import STREAM_LOOK_SECONDS
from rmqpy.control.replicas.succession import give_way, settle, tell
from rmqpy.control.settings import LiveConfig
from rmqpy.control.standing import LOOK_SECONDS
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.handlers import make_endpoint
from rmqpy.control.startup.master import start_as_master
from rmqpy.control.startup.metrics import make_metrics
from rmqpy.control.startup.recovery import Recovered, recover
from rmqpy.control.startup.registration import register
from rmqpy.control.startup.replicas import Replicas, make_replicas
from rmqpy.control.startup.rounds import repeat
from rmqpy.control.startup.services import Services, make_services
from rmqpy.control.startup.slave import start_as_slave
from rmqpy.control.statistics.metrics import Metrics
from rmqpy.control.store.cut import cut_log
from rmqpy.control.tables.full_disk import unless_full
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.monitor.http import HttpServer, claim
from rmqpy.monitor.pages import pages
from rmqpy.monitor.push import LogExporter, MetricsPush
from rmqpy.protocol.codes import RequestCode
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.service import Service

log = logging.getLogger(__name__)

#: What an answer has to leave before the broker stops to start again, and pauses between attempts.
ANSWER_SECONDS: Final = 0.1
RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 10.0


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
        """`path` is the file the configuration came from, where settings changed online are written; `progress`
        is called with the progress of a recovery that takes long. With `takes_any_http_port` HTTP is served on a free
        port where that of the configuration is taken.
        """
        self._takes_any_http_port = takes_any_http_port
        self._progress = progress
        self._clock = clock or SystemClock()
        #: The native half's clock, where it is not the machine's.
        self._hand_clock = clock if isinstance(clock, HandClock) else None
        self._given = config
        self._config = LiveConfig(config, self._clock, path)
        self._started = contextlib.AsyncExitStack()
        self._leadership = Leadership(config)
        self._restarting: asyncio.Task[None] | None = None
        self._is_stopping = False
        #: Where a log has to be cut before the next start.
        self._cut: int | None = None
        self._addresses = Addresses(config)
        self._endpoint: Endpoint | None = None
        self._http: tuple[str, int] | None = None
        #: Of a slave: where its master is. What is known stays known when the broker starts again.
        self._master = KnownMaster()

    @property
    def address(self) -> str:
        """`host:port` as clients are told."""
        return str(self._addresses)

    @property
    def replica_address(self) -> str:
        """`host:port` as slaves are told; once started."""
        return self._addresses.identity(self._config.now).replica_address

    @property
    def http_address(self) -> str | None:
        """`host:port` of the console, /metrics, /healthz and /readyz; None where no HTTP is served."""
        return str(HostPort(*self._http)) if self._http else None

    def table(self) -> dict[RequestCode, str]:
        """Every request code and what becomes of it; once started."""
        assert self._endpoint is not None, "the table is made by start"
        return self._endpoint.table()

    async def start(self) -> None:
        """Recover, listen, register.

        Raises `StoreError` or `ConfigError` naming the file that cannot be used, `ConfigError` where another broker of
        this name answers, `AddressError` for a port in use. After a failure `stop` undoes what was done.
        """
        self._is_stopping = False
        await self._leadership.load()
        await self._start()

    async def _start(self) -> None:
        config = self._leadership.config()
        self._config.assume(config)
        if config.is_open and not config.access.is_closed:
            log.warning(
                "other machines can connect to %s, and do everything: see authenticationEnabled and "
                "authorizationEnabled",
                config.listen_host,
            )
        if config.replication.promise is not None:
            log.info("%s", config.replication.promise)
        await _check_ports(config)
        http_port = await self._claim_http(config)
        context = await self._prepare(config)
        if await give_way(
            self._leadership, config.name, self.address, context.name_servers.values(), context.peer
        ):
            await self._stop()
            await self._start()
            return
        ended = await self._refuse_duplicate(context)
        if self._cut is not None:
            await asyncio.to_thread(cut_log, config.store, self._cut)
        recovered = await recover(context, self._progress, is_cut=self._cut is not None)
        self._cut = None
        services = make_services(context, recovered)
        replicas = make_replicas(context, recovered, services)
        await self._serve(context, recovered, services, replicas)
        metrics = make_metrics(context, recovered, services, replicas)
        registration = await register(context, recovered, replicas, ended)
        await self._watch(context, recovered, replicas, metrics, registration, http_port)
        self._push(config, metrics)
        log.info(
            "rmqpy %s: broker %s serves %s, replicas %s, HTTP %s; data in %s; %s",
            *(__version__, config.name, self.address, self.replica_address),
            *(self.http_address or "nowhere", config.store.folder, config.changed()),
        )

    async def stop(self) -> None:
        """Undo what `start` did, last step first. Idempotent, and harmless after a start that failed."""
        self._is_stopping = True
        if self._restarting is not None:
            await asyncio.wait({self._restarting})
        await self._stop()

    async def _stop(self) -> None:
        is_serving = self._endpoint is not None
        try:
            await self._started.aclose()
        finally:
            self._endpoint, self._http = None, None
        if is_serving:
            log.info("broker %s has stopped, and its store is closed", self._config.now.name)

    def _restart(self, cut: int | None = None) -> None:
        """Begin to start again, as decided meanwhile, with a log that is cut first."""
        self._cut = cut
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        # The answer to who decided leaves first.
        await asyncio.sleep(ANSWER_SECONDS)
        pause = RESTART_SECONDS_MIN
        while not self._is_stopping:
            try:
                await self._stop()
                await self._start()
                return
            except Exception as error:
                log.error(
                    "broker %s cannot start again, retrying: %s",
                    self._given.name,
                    error,
                    exc_info=None if isinstance(error, RocketMQError | OSError) else error,
                )
                await self._stop()
                await asyncio.sleep(pause)
                pause = min(2 * pause, RESTART_SECONDS_MAX)

    async def _claim_http(self, config: BrokerConfig) -> socket.socket | None:
        """The port for HTTP, before anything is opened or registered; None where none is. Raises `AddressError`."""
        host, port = config.listen_host, config.http_port
        if port == NO_HTTP:
            return None
        with listening("httpPort", host, port):
            try:
                claimed = await claim(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not self._takes_any_http_port:
                    raise
                claimed = await claim(host, 0)
        self._started.callback(claimed.close)
        return claimed

    async def _prepare(self, config: BrokerConfig) -> StartContext:
        """What the steps of this start are given."""
        self._addresses.choose_port(config)
        self._started.callback(self._addresses.release_port)
        certificates = await asyncio.to_thread(
            Certificates, config.tls, (self._addresses.host, config.listen_host)
        )
        caller = self._caller(config, certificates)
        peer = caller.peer
        return StartContext(
            config=config,
            settings=self._config,
            given_broker_id=self._given.replication.broker_id,
            addresses=self._addresses,
            clock=self._clock,
            hand_clock=self._hand_clock,
            certificates=certificates,
            leadership=self._leadership,
            master=self._master,
            replaced=self._leadership.untold,
            client=caller.client,
            name_servers={address: peer(address) for address in config.name_servers},
            peer=peer,
            restart=self._restart,
            undo=self._started,
        )

    def _caller(self, config: BrokerConfig, certificates: Certificates) -> LoopCaller:
        """The connections to name servers and other brokers."""
        inner = config.access.inner_user
        client = Client(
            credentials=None if inner is None else (inner.name, inner.secret, None),
            tls=certificates.client,
        )
        caller = LoopCaller(client)
        self._started.push_async_callback(asyncio.to_thread, client.close)
        self._started.callback(caller.close)
        return caller

    async def _refuse_duplicate(self, context: StartContext) -> set[str]:
        """Begin only where no other broker has this place; the addresses of masters whose time this one has ended.

        Raises `ConfigError` where another one has it, or where this one is the master that was replaced.
        """
        leadership, identity = self._leadership, context.identity()
        name_servers, peer, given_id = context.name_servers.values(), context.peer, context.given_broker_id
        ended: set[str] = set()
        if await tell(leadership, identity.broker, given_id, identity.address, peer) and context.replaced:
            ended.add(context.replaced)
        if not context.is_slave:
            ended |= await settle(leadership, identity, given_id, name_servers, peer)
        await refuse_duplicate(identity, name_servers, peer, ended)
        return ended

    async def _serve(
        self, context: StartContext, recovered: Recovered, services: Services, replicas: Replicas
    ) -> None:
        """Begin as a master or as a slave, listen, and do what comes round again."""
        config, undo, server = context.config, context.undo, services.server
        self._endpoint = endpoint = make_endpoint(context, recovered, services, replicas)
        undo.push_async_callback(services.duties.save)
        for counts in (services.timer_counts, services.transaction_counts):
            await asyncio.to_thread(counts.load)
            undo.push_async_callback(unless_full(counts.save))
        undo.push_async_callback(endpoint.stop)
        undo.callback(recovered.topics.end_waits)
        undo.callback(recovered.groups.end_waits)
        # While the groups are still there.
        undo.push_async_callback(unless_full(partial(recovered.filter_file.save, services.consumers.groups)))
        periodic = PeriodicTasks()
        undo.push_async_callback(periodic.stop)
        undo.push_async_callback(replicas.stream.stop)
        undo.push_async_callback(replicas.succession.stop)
        periodic.every(STREAM_LOOK_SECONDS, replicas.stream.look)
        periodic.every(LOOK_SECONDS, replicas.standing.look)
        if context.is_slave:
            await start_as_slave(context, recovered, services, replicas, endpoint)
        else:
            await start_as_master(context, recovered, services, replicas, endpoint, periodic)
        host, port = config.listen_host, self._addresses.port
        with listening("listenPort", host, port):
            server.listen(host, port)
        with listening("listenPort", host, port, below=VIP_BELOW):
            server.listen(host, port - VIP_BELOW, vip=True)
        self._addresses.release_port()
        repeat(context, recovered, services, periodic)

    async def _watch(
        self,
        context: StartContext,
        recovered: Recovered,
        replicas: Replicas,
        metrics: Metrics,
        registration: Registration,
        claimed: socket.socket | None,
    ) -> None:
        """Serve metrics, health and the console over HTTP. The console shows a cluster, which has name servers."""
        config, store, certificates = context.config, recovered.store, context.certificates
        if claimed is None:
            return
        http = HttpServer(
            pages(
                metrics.exposition,
                fault=lambda: store.failure,
                unready=lambda: replicas.standing.refusal or registration.fault,
            ),
            console(
                ClientConfig(namesrv=config.name_servers, tls=config.tls.client),
                allow_changes=config.http_allows_changes,
                # Its own requests are not signed: only those of somebody who has logged in are served.
                needs_login=config.access.is_on,
                bodies=config.http_bodies,
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

    def _push(self, config: BrokerConfig, metrics: Metrics) -> None:
        """Send metrics where the configuration says. Raises `ConfigError` where the extra for that is missing."""
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


async def _check_ports(config: BrokerConfig) -> None:
    """Find out before the recovery of a store whether a port that was chosen is taken. Raises `AddressError`."""
    host, replication = config.listen_host, config.replication
    ports = [("listenPort", host, config.listen_port, 0), ("listenPort", host, config.listen_port, VIP_BELOW)]
    if not replication.is_slave:
        ports.append(("haListenPort", replication.listen_host, replication.listen_port, 0))
    for key, host, port, below in ports:
        if port:
            with listening(key, host, port, below=below):
                (await claim(host, port - below)).close()
