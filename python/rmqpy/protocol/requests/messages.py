"""Single messages: by position in the log, by key."""

from rmqpy.protocol import names
from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, reply, request, wire
from rmqpy.protocol.requests.clients import SubscriptionData


@reply
class QueriedMessages:
    """Raw records, newest first, and the range of the index."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    body: bytes


@request(RequestCode.QUERY_MESSAGE, needs=(topic("topic", Action.SUB, Action.GET),))
class QueryMessage(Request[QueriedMessages]):
    """Messages whose key hash matches; the caller compares the keys."""

    topic: Resource
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    is_unique_key: bool = wire("_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = None


@request(RequestCode.VIEW_MESSAGE_BY_ID, needs=(topic("topic", Action.GET, optional=True),))
class ViewMessageById(Request[bytes]):
    """The message at a position of the log; an offset message id contains address and position."""

    offset: int
    topic: Resource | None = None


@request(RequestCode.CONSUMER_SEND_MSG_BACK, needs=(group("group", Action.SUB),))
class ConsumerSendMessageBack(Request[None]):
    """Deliver a message to this group again: at a delay level, by policy (0), or to the dead letters (below 0)."""

    #: Position in the log of the broker that is asked.
    offset: int
    group: Resource
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: Resource | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    bname: str | None = None


@reply
class StoredMessage:
    """The place of a stored message."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: bool | None = wire("TRACE_ON", default=None)


@request(RequestCode.SEND_MESSAGE, needs=(topic("topic", Action.PUB),))
class SendMessage(Request[StoredMessage]):
    """One message in the long form; producers send it natively, with short names."""

    producer_group: Resource
    topic: Resource
    default_topic: str = names.AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    queue_id: int
    sys_flag: int = 0
    born_timestamp: int
    flag: int = 0
    properties: str
    reconsume_times: int = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: int | None = None
    body: bytes


@reply
class StoredOnce:
    """The place of a message, or of the earlier one with its deduplication key."""

    msg_id: str
    unique_id: str
    queue_id: int
    queue_offset: int
    is_duplicate: bool = False


@request(RequestCode.RMQPY_SEND_ONCE, needs=(topic("topic", Action.PUB),))
class SendOnce(Request[StoredOnce]):
    """A message that is stored unless one with its key was within the window; rmqpy only."""

    producer_group: Resource
    topic: Resource
    queue_id: int
    dedup_key: str
    born_timestamp: int
    flag: int = 0
    properties: str
    body: bytes


@reply
class Recalled:
    """The recalled message."""

    #: The producer's id.
    msg_id: str
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: bool | None = wire("TRACE_ON", default=None)


@request(RequestCode.RECALL_MESSAGE, needs=(topic("topic", Action.PUB),))
class RecallMessage(Request[Recalled]):
    """Recall a timed message by its broker's handle."""

    producer_group: Resource | None = None
    topic: Resource
    recall_handle: str
    bname: str | None = None


@record
class QueueUnit:
    """One entry of a queue: where its record lies in the log, and the hash of its tag."""

    physic_offset: int
    physic_size: int
    tags_code: int
    #: Whether a precomputed filter accepts it; not used by rmqpy.
    eval: bool = False


@record
class QueueUnits:
    """A range of a queue, the queue's limits, and a group's subscription."""

    subscription_data: SubscriptionData | None
    filter_data: str | None
    queue_data: list[QueueUnit]
    max_queue_index: int
    min_queue_index: int


@request(
    RequestCode.QUERY_CONSUME_QUEUE,
    needs=(topic("topic", Action.GET), group("consumer_group", Action.GET, optional=True)),
)
class QueryConsumeQueue(Request[QueueUnits]):
    """Raw entries of one queue, from an offset on."""

    topic: Resource
    queue_id: int
    index: int
    count: int
    consumer_group: Resource | None = None
