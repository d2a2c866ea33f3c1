"""Consumer progress: in time, over all of a broker, copied to another group."""

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
    #: Age of the next message to consume; 0 where there is none.
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
    """Let one group go on where another stands, in one topic or in all."""

    src_group: Resource
    dest_group: Resource
    topic: Resource | None = None
    offline: bool | None = None


@record
class GroupTotal:
    """What waits for one group, all its queues together, and how it is set."""

    lag: int
    #: Those it has offsets in, but for that of its retries.
    topics: list[Resource]
    retry_max: int
    consume_enable: bool


@record
class DeadLetterTotal:
    """What one group has given up, all queues together."""

    messages: int
    last_timestamp: int


@record
class BrokerConsumeStats:
    """The progress of every group at a broker, and the sum of what they are behind."""

    broker_addr: str
    consume_stats_list: list[dict[Resource, list[ConsumeStats]]]
    total_diff: int
    total_inflight_diff: int
    #: Ours, where they were asked for; nothing else is told then.
    group_totals: dict[Resource, GroupTotal] | None = None
    dead_letter_totals: dict[Resource, DeadLetterTotal] | None = None


@request(RequestCode.GET_BROKER_CONSUME_STATS, needs=cluster(Action.GET))
class GetBrokerConsumeStats(Request[BrokerConsumeStats]):
    """The progress of every group; of ordered topics only, or of all."""

    is_order: bool = False
    #: Ours: in place of every queue the totals of each group, or of the dead letters of each.
    wants_group_totals: bool = wire("rmqpyGroupTotals", default=False)
    wants_dead_letter_totals: bool = wire("rmqpyDeadLetterTotals", default=False)


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
