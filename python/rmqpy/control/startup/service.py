"""Service: the native server, the connected clients, deliveries, and statistics. Nothing runs before the broker
listens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from rmqpy._native import DueMessages, LiteConsumers, Server, Transactions
from rmqpy.control.clients.expiry import drop_silent
from rmqpy.control.clients.filter_file import FILTERS_SECONDS
from rmqpy.control.clients.lite_subscriptions import LiteSubscriptions
from rmqpy.control.clients.lite_topics import LiteTopics
from rmqpy.control.clients.notifications import ClientNotifications
from rmqpy.control.clients.registry import Consumers, Producers
from rmqpy.control.clients.relay import Relay
from rmqpy.control.clients.replies import UNDELIVERED_SECONDS, Replies
from rmqpy.control.clients.transaction_checks import TransactionChecks
from rmqpy.control.duties import MasterDuties
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.schedules.own_broker import OwnBrokerPeer
from rmqpy.control.schedules.scheduler import Scheduler
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.startup.storage import BrokerStorage
from rmqpy.control.statistics.group_totals import GroupTotals
from rmqpy.control.statistics.rates import SAMPLE_SECONDS
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.store.topic_counts import timer_counts_in, transaction_counts_in
from rmqpy.control.tables.full_disk import unless_full
from rmqpy.control.topic_deletion import TopicDeletion
from rmqpy.remoting.admission import REFUSALS_SECONDS, Refusals, connection_limits
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS
from rmqpy.remoting.client import Peer

SCAN_SECONDS: Final = 10.0


class ClientService:
    """The parts that serve the clients of a broker."""

    def __init__(self, local: LocalBroker, storage: BrokerStorage, peer: Callable[[str], Peer]) -> None:
        """`peer` connects to a broker. Raises `ConfigError`."""
        config, clock, folder, settings = local.config, local.clock, local.folder, local.settings
        store, metadata, offsets = storage.store, local.metadata, storage.offsets
        self._local, self._storage = local, storage
        limits = connection_limits(config.connections_max, config.connections_per_address_max)
        self.server = server = Server(
            store=store,
            metadata=metadata,
            offsets=offsets,
            clock=local.hand_clock,
            idle_ms=config.idle_seconds * 1_000,
            tls=local.certificates.server,
            **limits._asdict(),
        )
        storage.access.follow(server)
        self._refusals = Refusals(limits, server.statistics, server.take_foreign_clients)
        self.due, self.transactions = DueMessages(server), Transactions(server)
        self.producers, self.relay = Producers(), Relay(server)
        self.replies = Replies(self.producers, self.relay)
        notifications = ClientNotifications(settings, storage.groups, server)
        self.consumers = Consumers(metadata, notifications.group_changed)
        checks = TransactionChecks(settings, storage.topics, self.producers, server, self.transactions, clock)
        self.duties = MasterDuties(
            self.due,
            self.transactions,
            storage.delay_file,
            storage.check_file,
            checks,
            storage.topics.ensure_derived,
        )
        self.own = OwnBrokerPeer(peer, lambda: str(local.addresses))
        self.scheduler = Scheduler(
            config.name,
            storage.schedules,
            storage.schedule_progress,
            store,
            self.own,
            clock,
            precision_ms=config.store.timer_precision_ms,
            delay_ms_max=config.store.timer_delay_sec_max * 1_000,
        )
        self.duties.schedule(self.scheduler, storage.schedule_progress)
        self.progress = ConsumerProgress(
            config.name, storage.queues, offsets, server.fetch_positions, server.in_flight
        )
        self.locks = QueueLocks(clock, metadata.put_in_order)
        self.runtime = Runtime(config.store, store, server, self.due, clock)
        self.statistics = Statistics(config.cluster, store, server, storage.topics.is_system, clock)
        self.totals = GroupTotals(self.progress, storage.topics, storage.groups, self.consumers)
        self.timer_counts = timer_counts_in(folder, self.due, clock)
        self._transaction_counts = transaction_counts_in(folder, self.transactions, clock)
        self.lite_consumers = lites = LiteConsumers(server)
        self.lite_subscriptions = LiteSubscriptions(
            storage.groups,
            store,
            offsets,
            lites,
            server,
            silent_ms=lambda: settings.now.lite_subscription_timeout_ms,
        )
        self.lite_topics = LiteTopics(
            settings, storage.topics, store, offsets, storage.offset_file, lites, clock
        )
        self.deletion = TopicDeletion(offsets, storage.offset_file, store, self.statistics, storage.tier)

    async def load(self, undo: contextlib.AsyncExitStack) -> None:
        """Read the counts of timers and transactions. Raises `StoreError`."""
        undo.push_async_callback(self.duties.save)
        for counts in (self.timer_counts, self._transaction_counts):
            await asyncio.to_thread(counts.load)
            undo.push_async_callback(unless_full(counts.save))

    async def save_filters(self) -> None:
        """Save the filters of the consumers."""
        await self._storage.filter_file.save(self.consumers.groups)

    def repeat(self, periodic: PeriodicTasks) -> None:
        """Save counts, drop silent clients, take samples, and log refusals."""
        config = self._local.config
        seconds = config.offsets_interval_ms / 1_000
        clients = (self.consumers, self.producers, self.server)
        periodic.every(seconds, self.timer_counts.save)
        periodic.every(seconds, self._transaction_counts.save)
        periodic.every(FILTERS_SECONDS, self.save_filters)
        periodic.every(SCAN_SECONDS, partial(drop_silent, *clients, config.client_expiry_ms))
        periodic.every(config.lite_subscription_interval_ms / 1_000, self.lite_subscriptions.expire)
        periodic.every(config.lite_ttl_interval_ms / 1_000, self.lite_topics.expire)
        periodic.every(SCAN_SECONDS, self.locks.expire)
        periodic.every(SAMPLE_SECONDS, self.runtime.sample)
        periodic.every(SAMPLE_SECONDS, self.statistics.sample)
        periodic.every(CERTIFICATES_SECONDS, self._local.certificates.watch)
        periodic.every(REFUSALS_SECONDS, self._refusals.log)
        periodic.every(UNDELIVERED_SECONDS, self.replies.log)
