"""The broker: builds its parts, which are in `rmqpy.control` and in the native half, starts and stops them.

Owns the order. Start: lock and recover the store, read the tables, cut offsets to what survived, listen, register.
Stop: leave the name servers, answer what has arrived, save the offsets, flush and close the store. What was started
is stopped in reverse, also when a later step of the start failed.

Threads: one event loop, the one that called `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy import __version__
from rmqpy._native import (
    Client,
    DueMessages,
    HandClock,
    Metadata,
    Offsets,
    Server,
    Store,
    Transactions,
)
from rmqpy.clock import Clock, SystemClock
from rmqpy.config.addresses import HostPort
from rmqpy.config.broker import VIP_BELOW, BrokerConfig
from rmqpy.config.client import ClientConfig
from rmqpy.config.keys import NO_HTTP
from rmqpy.console.mount import console
from rmqpy.control.access.audit import AUDIT_SECONDS, note_request
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.addresses import free_port, numeric
from rmqpy.control.clients.expiry import drop_silent
from rmqpy.control.clients.filter_file import FILTERS_SECONDS, FilterFile
from rmqpy.control.clients.notifications import ClientNotifications
from rmqpy.control.clients.registry import Consumers, Producers
from rmqpy.control.clients.relay import Relay
from rmqpy.control.clients.replies import UNDELIVERED_SECONDS, Replies
from rmqpy.control.clients.transaction_checks import TransactionChecks
from rmqpy.control.duplicates import refuse_duplicate
from rmqpy.control.duties import MasterDuties
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.control.groups.steps_back import STEPS_BACK_SECONDS, log_steps_back
from rmqpy.control.groups.table import Groups
from rmqpy.control.handlers.access import AccessHandlers
from rmqpy.control.handlers.brokers import BrokerHandlers
from rmqpy.control.handlers.clients import ClientHandlers
from rmqpy.control.handlers.creation import CreationHandlers
from rmqpy.control.handlers.groups import GroupHandlers
from rmqpy.control.handlers.introspection import IntrospectionHandlers
from rmqpy.control.handlers.leadership import LeadershipHandlers
from rmqpy.control.handlers.members import MemberHandlers
from rmqpy.control.handlers.messages import MessageHandlers
from rmqpy.control.handlers.offsets import OffsetHandlers
from rmqpy.control.handlers.plain_acl import PlainAclHandlers
from rmqpy.control.handlers.progress import ProgressHandlers
from rmqpy.control.handlers.queue_locks import QueueLockHandlers
from rmqpy.control.handlers.replicas import ReplicaHandlers
from rmqpy.control.handlers.replies import ReplyHandlers
from rmqpy.control.handlers.timers import TimerHandlers
from rmqpy.control.handlers.topics import TopicHandlers
from rmqpy.control.handlers.transactions import TransactionHandlers
from rmqpy.control.identity import Identity
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.registration import Registration, unregister
from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.acting_duties import ActingDuties
from rmqpy.control.replicas.escape_bridge import EscapeBridge
from rmqpy.control.replicas.follower import Follower
from rmqpy.control.replicas.hand_over import HandOver
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import STREAM_EVENTS_SECONDS, LogStream
from rmqpy.control.replicas.members import Members
from rmqpy.control.replicas.offset_copy import OffsetCopy
from rmqpy.control.replicas.progress_copy import ProgressCopy
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.replicas.status import ReplicaStatus
from rmqpy.control.replicas.succession import Succession, refuse_older_epoch, tell
from rmqpy.control.replicas.table_copy import GroupCopy, TopicCopy
from rmqpy.control.settings import LiveConfig
from rmqpy.control.statistics.metrics import Metrics
from rmqpy.control.statistics.rates import SAMPLE_SECONDS
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.store.cut import cut_log
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.events import EVENTS_SECONDS, log_events
from rmqpy.control.store.recovery_progress import open_store
from rmqpy.control.store.retention import RETENTION_SECONDS, retain
from rmqpy.control.store.topic_counts import timer_counts_in, transaction_counts_in
from rmqpy.control.store.transaction_checks import CheckFile
from rmqpy.control.topic_deletion import TopicDeletion
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.static_topics import warn_of_static_topics
from rmqpy.control.topics.table import Topics
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import pages
from rmqpy.monitor.push import LogExporter, MetricsPush
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.leadership import next_epoch
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.protocol.unserved import UNSERVED_BY_BROKER
from rmqpy.remoting.admission import REFUSALS_SECONDS, Refusals, connection_limits
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import LoopCaller, Peer
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.service import Service

log = logging.getLogger(__name__)

#: Requests the native half answers itself; a heartbeat it has seen before is another, and the rest come up here.
HOT_CODES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
    }
)

SCAN_SECONDS: Final = 10.0
#: Bound of a start's wait for its name servers; a broker serves without them.
FIRST_ROUND_SECONDS: Final = 3.0
#: What an answer has to leave before the broker stops to start again, and pauses between attempts.
ANSWER_SECONDS: Final = 0.1
RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 10.0


class _Parts(NamedTuple):
    """The parts that recovery has filled, on which the rest is built."""

    store: Store
    metadata: Metadata
    offsets: Offsets
    topics: Topics
    groups: Groups
    offset_file: OffsetFile
    delay_file: DelayFile
    check_file: CheckFile
    filter_file: FilterFile
    access: AccessRules


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
        #: Address of the master that this broker has just replaced.
        self._replaced: str | None = None
        self._host = config.advertised_host
        self._port = config.listen_port
        self._replica_port: int | None = None
        self._endpoint: Endpoint | None = None
        self._http: tuple[str, int] | None = None
        #: Of a slave: where its master is.
        self._master = KnownMaster()
        #: The brokers of this name, where a slave may act for its master.
        self._members: Members | None = None

    @property
    def address(self) -> str:
        """`host:port` as clients are told."""
        return str(HostPort(self._host, self._port))

    @property
    def replica_address(self) -> str:
        """`host:port` as slaves are told; once started."""
        return self._identity(self._config.now).replica_address

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
        this name answers, `OSError` for a port in use. After a failure `stop` undoes what was done.
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
        self._port = config.listen_port or self._port or free_port(config.listen_host)
        self._certificates = await asyncio.to_thread(
            Certificates, config.tls, (self._host, config.listen_host)
        )
        caller = self._caller()
        self._peer = caller.peer
        name_servers = {address: caller.peer(address) for address in config.name_servers}
        self._name_servers = list(name_servers.values())
        # A master that was replaced registers no more when it hears of it.
        self._replaced = replaced = self._leadership.untold
        is_told = await tell(
            self._leadership, config.name, self._given.replication.broker_id, self.address, self._peer
        )
        await refuse_duplicate(
            self._identity(config), name_servers.values(), caller.peer, replaced if is_told else None
        )
        if self._cut is not None:
            await asyncio.to_thread(cut_log, config.store, self._cut)
            self._cut = None
        parts = await self._recover(config)
        metrics = await self._serve(config, parts, name_servers)
        registration = await self._register(config, parts, name_servers)
        await self._watch(config, parts.store, metrics, registration)
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
            except (RocketMQError, OSError) as error:
                log.error("broker %s cannot start again, trying it once more: %s", self._given.name, error)
                await self._stop()
                await asyncio.sleep(pause)
                pause = min(2 * pause, RESTART_SECONDS_MAX)

    async def _recover(self, config: BrokerConfig) -> _Parts:
        """Everything that was on the disk, as far as it survived."""
        store = Store(config.store, clock=self._hand_clock, is_replica=config.replication.is_slave)
        # In a thread: the disk must not hold up a name server on the same loop.
        self._started.push_async_callback(asyncio.to_thread, store.close)
        await open_store(store, self._progress)
        log_events(store)
        # Once more when nothing is served any longer.
        self._started.callback(log_events, store)
        retain(store, config.store, self._clock)
        metadata = Metadata(config, numeric(self._host, self._port))
        _set_rules(metadata, config)
        self._role = BrokerRole(
            config.name, is_slave=config.replication.is_slave, metadata=metadata, master=self._master
        )
        offsets = Offsets(metadata)
        folder = Path(config.store.folder) / "config"
        topics = Topics(folder / "topics.json", metadata, built_in_topics(config), self._clock)
        groups = Groups(folder / "subscriptionGroup.json", metadata, self._clock)
        topics.is_copy = groups.is_copy = config.replication.is_slave
        offset_file = OffsetFile(folder / "consumerOffset.json", offsets, self._clock)
        delay_file = DelayFile(folder / "delayOffset.json", self._clock)
        check_file = CheckFile(folder / "transactionChecks.json", self._clock)
        await asyncio.to_thread(topics.load)
        await asyncio.to_thread(groups.load)
        await asyncio.to_thread(offset_file.load, topics.has_queue, store.max_offset)
        await asyncio.to_thread(delay_file.load)
        await asyncio.to_thread(check_file.load)
        filter_file = FilterFile(folder / "consumerFilter.json", self._clock)
        await asyncio.to_thread(filter_file.load)
        await asyncio.to_thread(warn_of_static_topics, folder)
        access = AccessRules(config.access, config.cluster, folder, self._clock)
        await access.load()
        self._started.push_async_callback(offset_file.save)
        return _Parts(
            store,
            metadata,
            offsets,
            topics,
            groups,
            offset_file,
            delay_file,
            check_file,
            filter_file,
            access,
        )

    async def _serve(self, config: BrokerConfig, parts: _Parts, name_servers: Mapping[str, Peer]) -> Metrics:
        """Listen, answer, and do what comes round again; the metrics of all of it."""
        store, metadata, offsets, topics, groups, offset_file, delay_file, check_file, filter_file, access = (
            parts
        )
        limits = connection_limits(config.connections_max, config.connections_per_address_max)
        server = Server(
            store=store,
            metadata=metadata,
            offsets=offsets,
            clock=self._hand_clock,
            idle_ms=config.idle_seconds * 1_000,
            tls=self._certificates.server,
            **limits._asdict(),
        )
        due, transactions = DueMessages(server), Transactions(server)
        access.follow(server)
        producers = Producers()
        notifications = ClientNotifications(self._config, groups, server)
        consumers = Consumers(metadata, notifications.group_changed)
        relay = Relay(server)
        replies = Replies(producers, relay)
        progress = ConsumerProgress(config.name, store, offsets, server.fetch_positions)
        locks = QueueLocks(self._clock, metadata.put_in_order)
        runtime = Runtime(config.store, store, server, due, self._clock)
        folder = Path(config.store.folder) / "config"
        timer_counts = timer_counts_in(folder, due, self._clock)
        transaction_counts = transaction_counts_in(folder, transactions, self._clock)
        statistics = Statistics(config.cluster, store, server, topics.is_system, self._clock)
        deletion = TopicDeletion(offsets, offset_file, store, statistics)
        timer_file = folder / "timercheck"
        stream = LogStream(config.replication, store, self._certificates)
        succession = Succession(
            config,
            self._given.replication.broker_id,
            self._leadership,
            self._role,
            self._master,
            store,
            self._peer,
            self._restart,
        )
        succession.epoch = stream.epoch
        self._succession = succession
        lag = Lag(self._clock.elapsed, lambda: store.statistics()["max_physical"])
        status = ReplicaStatus(stream, store, lag, self._clock, lambda: self._role.is_acting)
        acting: ActingMaster | None = None
        if config.replication.may_act:
            self._members = Members(
                self._identity(config),
                name_servers,
                lambda: topics.version,
                interval_seconds=config.replication.beat_interval_ms / 1_000,
                timeout_seconds=config.replication.beat_timeout_ms / 1_000,
            )
            if config.replication.is_slave:
                acting = self._acting(
                    config, due, transactions, stream, delay_file, offset_file, name_servers
                )
        self._endpoint = Endpoint(
            server,
            (
                ClientHandlers(self._config, topics, groups, consumers, producers, server, self._clock),
                CreationHandlers(self._config, topics, groups, server),
                TopicHandlers(self._config, topics, store, offsets, deletion),
                GroupHandlers(self._config, groups, offsets, offset_file, server, statistics),
                OffsetHandlers(
                    self._config, server, self.address, progress, topics, groups, consumers, statistics
                ),
                ProgressHandlers(self.address, progress, topics, groups, consumers, statistics, self._clock),
                IntrospectionHandlers(config.name, store, topics, groups, consumers, relay),
                relay,
                QueueLockHandlers(locks, topics, groups),
                MessageHandlers(store, consumers, server),
                TransactionHandlers(transactions),
                TimerHandlers(due, timer_counts),
                ReplyHandlers(
                    self._config, topics, replies, server, numeric(self._host, self._port), self._clock
                ),
                ReplicaHandlers(
                    offsets,
                    offset_file,
                    delay_file,
                    (lambda: delay_file.offsets) if config.replication.is_slave else due.delivered,
                    timer_file,
                    status,
                ),
                LeadershipHandlers(config, stream, succession),
                MemberHandlers(
                    self._role,
                    self._master,
                    self._members,
                    acting,
                    lambda: self._identity(self._config.now),
                    lambda: store.statistics()["max_physical"],
                ),
                BrokerHandlers(self._config, runtime, store, statistics),
                AccessHandlers(access.users, access.policies),
                PlainAclHandlers(access.plain, lambda: self._config.now, self.address),
            ),
            role="broker",
            hot=HOT_CODES,
            unserved=UNSERVED_BY_BROKER,
            refusal_of=self._role.refusal,
            changed=note_request if config.access.is_on else None,
        )
        checks = TransactionChecks(self._config, topics, producers, server, transactions, self._clock)
        duties = MasterDuties(due, transactions, delay_file, check_file, checks)
        self._started.push_async_callback(duties.save)
        for counts in (timer_counts, transaction_counts):
            await asyncio.to_thread(counts.load)
            self._started.push_async_callback(counts.save)
        self._started.push_async_callback(self._endpoint.stop)
        self._started.callback(topics.end_waits)
        self._started.callback(groups.end_waits)
        # While the groups are still there.
        self._started.push_async_callback(filter_file.save, consumers.groups)
        periodic = PeriodicTasks()
        self._started.push_async_callback(periodic.stop)
        self._started.push_async_callback(stream.stop)
        self._started.push_async_callback(succession.stop)
        periodic.every(STREAM_EVENTS_SECONDS, stream.log_events)
        if config.replication.is_slave:
            await self._leadership.follow()
            alignment = stream.follow(self._master, self._peer, self._restart)
            self._started.push_async_callback(alignment.stop)
            self._endpoint.start()
            # Topics and groups are copied as they change, and need not be asked for in the end.
            progress_copies = (
                OffsetCopy(offsets),
                ProgressCopy(delay_file, timer_file, lambda: store.statistics()["max_physical"], lag),
            )
            copies = (TopicCopy(topics, deletion.delete), GroupCopy(groups), *progress_copies)
            follower = Follower(self._master, self._peer, copies, self._role.master_answers)
            self._started.push_async_callback(follower.stop)
            self._role.on_return = server.wake_pulls
            succession.finish_copies = lambda: follower.finish(progress_copies)
            follower.start()
            if acting is not None:
                self._started.push_async_callback(acting.stop)
        else:
            epoch = max(stream.epoch(), self._leadership.epoch or 0)
            await refuse_older_epoch(config.name, self.address, epoch, self._name_servers, self._peer)
            chosen = config.replication.listen_port
            self._replica_port = stream.listen(
                chosen or self._port + 1,
                takes_any_port=not chosen,
                broker_id=self._given.replication.broker_id,
                epoch=next_epoch(stream.epoch(), MASTER_ID)
                if self._leadership.has_followed
                else self._leadership.epoch,
            )
            await self._leadership.lead()
            if self._members is not None and not config.replication.skips_hand_over:
                hand_over = HandOver(
                    self._identity(config),
                    self._members,
                    self._peer,
                    lambda: len(stream.slaves()),
                    lambda: store.statistics()["max_physical"],
                )
                await hand_over.run(offsets, delay_file, timer_file)
            await duties.recover()
            self._endpoint.start()
            await duties.deliver()
            duties.repeat(config, periodic)
            succession.start(self.address)
        server.listen(config.listen_host, self._port)
        server.listen(config.listen_host, self._port - VIP_BELOW, vip=True)

        periodic.every(config.offsets_interval_ms / 1_000, offset_file.save)
        for counts in (timer_counts, transaction_counts):
            periodic.every(config.offsets_interval_ms / 1_000, counts.save)
        periodic.every(
            SCAN_SECONDS, lambda: drop_silent(consumers, producers, server, config.client_expiry_ms)
        )
        periodic.every(SCAN_SECONDS, locks.expire)
        periodic.every(FILTERS_SECONDS, lambda: filter_file.save(consumers.groups))
        periodic.every(SAMPLE_SECONDS, runtime.sample)
        periodic.every(SAMPLE_SECONDS, statistics.sample)
        periodic.every(EVENTS_SECONDS, lambda: log_events(store))
        periodic.every(STEPS_BACK_SECONDS, lambda: log_steps_back(offsets))
        periodic.every(CERTIFICATES_SECONDS, self._certificates.watch)
        periodic.every(REFUSALS_SECONDS, Refusals(limits, server.statistics).log)
        periodic.every(UNDELIVERED_SECONDS, replies.log)
        periodic.every(AUDIT_SECONDS, access.log_refusals)
        if access.plain is not None:
            periodic.every(WATCH_SECONDS, access.plain.watch)
        periodic.every(RETENTION_SECONDS, lambda: retain(store, self._config.now.store, self._clock))
        return Metrics(
            lambda: self._config.now,
            topics,
            groups,
            consumers,
            producers,
            statistics,
            store,
            offsets,
            server,
            due,
            transactions,
            replies.counts,
            status.now,
            self._clock,
        )

    def _acting(
        self,
        config: BrokerConfig,
        due: DueMessages,
        transactions: Transactions,
        stream: LogStream,
        delay_file: DelayFile,
        offset_file: OffsetFile,
        name_servers: Mapping[str, Peer],
    ) -> ActingMaster:
        """What this slave does while its master is gone."""
        duties = None
        if config.replication.may_escape:
            bridge = EscapeBridge(
                self._identity(config), tuple(name_servers.values()), self._peer, self._clock.elapsed
            )
            duties = ActingDuties(due, transactions, delay_file, bridge, offset_file.save)

        def has_log() -> bool:
            master = stream.master()
            return master is not None and master[1]

        members = self._members
        assert members is not None, "slaves act where members are known"
        acting = ActingMaster(config.replication.broker_id, self._role, duties, has_log, self._clock.elapsed)
        members.on_round = lambda: acting.consider(members.now)
        return acting

    async def _watch(
        self, config: BrokerConfig, store: Store, metrics: Metrics, registration: Registration
    ) -> None:
        """Serve metrics, health and the console over HTTP. The console shows a cluster, which has name servers."""
        if config.http_port == NO_HTTP:
            return
        http = HttpServer(
            pages(metrics.exposition, fault=lambda: store.failure, unready=lambda: registration.fault),
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
            tls=self._certificates.http,
            is_encrypted=self._certificates.is_enforced,
        )
        self._started.push_async_callback(http.stop)
        try:
            self._http = await http.start(config.listen_host, config.http_port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._takes_any_http_port:
                raise
            self._http = await http.start(config.listen_host, 0)

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

    def _caller(self) -> LoopCaller:
        """The connections to name servers."""
        inner = self._config.now.access.inner_user
        client = Client(
            credentials=None if inner is None else (inner.name, inner.secret, None),
            tls=self._certificates.client,
        )
        caller = LoopCaller(client)
        self._started.push_async_callback(asyncio.to_thread, client.close)
        self._started.callback(caller.close)
        return caller

    async def _register(
        self, config: BrokerConfig, parts: _Parts, name_servers: Mapping[str, Peer]
    ) -> Registration:
        """Tell the name servers, now and whenever something changes."""
        topics = parts.topics
        registration = Registration(
            self._identity(config),
            topics,
            name_servers,
            permission=lambda: self._config.now.permission,
            interval_seconds=config.register_interval_ms / 1_000,
            timeout_seconds=config.register_timeout_ms / 1_000,
            on_answer=self._role.registered,
        )

        def settings_changed(before: BrokerConfig, after: BrokerConfig) -> None:
            retain(parts.store, after.store, self._clock)
            _set_rules(parts.metadata, after)
            if before.permission != after.permission:
                parts.metadata.set_permission(after.permission)
                topics.touch()
                registration.everything_changed()

        topics.on_change = registration.changed
        self._role.on_loss = registration.everything_changed
        self._config.on_change = settings_changed
        self._started.push_async_callback(registration.stop)
        self._succession.leave = registration.abandon
        if self._replaced is not None:
            await unregister(
                dataclasses.replace(self._identity(config), address=self._replaced), name_servers.values()
            )
        registration.start()
        await registration.first_round(FIRST_ROUND_SECONDS)
        if self._members is not None:
            self._members.on_forgotten = registration.everything_changed
            self._started.push_async_callback(self._members.stop)
            self._members.start()
        return registration

    def _identity(self, config: BrokerConfig) -> Identity:
        replica_host = config.replication.advertised_address or self._host
        replica_port = self._replica_port or config.replication.listen_port or self._port + 1
        return Identity(
            cluster=config.cluster,
            broker=config.name,
            address=self.address,
            replica_address=str(HostPort(replica_host, replica_port)),
            broker_id=config.replication.broker_id,
            zone=config.zone or None,
            may_act=config.replication.may_act,
            silence_ms=config.replication.beat_silence_ms_max if config.replication.may_act else None,
        )


def _set_rules(metadata: Metadata, config: BrokerConfig) -> None:
    metadata.set_transactions(config.rejects_transactions, config.transaction_timeout_ms)
    metadata.set_message_type_check(config.checks_message_types)
