"""Subscription groups: settings shared by the consumers of a group."""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, reply, request
from rmqpy.protocol.topics import DataVersion


@record
class CustomizedRetry:
    """Waiting times before each attempt, in ms; the last one repeats."""

    next: list[int]


@record
class ExponentialRetry:
    """Waiting times that grow by a factor, in ms."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


@record
class GroupRetryPolicy:
    """Delays before POP and gRPC consumers get a message again: CUSTOMIZED or EXPONENTIAL."""

    type: str = "CUSTOMIZED"
    customized_retry_policy: CustomizedRetry | None = None
    exponential_retry_policy: ExponentialRetry | None = None


@record
class SimpleSubscription:
    topic: Resource
    expression_type: str = "TAG"
    expression: str = "*"
    version: int = 0


@record
class SubscriptionGroup:
    """The configuration of one consumer group, with the names and defaults of `subscriptionGroup.json`."""

    group_name: Resource
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy | None = GroupRetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscription] | None = None
    #: A request for a change puts a sign before the names: `+key`, `-key`.
    attributes: dict[str, str] = field(default_factory=dict)


@record
class GroupTable:
    """All groups: the body of an answer and the content of `subscriptionGroup.json`."""

    data_version: DataVersion
    subscription_group_table: dict[Resource, SubscriptionGroup]
    #: Group to topic to bits; bit 2 forbids reading.
    forbidden_table: dict[Resource, dict[Resource, int]] = field(default_factory=dict)


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, needs=cluster(Action.UPDATE))
class UpdateAndCreateSubscriptionGroup(Request[None]):
    """Create or update a group."""

    body: SubscriptionGroup


@record
class SubscriptionGroupList:
    group_config_list: list[SubscriptionGroup]


@request(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body_bytes_max=4 << 20, needs=cluster(Action.UPDATE)
)
class UpdateAndCreateSubscriptionGroupList(Request[None]):
    """The same for several groups."""

    body: SubscriptionGroupList


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP, needs=(group("group_name", Action.DELETE),))
class DeleteSubscriptionGroup(Request[None]):
    """Delete a group, optionally with its offsets, but not its retry and DLQ topics."""

    group_name: Resource
    clean_offset: bool = False


@reply
class AllSubscriptionGroups:
    total_group_num: int | None = None
    #: Whether `wait_millis` is supported: by rmqpy's brokers.
    can_wait: bool | None = None
    body: GroupTable


@request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, needs=cluster(Action.GET))
class GetAllSubscriptionGroupConfig(Request[AllSubscriptionGroups]):
    """All groups; with header fields one page, from the start again if the version is outdated."""

    group_seq: int | None = None
    max_group_num: int | None = None
    data_version: str | None = None
    #: How long the reply may wait for a version other than this one.
    wait_millis: int | None = None
    #: The id that a controller gave to the waiting slave.
    slave_id: int | None = None


@request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, needs=(group("group", Action.GET),))
class GetSubscriptionGroupConfig(Request[SubscriptionGroup]):
    """One group, created if groups are created on first use."""

    group: Resource


@record
class GroupForbidden:
    """Whether a group may read a topic."""

    group: Resource
    topic: Resource
    readable: bool


@request(
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    needs=(group("group", Action.UPDATE), topic("topic", Action.UPDATE)),
)
class UpdateAndGetGroupForbidden(Request[GroupForbidden]):
    """Set, or only query, whether a group may read a topic."""

    group: Resource
    topic: Resource
    readable: bool | None = None
