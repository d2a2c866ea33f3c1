"""Replies between clients: sent to the broker, which forwards them to the requester."""

from __future__ import annotations

from typing import Final

from rmqpy.protocol import names
from rmqpy.protocol.access import Action, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, request, wire
from rmqpy.protocol.requests.messages import StoredMessage

#: The property of a request and its reply that identifies it among those of one requester.
CORRELATION_ID: Final = "CORRELATION_ID"
#: The requester's client id.
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
#: The requester's timeout in milliseconds; Go clients send seconds.
TIME_TO_LIVE: Final = "TTL"
#: Property of a reply, with this value.
MESSAGE_TYPE: Final = "MSG_TYPE"
REPLY: Final = "reply"
#: The property with the cluster that brokers add to each message, for stored replies.
CLUSTER: Final = "CLUSTER"
#: When the broker sent the reply to its requester, in milliseconds.
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
#: When the requester received it; set by the requester.
ARRIVE_TIME: Final = "ARRIVE_TIME"

#: The largest body of a reply that is read. `maxMessageSize` limits stored ones.
REPLY_BYTES_MAX: Final = 16 << 20


@request(RequestCode.SEND_REPLY_MESSAGE, body_bytes_max=REPLY_BYTES_MAX, needs=(topic("topic", Action.PUB),))
class SendReplyMessage(Request[StoredMessage]):
    """A reply, for the requester in its properties. Acknowledged once delivered; id `0` if it is not stored."""

    producer_group: Resource
    #: The cluster's topic, in no namespace.
    topic: str
    default_topic: str = names.AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    queue_id: int
    sys_flag: int = 0
    born_timestamp: int
    flag: int = 0
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: int | None = None
    body: bytes


@request(
    RequestCode.SEND_REPLY_MESSAGE_V2, body_bytes_max=REPLY_BYTES_MAX, needs=(topic("topic", Action.PUB),)
)
class SendReplyMessageV2(Request[StoredMessage]):
    """The same with one-letter names, as Java clients send it."""

    producer_group: Resource = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c", default=names.AUTO_CREATE_TOPIC)
    default_topic_queue_nums: int = wire("d", default=4)
    queue_id: int = wire("e")
    sys_flag: int = wire("f", default=0)
    born_timestamp: int = wire("g")
    flag: int = wire("h", default=0)
    properties: str = wire("i", default="")
    reconsume_times: int = wire("j", default=0)
    unit_mode: bool = wire("k", default=False)
    batch: bool = wire("m", default=False)
    max_reconsume_times: int | None = wire("l", default=None)
    body: bytes


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class PushReplyMessage(Request[None]):
    """Broker to requester: the reply to one of its requests, to be acknowledged."""

    producer_group: Resource
    topic: Resource
    default_topic: str = names.AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    #: `ip:port` of the replier and of the broker.
    born_host: str
    store_host: str
    store_timestamp: int
    body: bytes
