"""Handlers: every request that this broker serves in Python, by family."""

from __future__ import annotations

from typing import Final

from rmqpy import _native
from rmqpy.control.access.audit import note_request
from rmqpy.control.access.records import RecordRights
from rmqpy.control.clients.cluster_queues import ClusterQueues
from rmqpy.control.handlers.access import AccessHandlers
from rmqpy.control.handlers.assignments import AssignmentHandlers
from rmqpy.control.handlers.brokers import BrokerHandlers
from rmqpy.control.handlers.clients import ClientHandlers
from rmqpy.control.handlers.creation import CreationHandlers
from rmqpy.control.handlers.groups import GroupHandlers
from rmqpy.control.handlers.introspection import IntrospectionHandlers
from rmqpy.control.handlers.leadership import LeadershipHandlers
from rmqpy.control.handlers.lite import LiteHandlers
from rmqpy.control.handlers.logical_queues import LogicalQueueHandlers
from rmqpy.control.handlers.members import MemberHandlers
from rmqpy.control.handlers.messages import MessageHandlers
from rmqpy.control.handlers.offsets import OffsetHandlers
from rmqpy.control.handlers.once import OnceHandlers
from rmqpy.control.handlers.plain_acl import PlainAclHandlers
from rmqpy.control.handlers.progress import ProgressHandlers
from rmqpy.control.handlers.pulls import PullHandlers, pull_limits
from rmqpy.control.handlers.queue_locks import QueueLockHandlers
from rmqpy.control.handlers.replicas import ReplicaHandlers
from rmqpy.control.handlers.replies import ReplyHandlers
from rmqpy.control.handlers.schedules import ScheduleHandlers
from rmqpy.control.handlers.timers import TimerHandlers
from rmqpy.control.handlers.topics import TopicHandlers
from rmqpy.control.handlers.transactions import TransactionHandlers
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.servers import Servers
from rmqpy.control.startup.service import ClientService
from rmqpy.control.startup.storage import BrokerStorage
from rmqpy.control.topics.logical_queues import LogicalQueues
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.unserved import UNSERVED_BY_BROKER
from rmqpy.remoting.endpoint import Endpoint

#: Requests that the native module serves. It also serves known heartbeats, and forwards others.
HOT_CODES: Final = frozenset(map(RequestCode, _native.HOT_CODES))


def make_endpoint(
    local: LocalBroker,
    servers: Servers,
    storage: BrokerStorage,
    service: ClientService,
    replicas: Replicas,
) -> Endpoint:
    """Build the native server with all handlers."""
    return Endpoint(
        service.server,
        (
            *_of_topics_and_groups(local, servers, storage, service),
            *_of_clients(local, servers, storage, service),
            *_of_replicas(local, storage, service, replicas),
            BrokerHandlers(
                local.settings,
                service.runtime,
                replicas.standing,
                storage.store,
                service.statistics,
                local.history,
                storage.apply,
                local.plugins.states,
                storage.tier,
            ),
            AccessHandlers(storage.access.users, storage.access.policies),
            PlainAclHandlers(storage.access.plain, lambda: local.settings.now, str(local.addresses)),
        ),
        role="broker",
        hot=HOT_CODES,
        unserved=UNSERVED_BY_BROKER,
        refusal_of=local.role.refusal,
        changed=note_request if local.config.access.is_on else None,
    )


def _of_topics_and_groups(
    local: LocalBroker, servers: Servers, storage: BrokerStorage, service: ClientService
) -> tuple[object, ...]:
    settings, address = local.settings, str(local.addresses)
    offsets, topics, groups = storage.offsets, storage.topics, storage.groups
    server, consumers = service.server, service.consumers
    progress, statistics = service.progress, service.statistics
    policies = local.plugins.policies
    static, name_servers = storage.static_topics, tuple(servers.name_servers.values())
    logical = LogicalQueues(
        local.config.name, static, storage.store, name_servers, servers.peer, local.clock.elapsed
    )
    in_segments = LogicalQueueHandlers(logical, offsets)
    return (
        CreationHandlers(settings, topics, groups, server),
        TopicHandlers(
            settings,
            topics,
            static,
            storage.store,
            offsets,
            service.deletion,
            policies,
            server.wake_pulls,
            service.lite_topics,
        ),
        GroupHandlers(settings, groups, offsets, storage.offset_file, server, statistics, policies),
        OffsetHandlers(
            settings,
            server,
            address,
            progress,
            logical,
            topics,
            groups,
            consumers,
            statistics,
            local.history.note,
        ),
        in_segments,
        PullHandlers(in_segments, storage.tier, storage.store, consumers, lambda: pull_limits(settings.now)),
        ProgressHandlers(
            address, progress, topics, groups, consumers, service.totals, statistics, local.clock
        ),
        LiteHandlers(
            settings,
            topics,
            groups,
            storage.store,
            offsets,
            service.lite_consumers,
            service.lite_subscriptions,
            service.lite_topics,
        ),
        QueueLockHandlers(service.locks, topics, logical, groups),
    )


def _of_clients(
    local: LocalBroker, servers: Servers, storage: BrokerStorage, service: ClientService
) -> tuple[object, ...]:
    settings, clock = local.settings, local.clock
    store, topics, groups = storage.store, storage.topics, storage.groups
    server, consumers, relay = service.server, service.consumers, service.relay
    rights = RecordRights(server)
    name_servers = tuple(servers.name_servers.values())
    queues = ClusterQueues(local.config.name, topics, name_servers, clock.elapsed)
    return (
        AssignmentHandlers(settings, topics, groups, consumers, storage.request_modes, queues),
        ClientHandlers(settings, topics, groups, consumers, service.producers, server, clock),
        IntrospectionHandlers(local.config.name, store, topics, groups, consumers, relay, rights),
        relay,
        MessageHandlers(store, consumers, rights),
        TransactionHandlers(service.transactions, store, rights),
        OnceHandlers(settings, store, service.own, clock),
        ScheduleHandlers(
            settings,
            storage.schedules,
            storage.schedule_progress,
            service.scheduler,
            topics,
            clock,
            storage.log_end,
        ),
        TimerHandlers(service.due, service.timer_counts),
        ReplyHandlers(settings, topics, service.replies, server, local.addresses.numeric(), clock),
    )


def _of_replicas(
    local: LocalBroker, storage: BrokerStorage, service: ClientService, replicas: Replicas
) -> tuple[object, ...]:
    delay_file = storage.delay_file
    return (
        ReplicaHandlers(
            storage.offsets,
            storage.offset_file,
            delay_file,
            (lambda: delay_file.offsets) if local.is_slave else service.due.delivered,
            storage.timer_file,
            replicas.status,
            local.clock,
        ),
        LeadershipHandlers(local.config, replicas.stream, local.election or replicas.succession),
        MemberHandlers(
            local.role,
            local.master,
            replicas.members,
            replicas.acting,
            local.identity,
            storage.log_end,
            replicas.stream,
            storage.access,
            storage.backups,
        ),
    )
