"""Consumer progress: in time, for all groups of a broker, copied to another group."""

from rmqpy.protocol.access import Action, cluster, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request, wire
from rmqpy.protocol.requests.clients import SubscriptionData
from rmqpy.protocol.requests.offsets import ConsumeStats
from rmqpy.protocol.requests.queues import MessageQueue


@record
class QueueTimeSpan:
    """Times in ms of the oldest and newest message of a queue, and of the one a group has consumed last."""

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    #: Age of the next message to consume; 0 without one.
    delay_time: int


@record
class TimeSpans:
    consume_time_span_set: list[QueueTimeSpan]


@request(RequestCode.QUERY_CONSUME_TIME_SPAN, needs=(group("group", Action.GET), topic("topic", Action.GET)))
class QueryConsumeTimeSpan(Request[TimeSpans]):
    """The lag of a group in a topic, in time."""

    topic: Resource
    group: Resource


@record
class CorrectionOffsets:
    correction_offsets: dict[int, int]


@request(
    RequestCode.QUERY_CORRECTION_OFFSET,
    needs=(topic("topic", Action.GET), group("compare_group", Action.GET, optional=True)),
)
class QueryCorrectionOffset(Request[CorrectionOffsets]):
    """The least offset of each queue over all groups but some, no further than that of one group."""

    topic: Resource
    compare_group: Resource | None = None
    filter_groups: str | None = None


@request(
    RequestCode.CLONE_GROUP_OFFSET,
    needs=(
        group("src_group", Action.UPDATE),
        group("dest_group", Action.UPDATE),
        topic("topic", Action.UPDATE, optional=True),
    ),
)
class CloneGroupOffset(Request[None]):
    """Copy the offsets of one group to another, in one topic or all."""

    src_group: Resource
    dest_group: Resource
    topic: Resource | None = None
    offline: bool | None = None


@record
class GroupTotal:
    """Backlog of one group over all its queues, and its settings."""

    lag: int
    #: Topics with offsets, except its retry topic.
    topics: list[Resource]
    retry_max: int
    consume_enable: bool


@record
class DeadLetterTotal:
    """Dead letters of one group over all queues."""

    messages: int
    last_timestamp: int


@record
class BrokerConsumeStats:
    """The progress of every group on a broker, and the sum of their lags."""

    broker_addr: str
    consume_stats_list: list[dict[Resource, list[ConsumeStats]]]
    total_diff: int
    total_inflight_diff: int
    #: rmqpy only, on request; then nothing else is returned.
    group_totals: dict[Resource, GroupTotal] | None = None
    dead_letter_totals: dict[Resource, DeadLetterTotal] | None = None
    #: Age of the oldest pending message of a group, in ms; 0 without one.
    group_ages: dict[Resource, int] | None = None


@request(RequestCode.GET_BROKER_CONSUME_STATS, needs=cluster(Action.GET))
class GetBrokerConsumeStats(Request[BrokerConsumeStats]):
    """The progress of every group, for ordered topics or all."""

    is_order: bool = False
    #: rmqpy only: instead of every queue the totals of each group, or of its dead letters.
    wants_group_totals: bool = wire("rmqpyGroupTotals", default=False)
    wants_dead_letter_totals: bool = wire("rmqpyDeadLetterTotals", default=False)
    #: Of these groups, separated by line ends, the ages.
    ages_of: str | None = wire("rmqpyAgesOf", default=None)


@record
class GroupSubscription:
    group: Resource
    topic: Resource
    subscription_data: SubscriptionData | None


@request(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, needs=(group("group", Action.GET), topic("topic", Action.GET))
)
class QuerySubscriptionByConsumer(Request[GroupSubscription]):
    """The subscription of a group to a topic."""

    group: Resource
    topic: Resource
