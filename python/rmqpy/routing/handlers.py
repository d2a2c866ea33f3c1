"""Request handlers of a name server, one class per family; other modules have the tables."""

import re
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from rmqpy.clock import Clock
from rmqpy.config.listeners import Member
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.protocol.codes import VERSION_STRICT_JSON, ResponseCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.order_topics import ORDER_TOPICS
from rmqpy.protocol.requests.kv import (
    DeleteKv,
    GetKv,
    GetKvList,
    GetNameServerConfig,
    KvFound,
    PutKv,
    UpdateNameServerConfig,
)
from rmqpy.protocol.requests.registration import (
    BrokerHeartbeat,
    HeartbeatTaken,
    KvTable,
    QueryDataVersion,
    RegisterBroker,
    Registered,
    UnregisterBroker,
    VersionCompared,
    checksum,
    unpack,
)
from rmqpy.protocol.requests.routes import (
    AddWritePermission,
    BrokerMemberGroup,
    BrokerMembers,
    ClusterInfo,
    DeleteTopic,
    GetAllTopics,
    GetBrokerMembers,
    GetClusterInfo,
    GetRoute,
    GetSystemTopics,
    GetTopicsByCluster,
    GetUnitSubscribedCommonTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    RegisterTopic,
    RouteFound,
    TopicList,
    WipeWritePermission,
    WritePermissionAdded,
    WritePermissionWiped,
)
from rmqpy.protocol.topics import ROUTE_QUEUES_MAX, TopicFlag, TopicTable
from rmqpy.remoting.configuration import Configuration
from rmqpy.remoting.large_bodies import is_large, read_aside
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, handles
from rmqpy.routing.brokers import (
    TEXT_CHARS_MAX,
    BrokerInfo,
    BrokerKey,
    MasterAddresses,
    SingleTopicTooEarly,
)
from rmqpy.routing.kv import KeyValues, KvTableFullError
from rmqpy.routing.route_filter import in_zone, seen_by
from rmqpy.routing.routes import Routes
from rmqpy.routing.topic_queues import BrokerTopics, RoutesFullError
from rmqpy.routing.unregistration import BatchUnregistration

#: Word for word the text that users search for when they find it in a log.
_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class RegistrationHandlers:
    """Registrations, heartbeats and unregistrations of brokers."""

    def __init__(
        self, routes: Routes, values: KeyValues, configuration: Configuration[NameServerConfig]
    ) -> None:
        self._routes = routes
        self._leaving = BatchUnregistration(routes)
        self._values = values
        self._configuration = configuration

    @handles(RegisterBroker)
    def register(self, ask: RegisterBroker, context: RequestContext) -> Registered | Awaitable[Registered]:
        self._leaving.settle()
        if ask.body_crc32 not in (0, checksum(ask.body)):
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        broker = BrokerInfo(
            cluster=ask.cluster_name,
            name=ask.broker_name,
            broker_id=ask.broker_id,
            address=ask.broker_addr,
            replica_address=ask.ha_server_addr,
            connection=context.connection,
            may_act_for_master=ask.enable_acting_master,
            timeout_ms=ask.heartbeat_timeout_millis,
            zone=ask.zone_name,
        )
        if not broker.is_bounded:
            remark = f"a name or address has more than {TEXT_CHARS_MAX} characters"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        fingerprint = blake2b(ask.body, digest_size=16).digest()
        if (master := self._routes.renew(broker, fingerprint)) is not None:
            return self._registered(master)
        if is_large(ask.body):
            return self._register_aside(broker, ask, context.version, fingerprint)
        return self._register(broker, *_read(ask, context.version), fingerprint)

    async def _register_aside(
        self, broker: BrokerInfo, ask: RegisterBroker, version: int, fingerprint: bytes
    ) -> Registered:
        table, topics = await read_aside(_read, ask, version)
        # Brokers that have left already must not remove this one.
        self._leaving.settle()
        return self._register(broker, table, topics, fingerprint)

    def _register(
        self, broker: BrokerInfo, table: TopicTable, topics: BrokerTopics, fingerprint: bytes
    ) -> Registered:
        try:
            master = self._routes.register(broker, table, fingerprint, topics)
        except SingleTopicTooEarly:
            raise Refused(ResponseCode.SYSTEM_ERROR, "register broker failed") from None
        except RoutesFullError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return self._registered(master)

    def _registered(self, master: MasterAddresses) -> Registered:
        order_topics = (
            self._values.namespace(ORDER_TOPICS)
            if self._configuration.current.order_topics_to_brokers
            else None
        )
        return Registered(
            master_addr=master.master_address,
            ha_server_addr=master.replica_address,
            body=None if order_topics is None else KvTable(table=dict(order_topics)),
        )

    @handles(UnregisterBroker)
    def unregister(self, ask: UnregisterBroker) -> None:
        self._leaving.unregistered(BrokerKey(ask.cluster_name, ask.broker_name, ask.broker_addr))

    @handles(BrokerHeartbeat)
    def heartbeat(self, ask: BrokerHeartbeat) -> HeartbeatTaken:
        self._routes.heartbeat(BrokerKey(ask.cluster_name, ask.broker_name, ask.broker_addr))
        return HeartbeatTaken()

    @handles(QueryDataVersion)
    def compare_version(self, ask: QueryDataVersion) -> VersionCompared:
        broker = BrokerKey(ask.cluster_name, ask.broker_name, ask.broker_addr)
        self._routes.heartbeat(broker)
        stored = self._routes.data_version(broker)
        return VersionCompared(changed=stored != ask.body, body=stored)

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self._leaving.disconnected(event.connection)


class RouteHandlers:
    """Routes for clients."""

    def __init__(
        self, routes: Routes, values: KeyValues, configuration: Configuration[NameServerConfig], clock: Clock
    ) -> None:
        self._routes = routes
        self._values = values
        self._configuration = configuration
        self._clock = clock
        self._began = clock.elapsed()

    @handles(GetRoute)
    def route(self, ask: GetRoute, context: RequestContext) -> RouteFound:
        config = self._configuration.current
        if config.waits_for_brokers and self._clock.elapsed() < self._began + config.wait_seconds:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        order = self._values.get(ORDER_TOPICS, ask.topic) if config.order_topics_to_clients else None
        route = self._routes.route(ask.topic, order)
        if route is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, _NO_ROUTE.format(ask.topic))
        if ask.zone_mode and ask.zone_name:
            route = in_zone(route, ask.zone_name)
        if (listener := config.listeners.name_of(context.local)) is not None:
            brokers = [seen_by(listener, group, config.listeners) for group in route.broker_datas]
            route = replace(route, broker_datas=brokers)
        is_strict = bool(ask.accept_standard_json_only) or context.version >= VERSION_STRICT_JSON
        return RouteFound(body=route, is_strict=is_strict)

    @handles(GetClusterInfo)
    def cluster_info(self, ask: GetClusterInfo, context: RequestContext) -> ClusterInfo:
        info, listeners = self._routes.cluster_info(), self._configuration.current.listeners
        if (listener := listeners.name_of(context.local)) is None:
            return info
        groups = info.broker_addr_table.items()
        return replace(
            info,
            broker_addr_table={name: seen_by(listener, group, listeners) for name, group in groups},
            gone_brokers=[
                replace(
                    each,
                    broker_addr=listeners.seen(
                        listener, each.broker_addr, Member(each.cluster, each.broker_name, each.broker_id)
                    ),
                )
                for each in info.gone_brokers or ()
            ]
            or None,
        )

    @handles(GetBrokerMembers)
    def members(self, ask: GetBrokerMembers, context: RequestContext) -> BrokerMemberGroup:
        listeners = self._configuration.current.listeners
        listener = listeners.name_of(context.local)
        addresses = {
            broker_id: listeners.seen(listener, address, Member(ask.cluster_name, ask.broker_name, broker_id))
            for broker_id, address in self._routes.members(ask.cluster_name, ask.broker_name).items()
        }
        members = BrokerMembers(cluster=ask.cluster_name, broker_name=ask.broker_name, broker_addrs=addresses)
        return BrokerMemberGroup(broker_member_group=members)


class TopicHandlers:
    """Lists of topics for tools, and changes of topics."""

    def __init__(self, routes: Routes, configuration: Configuration[NameServerConfig]) -> None:
        self._routes = routes
        self._configuration = configuration
        #: The encoded list of all topics, and the generation of its table.
        self._all: tuple[int, bytes] | None = None

    @handles(GetAllTopics)
    def all_topics(self, ask: GetAllTopics) -> bytes:
        if not self._configuration.current.lists_all_topics:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        queues = self._routes.queues
        if self._all is None or self._all[0] != queues.generation:
            # Encoding 20,000 topics takes milliseconds, and repeated requests would delay others.
            self._all = queues.generation, encode(_topics(queues.topics())).body or b""
        return self._all[1]

    @handles(GetTopicsByCluster)
    def topics_of_cluster(self, ask: GetTopicsByCluster) -> TopicList:
        self._expect_lists()
        return _topics(self._routes.topics_of_cluster(ask.cluster))

    @handles(GetSystemTopics)
    def system_topics(self, ask: GetSystemTopics) -> TopicList:
        info = self._routes.cluster_info()
        names = [name for cluster, brokers in info.cluster_addr_table.items() for name in (cluster, *brokers)]
        addresses = [
            where for group in info.broker_addr_table.values() for where in group.broker_addrs.values()
        ]
        return TopicList(topic_list=names, broker_addr=addresses[0] if addresses else None)

    @handles(GetUnitTopics)
    def unit_topics(self, ask: GetUnitTopics) -> TopicList:
        self._expect_lists()
        return _topics(self._routes.queues.topics_where(lambda flags: bool(flags & TopicFlag.UNIT)))

    @handles(GetUnitSubscribedTopics)
    def unit_subscribed_topics(self, ask: GetUnitSubscribedTopics) -> TopicList:
        self._expect_lists()
        return _topics(
            self._routes.queues.topics_where(lambda flags: bool(flags & TopicFlag.UNIT_SUBSCRIPTION))
        )

    @handles(GetUnitSubscribedCommonTopics)
    def unit_subscribed_common_topics(self, ask: GetUnitSubscribedCommonTopics) -> TopicList:
        self._expect_lists()
        both = TopicFlag.UNIT | TopicFlag.UNIT_SUBSCRIPTION
        return _topics(
            self._routes.queues.topics_where(lambda flags: flags & both == TopicFlag.UNIT_SUBSCRIPTION)
        )

    @handles(RegisterTopic)
    def register_topic(self, ask: RegisterTopic) -> None:
        try:
            self._routes.add_queues(ask.topic, ask.body.queue_datas)
        except RoutesFullError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    @handles(DeleteTopic)
    def delete_topic(self, ask: DeleteTopic) -> None:
        self._routes.delete_topic(ask.topic, ask.cluster_name or None)

    @handles(WipeWritePermission)
    def wipe_write_permission(self, ask: WipeWritePermission) -> WritePermissionWiped:
        return WritePermissionWiped(
            wipe_topic_count=self._routes.queues.wipe_write_permission(ask.broker_name)
        )

    @handles(AddWritePermission)
    def add_write_permission(self, ask: AddWritePermission) -> WritePermissionAdded:
        return WritePermissionAdded(add_topic_count=self._routes.queues.add_write_permission(ask.broker_name))

    def _expect_lists(self) -> None:
        if not self._configuration.current.lists_topics:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")


class KvHandlers:
    """Reads and changes of the key-value configuration."""

    def __init__(self, values: KeyValues) -> None:
        self._values = values

    @handles(PutKv)
    async def put(self, ask: PutKv) -> None:
        if ask.namespace == ORDER_TOPICS:
            _check_order(ask.key, ask.value)
        try:
            await self._values.put(ask.namespace, ask.key, ask.value)
        except KvTableFullError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    @handles(GetKv)
    def get(self, ask: GetKv) -> KvFound:
        value = self._values.get(ask.namespace, ask.key)
        if value is None:
            remark = f"No config item, Namespace: {ask.namespace} Key: {ask.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark, KvFound())
        return KvFound(value=value)

    @handles(DeleteKv)
    async def delete(self, ask: DeleteKv) -> None:
        await self._values.delete(ask.namespace, ask.key)

    @handles(GetKvList)
    def list_namespace(self, ask: GetKvList) -> KvTable:
        found: Mapping[str, str] | None = self._values.namespace(ask.namespace)
        if found is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {ask.namespace}")
        return KvTable(table=dict(found))


class ConfigurationHandlers:
    """Reads and changes of the name server's settings."""

    def __init__(self, configuration: Configuration[NameServerConfig]) -> None:
        self._configuration = configuration

    @handles(GetNameServerConfig)
    def get(self, ask: GetNameServerConfig) -> str:
        return self._configuration.text()

    @handles(UpdateNameServerConfig)
    async def update(self, ask: UpdateNameServerConfig) -> None:
        await self._configuration.change(ask.body)


def _read(ask: RegisterBroker, version: int) -> tuple[TopicTable, BrokerTopics]:
    """Parse a registration. Pure; any thread."""
    table = unpack(ask, version).topic_config_serialize_wrapper
    return table, BrokerTopics.read(ask.broker_name, table)


def _check_order(topic: str, configured: str) -> None:
    """Raises `Refused` for an order configuration with more queues than clients can create."""
    queues = sum(int(count) for count in re.findall(r":\s*(\d{1,9})", configured))
    if queues > ROUTE_QUEUES_MAX or re.search(r":\s*\d{10}", configured):
        remark = f"the order configuration of {topic} has more than {ROUTE_QUEUES_MAX} queues"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)


def _topics(names: list[str]) -> TopicList:
    return TopicList(topic_list=names)
