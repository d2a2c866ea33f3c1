"""Pulls that the native module does not answer: of older segments at other brokers, and from the tiered storage."""

from typing import Final

from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, reply, request


@reply
class Pulled:
    """The offsets of an answer, and the records of one with code 0."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    #: For a logical queue: the number to add to the queue offset of each record.
    offset_delta: int | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    body: bytes = b""


_NEEDS: Final = (topic("topic", Action.SUB), group("consumer_group", Action.SUB))


@request(RequestCode.PULL_MESSAGE, body_bytes_max=0, needs=_NEEDS)
class PullMessage(Request[Pulled]):
    """Read messages of a queue."""

    consumer_group: Resource
    topic: Resource
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int = 0
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    bname: str | None = None
    #: False: the queue and the offset are those of the broker.
    lo: bool | None = None


@request(RequestCode.LITE_PULL_MESSAGE, body_bytes_max=0, needs=_NEEDS)
class LitePullMessage(PullMessage):
    """Likewise, from Java's lite pull consumer."""
