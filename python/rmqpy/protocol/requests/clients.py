"""Clients of a broker: heartbeats, members of groups, connections."""

from dataclasses import field
from enum import Enum, auto

from rmqpy.protocol.access import Action, cluster, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, reply, request, wire


class ConsumeType(Enum):
    """Delivery mode of a group. C++ clients send the ordinal, so the order is part of the protocol."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = auto()
    CONSUME_POP = auto()


class MessageModel(Enum):
    """Whether a message goes to one member of a group or to each. The order is part of the protocol."""

    BROADCASTING = 0
    CLUSTERING = auto()
    LITE_SELECTIVE = auto()


class ConsumeFromWhere(Enum):
    """The start of a group without offsets. The order is part of the protocol."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = auto()
    CONSUME_FROM_MIN_OFFSET = auto()
    CONSUME_FROM_MAX_OFFSET = auto()
    CONSUME_FROM_FIRST_OFFSET = auto()
    CONSUME_FROM_TIMESTAMP = auto()


@record
class SubscriptionData:
    """The subscription of a group to one topic. The version grows with each change; its unit is the client's."""

    topic: Resource
    sub_string: str | None = None
    expression_type: str | None = "TAG"
    tags_set: list[str] = field(default_factory=list)
    #: Hashes of the tags. C++ clients fill it with other numbers: never rely on it.
    code_set: list[int] = field(default_factory=list)
    sub_version: int = 0
    class_filter_mode: bool = False


@record
class ConsumerData:
    """One consumer group of a client."""

    group_name: Resource
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@record
class ProducerData:
    group_name: Resource


@record
class HeartbeatData:
    """Everything one client process does on a broker."""

    client_id: str = wire("clientID")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)
    #: Not 0: heartbeat version 2, which omits unchanged subscriptions.
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@reply
class HeartBeatReply:
    """Whether the sender must send its full subscriptions again."""

    is_version_2_known: bool = wire("IS_SUPPORT_HEART_BEAT_V2", default=False)
    is_subscription_changed: bool = wire("IS_SUB_CHANGE", default=False)


@request(
    RequestCode.HEART_BEAT,
    needs=(
        group("body.consumer_data_set[].group_name", Action.SUB),
        topic("body.consumer_data_set[].subscription_data_set[].topic", Action.SUB),
    ),
)
class HeartBeat(Request[HeartBeatReply]):
    """Heartbeat of a client; sent every 30 s and immediately when its groups change."""

    body: HeartbeatData


@request(RequestCode.UNREGISTER_CLIENT, needs=(group("consumer_group", Action.SUB, optional=True),))
class UnregisterClient(Request[None]):
    """A client leaves a group; C++ clients send an empty name for the group they do not mean."""

    client_id: str = wire("clientID")
    producer_group: Resource | None = None
    consumer_group: Resource | None = None


@record
class ConsumerIds:
    consumer_id_list: list[str]


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, needs=(group("consumer_group", Action.SUB, Action.GET),))
class GetConsumerListByGroup(Request[ConsumerIds]):
    """The members of a group; an empty list is an error, since Go would release its queues."""

    consumer_group: Resource


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChanged(Request[None]):
    """Broker to client, one-way: rebalance now."""

    consumer_group: Resource


@record
class ClientConfig:
    """One subscription a client is about to use."""

    client_id: str = ""
    group: Resource = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@request(
    RequestCode.CHECK_CLIENT_CONFIG,
    needs=(
        group("body.group", Action.SUB, optional=True),
        topic("body.subscription_data.topic", Action.SUB, optional=True),
    ),
)
class CheckClientConfig(Request[None]):
    """Whether the broker supports a filter expression; sent when a consumer starts."""

    body: ClientConfig


@record
class Connection:
    client_addr: str
    client_id: str
    language: str
    version: int


@record
class ConsumerConnections:
    """The members of a group and what they registered."""

    connection_set: list[Connection]
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscription_table: dict[Resource, SubscriptionData]


@request(RequestCode.GET_CONSUMER_CONNECTION_LIST, needs=(group("consumer_group", Action.GET),))
class GetConsumerConnectionList(Request[ConsumerConnections]):
    """The members of a consumer group."""

    consumer_group: Resource


@record
class ProducerConnections:
    connection_set: list[Connection]


@request(RequestCode.GET_PRODUCER_CONNECTION_LIST, needs=cluster(Action.GET))
class GetProducerConnectionList(Request[ProducerConnections]):
    """The members of a producer group."""

    producer_group: Resource


@record
class ProducerInfo:
    client_id: str
    language: str
    last_update_timestamp: int
    remote_ip: str = wire("remoteIP")
    version: int


@record
class ProducerTable:
    data: dict[Resource, list[ProducerInfo]]
    #: rmqpy only, on request: connected consumers by group.
    consumers: dict[Resource, list[Connection]] | None = None


@request(RequestCode.GET_ALL_PRODUCER_INFO, needs=cluster(Action.GET))
class GetAllProducerInfo(Request[ProducerTable]):
    """All connected producers."""

    #: rmqpy only: include all connected consumers.
    wants_consumers: bool = wire("rmqpyConsumers", default=False)
