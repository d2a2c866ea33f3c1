"""Lite topics: subscriptions of clients, and queries of administrators."""

from dataclasses import field
from typing import Final

from rmqpy.protocol.access import Action, cluster, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request
from rmqpy.protocol.requests.offsets import TopicOffset

#: Actions of a subscription.
PARTIAL_ADD: Final = "PARTIAL_ADD"
PARTIAL_REMOVE: Final = "PARTIAL_REMOVE"
COMPLETE_ADD: Final = "COMPLETE_ADD"
COMPLETE_REMOVE: Final = "COMPLETE_REMOVE"


@record
class LiteOffset:
    """Where a group begins in added lite topics: POLICY with 0 for its progress, 1 for the first message, 2 for the
    end; OFFSET; TAIL_N messages before its progress; TIMESTAMP."""

    type: str | None = None
    value: int | None = None


@record
class LiteSubscription:
    """A change of the lite topics of one client, as a member of a group that is bound to a topic."""

    action: str | None = None
    client_id: str | None = None
    group: Resource | None = None
    topic: Resource | None = None
    lite_topic_set: list[str] | None = None
    offset_option: LiteOffset | None = None
    version: int = 0


@record
class LiteSubscriptions:
    subscription_set: list[LiteSubscription] | None = None


@request(
    RequestCode.LITE_SUBSCRIPTION_CTL,
    needs=(
        group("body.subscription_set[].group", Action.SUB),
        topic("body.subscription_set[].topic", Action.SUB),
    ),
)
class LiteSubscriptionCtl(Request[None]):
    """Change subscriptions to lite topics, or repeat them; clients repeat all every 30 s."""

    body: LiteSubscriptions | None = None


@request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
class NotifyUnsubscribeLite(Request[None]):
    """To a client: another one has taken a lite topic over."""

    lite_topic: str
    consumer_group: Resource
    client_id: str


@record
class BrokerLiteInfo:
    """Counts of a broker."""

    store_type: str
    max_lmq_num: int
    current_lmq_num: int
    lite_subscription_count: int
    order_info_count: int
    cq_table_size: int
    offset_table_size: int
    #: Messages that clients have not asked for yet, by lite topic and client.
    event_map_size: int
    #: Parent topic to minutes until a lite topic without messages ends.
    topic_meta: dict[Resource, int]
    #: Parent topic to the groups that are bound to it.
    group_meta: dict[Resource, list[Resource]]


@request(RequestCode.GET_BROKER_LITE_INFO, needs=cluster(Action.GET))
class GetBrokerLiteInfo(Request[BrokerLiteInfo]):
    """Counts of lite topics and subscriptions of a broker."""


@record
class ParentTopicInfo:
    """A parent topic."""

    topic: Resource
    ttl: int
    groups: list[Resource]
    lmq_num: int
    lite_topic_count: int


@request(RequestCode.GET_PARENT_TOPIC_INFO, needs=(topic("topic", Action.GET),))
class GetParentTopicInfo(Request[ParentTopicInfo]):
    """A parent topic, its groups and the number of its lite topics."""

    topic: Resource


@record
class LiteSubscriber:
    client_id: str
    group: Resource


@record
class LiteTopicInfo:
    """A lite topic."""

    parent_topic: Resource
    lite_topic: str
    subscriber: list[LiteSubscriber]
    topic_offset: TopicOffset
    #: Whether this broker has it.
    sharding_to_broker: bool


@request(RequestCode.GET_LITE_TOPIC_INFO, needs=(topic("parent_topic", Action.GET),))
class GetLiteTopicInfo(Request[LiteTopicInfo]):
    """Subscribers and offsets of a lite topic."""

    parent_topic: Resource
    lite_topic: str


@record
class LiteClientInfo:
    """A client as a member of a group."""

    parent_topic: Resource
    group: Resource
    client_id: str
    last_access_time: int
    last_consume_time: int
    lite_topic_count: int
    #: Names of queues.
    lite_topic_set: list[str]


@request(
    RequestCode.GET_LITE_CLIENT_INFO, needs=(topic("parent_topic", Action.GET), group("group", Action.GET))
)
class GetLiteClientInfo(Request[LiteClientInfo]):
    """The subscriptions of a client."""

    parent_topic: Resource
    group: Resource
    client_id: str
    max_count: int = 1_000


@record
class LiteOffsets:
    """The end of a lite topic, and the progress of a group."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int


@record
class LiteLag:
    """A lite topic that a group is behind with."""

    lite_topic: str
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = 0


@record
class LiteGroupInfo:
    """The lag of a group: in one lite topic, or in those with the most."""

    group: Resource
    parent_topic: Resource
    lite_topic: str | None = None
    total_lag_count: int
    earliest_unconsumed_timestamp: int
    lite_topic_offset_wrapper: LiteOffsets | None = None
    lag_count_top_k: list[LiteLag] = field(default_factory=list)
    lag_timestamp_top_k: list[LiteLag] = field(default_factory=list)


@request(RequestCode.GET_LITE_GROUP_INFO, needs=(group("group", Action.GET),))
class GetLiteGroupInfo(Request[LiteGroupInfo]):
    """The lag of a group in its lite topics."""

    group: Resource
    lite_topic: str | None = None
    top_k: int = 20


@request(RequestCode.TRIGGER_LITE_DISPATCH, needs=(group("group", Action.UPDATE),))
class TriggerLiteDispatch(Request[None]):
    """Have a client, or all of a group, look at all of its lite topics."""

    group: Resource
    client_id: str | None = None
