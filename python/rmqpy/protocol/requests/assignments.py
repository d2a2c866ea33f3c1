"""Assignments: the queues that a broker assigns to a member of a group, and whether the member pulls or pops them."""

from dataclasses import field
from enum import Enum, auto

from rmqpy.protocol.access import Action, cluster, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, off_wire, record, request
from rmqpy.protocol.requests.clients import MessageModel
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.topics import DataVersion


class RequestMode(Enum):
    """How the members of a group request messages."""

    PULL = 0
    POP = auto()


@record
class MessageRequestMode:
    """The mode of one group for one topic. With POP, each member shares its queues with `pop_share_queue_num` others;
    0 or less: all members share all queues."""

    consumer_group: Resource
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0
    topic: Resource


@record
class MessageRequestModes:
    """Topic → group → mode. The file has no version, and neither has the answer."""

    message_request_mode_map: dict[Resource, dict[Resource, MessageRequestMode]] = field(default_factory=dict)
    data_version: DataVersion = off_wire(default=DataVersion())


@request(
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    needs=(group("body.consumer_group", Action.UPDATE), topic("body.topic", Action.UPDATE)),
)
class SetMessageRequestMode(Request[None]):
    """Set the mode of a group for a topic. Members learn of it with their next `QueryAssignment`."""

    body: MessageRequestMode


@request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, needs=cluster(Action.GET))
class GetAllMessageRequestMode(Request[MessageRequestModes]):
    """Every mode that was set."""


@request(RequestCode.POP_ROLLBACK, needs=cluster(Action.UPDATE))
class PopRollback(Request[None]):
    """Write records of popped messages that are kept elsewhere to the revive topic."""


@record
class AssignmentQuery:
    """A member that asks for its queues of a topic."""

    topic: Resource
    consumer_group: Resource
    client_id: str
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


@record
class MessageQueueAssignment:
    """An assigned queue; the id -1 stands for any queue of the broker."""

    message_queue: MessageQueue
    mode: RequestMode = RequestMode.PULL


@record
class MessageQueueAssignments:
    """The queues of a member. Without a list the member keeps its queues; an empty list releases them all."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


@request(
    RequestCode.QUERY_ASSIGNMENT,
    needs=(
        group("body.consumer_group", Action.SUB, Action.GET),
        topic("body.topic", Action.SUB, Action.GET),
    ),
)
class QueryAssignment(Request[MessageQueueAssignments]):
    """The queues of a member, from Java's push consumers with `clientRebalance=false` every 20 s."""

    body: AssignmentQuery
