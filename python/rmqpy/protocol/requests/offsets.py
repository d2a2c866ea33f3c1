"""Offsets of queues and of groups: limits, times, progress, resets."""

import re
from enum import Enum, auto
from typing import Final

from rmqpy import message
from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, read_json, record, reply, request
from rmqpy.protocol.requests.queues import MessageQueue


class BoundaryType(Enum):
    """The first or the last of several messages with the timestamp."""

    LOWER = 0
    UPPER = auto()


@reply
class OffsetReply:
    offset: int


@request(
    RequestCode.QUERY_CONSUMER_OFFSET,
    body_bytes_max=0,
    needs=(topic("topic", Action.SUB, Action.GET), group("consumer_group", Action.SUB, Action.GET)),
)
class QueryConsumerOffset(Request[OffsetReply]):
    """The position of a group in a queue."""

    consumer_group: Resource
    topic: Resource
    queue_id: int
    set_zero_if_not_found: bool | None = None
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@request(
    RequestCode.UPDATE_CONSUMER_OFFSET,
    body_bytes_max=0,
    needs=(topic("topic", Action.SUB, Action.UPDATE), group("consumer_group", Action.SUB, Action.UPDATE)),
)
class UpdateConsumerOffset(Request[None]):
    """Commit the position of a group in a queue."""

    consumer_group: Resource
    topic: Resource
    queue_id: int
    commit_offset: int
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, needs=(topic("topic", Action.GET),))
class SearchOffsetByTimestamp(Request[OffsetReply]):
    """The message stored at or after a time."""

    topic: Resource
    queue_id: int
    timestamp: int
    boundary_type: BoundaryType | None = None
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@request(RequestCode.GET_MAX_OFFSET, needs=(topic("topic", Action.GET),))
class GetMaxOffset(Request[OffsetReply]):
    """The position after the last readable entry of one queue."""

    topic: Resource
    queue_id: int
    committed: bool | None = None
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@request(RequestCode.GET_MIN_OFFSET, needs=(topic("topic", Action.GET),))
class GetMinOffset(Request[OffsetReply]):
    """The first readable position of one queue."""

    topic: Resource
    queue_id: int
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@reply
class StoreTimeReply:
    """A store timestamp in ms; -1 without a message."""

    timestamp: int


@request(RequestCode.GET_EARLIEST_MSG_STORETIME, needs=(topic("topic", Action.GET),))
class GetEarliestMsgStoreTime(Request[StoreTimeReply]):
    """The store time of the oldest message of a queue."""

    topic: Resource
    queue_id: int
    #: False: the queue is one of the broker itself, not a logical queue.
    lo: bool | None = None
    bname: str | None = None


@record
class TopicOffset:
    """Limits of one queue; 0 for an unknown time."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


@record
class TopicStats:
    """Limits of all queues of a topic on one broker."""

    offset_table: dict[MessageQueue, TopicOffset]
    topic_put_tps: float = 0.0


@request(RequestCode.GET_TOPIC_STATS_INFO, needs=(topic("topic", Action.GET),))
class GetTopicStatsInfo(Request[TopicStats]):
    """Limits of all queues of a topic."""

    topic: Resource


#: A queue and its limits, as written by Java and rmqpy.
_LIMITS: Final = re.compile(
    rb'"queueId":(\d+),"topic":"[^"\\]*"\}:\{"lastUpdateTimestamp":-?\d+,"maxOffset":(\d+),"minOffset":(\d+)\}'
)


def queue_limits(body: bytes) -> dict[int, tuple[int, int]]:
    """Parse the reply to `GetTopicStatsInfo` into the first offset of each queue and the one after its last message.
    For frequent callers: ten thousand queues take 10 ms, as records a quarter of a second. Raises `DecodeError`."""
    found = _LIMITS.findall(body)
    if found and len(found) == body.count(b'"queueId"'):
        return {int(queue_id): (int(first), int(end)) for queue_id, end, first in found}
    table = read_json(TopicStats, body).offset_table
    return {queue.queue_id: (offset.min_offset, offset.max_offset) for queue, offset in table.items()}


@record
class ConsumeOffset:
    """The position of a group in one queue: `pull_offset` is fetched, `consumer_offset` committed."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0


@record
class ConsumeStats:
    """The positions of a group in all queues it consumes."""

    offset_table: dict[MessageQueue, ConsumeOffset]
    consume_tps: float = 0.0


@request(
    RequestCode.GET_CONSUME_STATS,
    needs=(
        group("consumer_group", Action.GET),
        topic("topic", Action.GET, optional=True),
        topic("topic_list", Action.GET, optional=True, separator=";"),
    ),
)
class GetConsumeStats(Request[ConsumeStats]):
    """The progress of a group: in one topic, in a list separated by semicolons, or in all topics with offsets."""

    consumer_group: Resource
    topic: Resource | None = None
    topic_list: str | None = None


@record
class GroupNames:
    group_list: list[Resource]


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, needs=(topic("topic", Action.GET),))
class QueryTopicConsumeByWho(Request[GroupNames]):
    """The groups that subscribe to a topic or have offsets on it."""

    topic: Resource


@record
class GroupTopics:
    topic_list: list[Resource]
    broker_addr: str | None = None


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER, needs=(group("group", Action.GET),))
class QueryTopicsByConsumer(Request[GroupTopics]):
    """The topics in which a group has offsets."""

    group: Resource


@record
class ResetOffsets:
    """The offsets to continue from. Files of local progress have the same form."""

    offset_table: dict[MessageQueue, int]

    def by_queue(self) -> dict[message.MessageQueue, int]:
        """The same with queues as users have them."""
        return {named.queue: offset for named, offset in self.offset_table.items()}


@request(
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    needs=(group("group", Action.UPDATE), topic("topic", Action.UPDATE)),
)
class InvokeBrokerToResetOffset(Request[ResetOffsets]):
    """Move a group: to an offset of one queue, or to a time (-1: the end) of one or, with queue -1, of all."""

    group: Resource
    topic: Resource
    timestamp: int
    is_force: bool | None = None
    queue_id: int = -1
    offset: int | None = None
