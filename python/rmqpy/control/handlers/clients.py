"""Requests of clients: heartbeats, unregistration, connections. On the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqpy._native import Server, sql_error
from rmqpy.clock import Clock
from rmqpy.control.clients.registry import ClientGroups, ConnectedClient, Consumers, Producers
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import (
    CheckClientConfig,
    Connection,
    ConsumerConnections,
    ConsumerData,
    ConsumerIds,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    HeartBeat,
    HeartbeatData,
    HeartBeatReply,
    ProducerConnections,
    ProducerInfo,
    ProducerTable,
    SubscriptionData,
    UnregisterClient,
)
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, handles

#: The most groups of one connection, and topics of one group.
GROUPS_PER_CLIENT_MAX: Final = 1_000
#: The longest name of a client or producer group. Names need no creation, so the registry must bound them.
NAME_CHARS_MAX: Final = 1_024
SUBSCRIPTIONS_MAX: Final = 1_000
#: The most characters of a group's subscriptions, which the registry keeps: 1,000 topics with long names and some tags.
SUBSCRIPTION_CHARS_MAX: Final = 256 << 10


@dataclass(frozen=True, slots=True, eq=False)
class ClientHandlers:
    """Heartbeats of clients, and queries about them."""

    _config: LiveConfig
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _producers: Producers
    _server: Server
    _clock: Clock

    @handles(HeartBeat)
    async def heartbeat(self, ask: HeartBeat, context: RequestContext) -> HeartBeatReply:
        data = ask.body
        _check_size(data)
        member = ConnectedClient(
            context.connection,
            data.client_id,
            context.address,
            context.language,
            context.version,
            self._clock.wall_ms(),
            context.user,
            context.is_guarded,
        )
        is_version_2 = data.heartbeat_fingerprint != 0
        must_resend = not is_version_2
        for producer in data.producer_data_set:
            self._expect_place(context.connection, self._producers, producer.group_name)
            self._producers.register(member, producer.group_name)
        for consumer in data.consumer_data_set:
            with_subscriptions = not (is_version_2 and data.without_sub)
            if await self._register(member, consumer, with_subscriptions=with_subscriptions) and is_version_2:
                must_resend |= self._consumers.take_fingerprint(
                    consumer.group_name,
                    data.heartbeat_fingerprint,
                    without_subscriptions=data.without_sub,
                )
        return HeartBeatReply(is_version_2_known=True, is_subscription_changed=must_resend)

    async def _register(
        self, member: ConnectedClient, data: ConsumerData, *, with_subscriptions: bool
    ) -> bool:
        """Register a consumer; return False if its group may not exist, which Apache's broker ignores silently."""
        name = data.group_name
        if not self._groups.may_exist(name, self._config.now):
            return False
        self._expect_place(member.connection, self._consumers, name)
        # Register first: if the connection is lost while files are written, its end removes the member again.
        self._consumers.register(member, data, with_subscriptions=with_subscriptions)
        try:
            group = await self._groups.ensure(name, self._config.now)
        except Refused:
            # By a policy. The reason is in the reply to the group's pulls.
            self._consumers.unregister(member.connection, name)
            return False
        if group is None:
            return False
        is_ordered = any(
            topic.order
            for subscription in data.subscription_data_set
            if (topic := self._topics.get(subscription.topic))
        )
        # Registered at the name servers immediately, or retries would stay invisible until the next round.
        await self._topics.ensure_derived(
            names.retry_topic(name), group.retry_queue_nums, is_ordered=is_ordered
        )
        return True

    def _expect_place(self, connection: int, kind: ClientGroups, name: str) -> None:
        """Refuse one group too many: a heartbeat is bounded, but a connection may send many."""
        known = kind.groups_of(connection)
        count = len(self._producers.groups_of(connection)) + len(self._consumers.groups_of(connection))
        if name not in known and count >= GROUPS_PER_CLIENT_MAX:
            remark = f"a connection may be in {GROUPS_PER_CLIENT_MAX} groups, and {name} is one more"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)

    @handles(UnregisterClient)
    def unregister(self, ask: UnregisterClient, context: RequestContext) -> None:
        if ask.producer_group:
            self._producers.unregister(context.connection, ask.producer_group)
        if ask.consumer_group:
            self._consumers.unregister(context.connection, ask.consumer_group)
        # An identical heartbeat of a rejoining client must reach Python.
        self._server.forget_heartbeats()

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        """Remove a closed connection. Go clients never unregister, and others crash."""
        self._producers.drop(event.connection)
        self._consumers.drop(event.connection)

    @handles(GetConsumerListByGroup)
    def members(self, ask: GetConsumerListByGroup) -> ConsumerIds:
        group = self._consumers.groups.get(ask.consumer_group)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {ask.consumer_group}")
        return ConsumerIds(consumer_id_list=group.client_ids)

    @handles(CheckClientConfig)
    def check_config(self, ask: CheckClientConfig) -> None:
        data = ask.body.subscription_data
        match (data.expression_type if data else None) or "TAG":
            case "TAG":
                return
            case "SQL92":
                config = self._config.now
                if not config.serves_sql:
                    remark = "The broker does not support consumer to filter message by SQL92"
                    raise Refused(ResponseCode.SYSTEM_ERROR, remark)
                expression = (data.sub_string if data else None) or ""
                if (wrong := sql_error(expression, strict=config.is_sql_strict)) is not None:
                    raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, wrong)
            case other:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"unknown expression type {other}")

    @handles(GetConsumerConnectionList)
    def consumer_connections(self, ask: GetConsumerConnectionList) -> ConsumerConnections:
        group = self._consumers.groups.get(ask.consumer_group)
        if group is None:
            remark = f"the consumer group[{ask.consumer_group}] not online"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return ConsumerConnections(
            connection_set=[_connection(member) for member in group.members.values()],
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            subscription_table=group.subscriptions,
        )

    @handles(GetProducerConnectionList)
    def producer_connections(self, ask: GetProducerConnectionList) -> ProducerConnections:
        members = self._producers.groups.get(ask.producer_group)
        if members is None:
            remark = f"the producer group[{ask.producer_group}] not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        connections = [_connection(member) for member in members.values()]
        return ProducerConnections(connection_set=connections)

    @handles(GetAllProducerInfo)
    def all_producers(self, ask: GetAllProducerInfo) -> ProducerTable:
        return ProducerTable(
            data={
                group: [_producer(member) for member in members.values()]
                for group, members in self._producers.groups.items()
            },
            consumers={
                name: [_connection(member) for member in group.members.values()]
                for name, group in self._consumers.groups.items()
            }
            if ask.wants_consumers
            else None,
        )


def _check_size(data: HeartbeatData) -> None:
    groups = len(data.consumer_data_set) + len(data.producer_data_set)
    if groups > GROUPS_PER_CLIENT_MAX:
        remark = f"a client may be in {GROUPS_PER_CLIENT_MAX} groups, not in {groups}"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    for name in (data.client_id, *(producer.group_name for producer in data.producer_data_set)):
        if len(name) > NAME_CHARS_MAX:
            remark = f"a name may have {NAME_CHARS_MAX} characters, not {len(name)}: {name[:40]}..."
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    for consumer in data.consumer_data_set:
        if len(consumer.subscription_data_set) > SUBSCRIPTIONS_MAX:
            remark = f"the group {consumer.group_name} may subscribe to {SUBSCRIPTIONS_MAX} topics"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        chars = sum(_chars(subscription) for subscription in consumer.subscription_data_set)
        if chars > SUBSCRIPTION_CHARS_MAX:
            remark = (
                f"the subscriptions of group {consumer.group_name} may have {SUBSCRIPTION_CHARS_MAX} characters, "
                f"not {chars}: topics, expressions and tags together"
            )
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)


def _chars(subscription: SubscriptionData) -> int:
    """Return the number of stored characters of a subscription; a hash counts as ten."""
    tags = sum(map(len, subscription.tags_set)) + len(subscription.tags_set)
    texts = (subscription.topic, subscription.sub_string, subscription.expression_type)
    return tags + 10 * len(subscription.code_set) + sum(len(text) for text in texts if text)


def _connection(member: ConnectedClient) -> Connection:
    return Connection(
        client_addr=member.address,
        client_id=member.client_id,
        language=member.language,
        version=member.version,
    )


def _producer(member: ConnectedClient) -> ProducerInfo:
    return ProducerInfo(
        client_id=member.client_id,
        language=member.language,
        last_update_timestamp=member.seen_ms,
        remote_ip=member.address,
        version=member.version,
    )
