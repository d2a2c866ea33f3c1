"""What a broker asks the members of a group, on its own or for an administrator."""

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request
from rmqpy.protocol.requests.queues import MessageQueue


@reply
class ClientAnswer:
    """What a client said, which a broker hands on without reading it."""

    body: bytes


@request(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunningInfo(Request[ClientAnswer]):
    """What a member of a group is busy with; to a broker, and from it to the member."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@request(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeMessageDirectly(Request[ClientAnswer]):
    """Let one member consume one message now, whoever consumed it before. The broker adds the message."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    body: bytes = b""


@record
class ConsumerStatus:
    """Where a member stands in its queues; to administrators, for each client id."""

    message_queue_table: dict[MessageQueue, int]
    consumer_table: dict[str, dict[MessageQueue, int]]


@reply
class ConsumerStatusReply:
    """As a body."""

    body: ConsumerStatus


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatusFromClient(Request[ConsumerStatusReply]):
    """Broker to member: where do you stand in this topic?"""

    topic: str
    group: str


@request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
class InvokeBrokerToGetConsumerStatus(Request[ConsumerStatusReply]):
    """Where each member of a group stands in a topic; `client_addr` is a client id, empty for all."""

    topic: str
    group: str
    client_addr: str | None = None


@record
class ClientOffsets:
    """The offsets that a client is to go on from."""

    offset_table: dict[MessageQueue, int]


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetConsumerClientOffset(Request[None]):
    """Broker to member, one-way: stop, go on from here."""

    topic: str
    group: str
    timestamp: int
    is_force: bool
    body: ClientOffsets
