"""Handlers: every request that this broker serves in Python, by family. The table of contents of the process."""

from __future__ import annotations

from typing import Final

from rmqpy.control.access.audit import note_request
from rmqpy.control.access.records import RecordRights
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
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.services import Services
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.unserved import UNSERVED_BY_BROKER
from rmqpy.remoting.endpoint import Endpoint

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


def make_endpoint(
    context: StartContext, recovered: Recovered, services: Services, replicas: Replicas
) -> Endpoint:
    """The native server with all handlers behind it."""
    return Endpoint(
        services.server,
        (
            *_of_topics_and_groups(context, recovered, services),
            *_of_clients(context, recovered, services),
            *_of_replicas(context, recovered, services, replicas),
            BrokerHandlers(
                context.settings,
                services.runtime,
                replicas.standing,
                recovered.store,
                services.statistics,
            ),
            AccessHandlers(recovered.access.users, recovered.access.policies),
            PlainAclHandlers(recovered.access.plain, lambda: context.settings.now, str(context.addresses)),
        ),
        role="broker",
        hot=HOT_CODES,
        unserved=UNSERVED_BY_BROKER,
        refusal_of=recovered.role.refusal,
        changed=note_request if context.config.access.is_on else None,
    )


def _of_topics_and_groups(
    context: StartContext, recovered: Recovered, services: Services
) -> tuple[object, ...]:
    settings, address = context.settings, str(context.addresses)
    offsets, topics, groups = recovered.offsets, recovered.topics, recovered.groups
    server, consumers = services.server, services.consumers
    progress, statistics = services.progress, services.statistics
    return (
        CreationHandlers(settings, topics, groups, server),
        TopicHandlers(settings, topics, recovered.store, offsets, services.deletion),
        GroupHandlers(settings, groups, offsets, recovered.offset_file, server, statistics),
        OffsetHandlers(settings, server, address, progress, topics, groups, consumers, statistics),
        ProgressHandlers(address, progress, topics, groups, consumers, statistics, context.clock),
        QueueLockHandlers(services.locks, topics, groups),
    )


def _of_clients(context: StartContext, recovered: Recovered, services: Services) -> tuple[object, ...]:
    settings, clock = context.settings, context.clock
    store, topics, groups = recovered.store, recovered.topics, recovered.groups
    server, consumers, relay = services.server, services.consumers, services.relay
    rights = RecordRights(server)
    return (
        ClientHandlers(settings, topics, groups, consumers, services.producers, server, clock),
        IntrospectionHandlers(context.config.name, store, topics, groups, consumers, relay, rights),
        relay,
        MessageHandlers(store, consumers, rights),
        TransactionHandlers(services.transactions, store, rights),
        TimerHandlers(services.due, services.timer_counts),
        ReplyHandlers(settings, topics, services.replies, server, context.addresses.numeric(), clock),
    )


def _of_replicas(
    context: StartContext, recovered: Recovered, services: Services, replicas: Replicas
) -> tuple[object, ...]:
    delay_file = recovered.delay_file
    return (
        ReplicaHandlers(
            recovered.offsets,
            recovered.offset_file,
            delay_file,
            (lambda: delay_file.offsets) if context.is_slave else services.due.delivered,
            recovered.timer_file,
            replicas.status,
        ),
        LeadershipHandlers(context.config, replicas.stream, replicas.succession),
        MemberHandlers(
            recovered.role,
            context.master,
            replicas.members,
            replicas.acting,
            context.identity,
            recovered.log_end,
            replicas.stream,
            recovered.access,
        ),
    )
