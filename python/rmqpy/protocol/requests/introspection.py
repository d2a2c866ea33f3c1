"""Client queries: requests of a broker to members of a group, for itself or an administrator."""

from dataclasses import field
from enum import Enum, auto

from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request, wire
from rmqpy.protocol.requests.clients import SubscriptionData
from rmqpy.protocol.requests.offsets import ResetOffsets
from rmqpy.protocol.requests.queues import MessageQueue


@request(RequestCode.GET_CONSUMER_RUNNING_INFO, needs=(group("consumer_group", Action.GET),))
class GetConsumerRunningInfo(Request[bytes]):
    """A member's running information, which a broker forwards unread; sent to a broker, and by it to the member."""

    consumer_group: Resource
    client_id: str
    jstack_enable: bool | None = None


@record
class ProcessQueueInfo:
    """A member's state of one queue. Unknown offsets are -1, times 0; times are ms."""

    commit_offset: int
    cached_msg_min_offset: int = -1
    cached_msg_max_offset: int = -1
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = wire("cachedMsgSizeInMiB", default=0)
    locked: bool = False
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0
    try_unlock_times: int = 0
    #: Of a transaction a member has begun to consume; only Java counts them.
    transaction_msg_count: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0


@record
class TopicRates:
    """Latencies and rates of one topic on a member, over the last minute: milliseconds and messages a second."""

    consume_rt: float = wire("consumeRT")
    consume_ok_tps: float = wire("consumeOKTPS")
    consume_failed_tps: float = wire("consumeFailedTPS")
    pull_rt: float = wire("pullRT")
    pull_tps: float = wire("pullTPS")
    #: Java: in the last hour; rmqpy: since the consumer began.
    consume_failed_msgs: int = 0


@record
class ConsumerRunningInfo:
    """The running information of a member."""

    properties: dict[str, str]
    subscription_set: list[SubscriptionData]
    mq_table: dict[MessageQueue, ProcessQueueInfo]
    status_table: dict[Resource, TopicRates]
    #: POP queues and user data, which rmqpy does not have. Tools expect them.
    mq_pop_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    #: The stack of each thread, if requested.
    jstack: str | None = None


@request(
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    needs=(group("consumer_group", Action.SUB), topic("topic", Action.SUB, optional=True)),
)
class ConsumeMessageDirectly(Request[bytes]):
    """Let one member consume one message now, even if it was consumed before. The broker adds the message."""

    consumer_group: Resource
    client_id: str | None = None
    msg_id: str | None = None
    topic: Resource | None = None
    broker_name: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    body: bytes = b""


class DirectResult(Enum):
    """Result of a directly consumed message. Go sends the ordinal, so the order is part of the protocol."""

    CR_SUCCESS = 0
    CR_LATER = auto()
    CR_ROLLBACK = auto()
    CR_COMMIT = auto()
    CR_THROW_EXCEPTION = auto()
    CR_RETURN_NULL = auto()


@record
class DirectConsumption:
    """The result with its details."""

    consume_result: DirectResult
    order: bool
    spent_time_mills: int
    remark: str | None = None
    auto_commit: bool = True


@record
class ConsumerStatus:
    """A member's positions in its queues; for administrators, by client id."""

    message_queue_table: dict[MessageQueue, int]
    consumer_table: dict[str, dict[MessageQueue, int]]


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatusFromClient(Request[ConsumerStatus]):
    """Broker to member: query of its positions in this topic."""

    topic: Resource
    group: Resource


@request(
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    needs=(group("group", Action.GET), topic("topic", Action.GET)),
)
class InvokeBrokerToGetConsumerStatus(Request[ConsumerStatus]):
    """The positions of each member of a group in a topic; `client_addr` is a client id, empty for all."""

    topic: Resource
    group: Resource
    client_addr: str | None = None


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetConsumerClientOffset(Request[None]):
    """Broker to member, one-way: stop, and continue from these offsets."""

    topic: Resource
    group: Resource
    timestamp: int
    is_force: bool
    body: ResetOffsets
