"""Services: the native server, and what answers its cold requests and keeps count of the hot ones. Nothing of it runs
before the broker listens.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqpy._native import DueMessages, Server, Transactions
from rmqpy.control.clients.notifications import ClientNotifications
from rmqpy.control.clients.registry import Consumers, Producers
from rmqpy.control.clients.relay import Relay
from rmqpy.control.clients.replies import Replies
from rmqpy.control.clients.transaction_checks import TransactionChecks
from rmqpy.control.duties import MasterDuties
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.store.topic_counts import (
    CountFile,
    TransactionMetricsTable,
    timer_counts_in,
    transaction_counts_in,
)
from rmqpy.control.topic_deletion import TopicDeletion
from rmqpy.protocol.requests.timers import TimerMetricsTable
from rmqpy.remoting.admission import Refusals, connection_limits


class Services(NamedTuple):
    """What serves clients."""

    server: Server
    #: Connections that were refused.
    refusals: Refusals
    due: DueMessages
    transactions: Transactions
    duties: MasterDuties
    producers: Producers
    consumers: Consumers
    relay: Relay
    replies: Replies
    progress: ConsumerProgress
    locks: QueueLocks
    runtime: Runtime
    statistics: Statistics
    timer_counts: CountFile[TimerMetricsTable]
    transaction_counts: CountFile[TransactionMetricsTable]
    deletion: TopicDeletion


def make_services(context: StartContext, recovered: Recovered) -> Services:
    """Build them. Raises `ConfigError`."""
    config, clock, folder = context.config, context.clock, context.folder
    store, metadata, offsets = recovered.store, recovered.metadata, recovered.offsets
    limits = connection_limits(config.connections_max, config.connections_per_address_max)
    server = Server(
        store=store,
        metadata=metadata,
        offsets=offsets,
        clock=context.hand_clock,
        idle_ms=config.idle_seconds * 1_000,
        tls=context.certificates.server,
        **limits._asdict(),
    )
    recovered.access.follow(server)
    due, transactions = DueMessages(server), Transactions(server)
    producers, relay = Producers(), Relay(server)
    notifications = ClientNotifications(context.settings, recovered.groups, server)
    statistics = Statistics(config.cluster, store, server, recovered.topics.is_system, clock)
    checks = TransactionChecks(context.settings, recovered.topics, producers, server, transactions, clock)
    return Services(
        server=server,
        refusals=Refusals(limits, server.statistics, server.take_foreign_clients),
        due=due,
        transactions=transactions,
        duties=MasterDuties(due, transactions, recovered.delay_file, recovered.check_file, checks),
        producers=producers,
        consumers=Consumers(metadata, notifications.group_changed),
        relay=relay,
        replies=Replies(producers, relay),
        progress=ConsumerProgress(config.name, store, offsets, server.fetch_positions),
        locks=QueueLocks(clock, metadata.put_in_order),
        runtime=Runtime(config.store, store, server, due, clock),
        statistics=statistics,
        timer_counts=timer_counts_in(folder, due, clock),
        transaction_counts=transaction_counts_in(folder, transactions, clock),
        deletion=TopicDeletion(offsets, recovered.offset_file, store, statistics),
    )
