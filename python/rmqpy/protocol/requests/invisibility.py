"""Invisible times of popped messages."""

from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, reply, request


@reply
class InvisibleTimeChanged:
    """The fields of the message's new handle."""

    pop_time: int
    invisible_time: int
    revive_qid: int


@request(
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    needs=(topic("topic", Action.SUB), group("consumer_group", Action.SUB)),
)
class ChangeInvisibleTime(Request[InvisibleTimeChanged]):
    """Hide a popped message for a number of milliseconds from now on; the handle is `extra_info`."""

    consumer_group: Resource
    topic: Resource
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    bname: str | None = None
