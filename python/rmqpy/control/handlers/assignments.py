"""Requests about assignments: queues of members, and modes of groups. Runs on the event loop."""

from __future__ import annotations

from dataclasses import dataclass

from rmqpy.control.clients.assignment import STRATEGIES, popped_queues
from rmqpy.control.clients.cluster_queues import ClusterQueues
from rmqpy.control.clients.registry import Consumers
from rmqpy.control.groups.request_modes import RequestModes
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.message import MessageQueue
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.assignments import (
    AssignmentQuery,
    GetAllMessageRequestMode,
    MessageQueueAssignment,
    MessageQueueAssignments,
    MessageRequestMode,
    MessageRequestModes,
    PopRollback,
    QueryAssignment,
    RequestMode,
    SetMessageRequestMode,
)
from rmqpy.protocol.requests.clients import MessageModel
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused, handles


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentHandlers:
    """Assign queues, and keep the modes of groups."""

    _config: LiveConfig
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _modes: RequestModes
    _queues: ClusterQueues

    @handles(SetMessageRequestMode)
    async def set_mode(self, ask: SetMessageRequestMode) -> None:
        mode = ask.body
        if mode.topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if await self._groups.ensure(mode.consumer_group, self._config.now) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        await self._modes.set(mode)

    @handles(GetAllMessageRequestMode)
    def modes(self, ask: GetAllMessageRequestMode) -> MessageRequestModes:
        return self._modes.content()

    @handles(PopRollback)
    def roll_back(self, ask: PopRollback) -> None:
        """Every popped message is recorded in the revive topic already."""

    @handles(QueryAssignment)
    async def assign(self, ask: QueryAssignment) -> MessageQueueAssignments:
        mode = self._modes.of(ask.body.topic, ask.body.consumer_group) or self._default(ask.body)
        queues = await self._assigned(ask.body, mode)
        if queues is None:
            return MessageQueueAssignments()
        return MessageQueueAssignments(
            message_queue_assignments=[
                MessageQueueAssignment(message_queue=named(queue), mode=mode.mode) for queue in queues
            ]
        )

    def _default(self, query: AssignmentQuery) -> MessageRequestMode:
        config = self._config.now
        # A classic retry topic is always pulled.
        is_popped = config.request_mode == "POP" and not query.topic.startswith(names.RETRY_PREFIX)
        return MessageRequestMode(
            topic=query.topic,
            consumer_group=query.consumer_group,
            mode=RequestMode.POP if is_popped else RequestMode.PULL,
            pop_share_queue_num=config.pop_share_queues if is_popped else 0,
        )

    async def _assigned(self, query: AssignmentQuery, mode: MessageRequestMode) -> list[MessageQueue] | None:
        """The queues of a member; None where there is nothing to decide by."""
        if query.message_model is MessageModel.LITE_SELECTIVE:
            return None
        queues = await self._queues.of(query.topic)
        if queues is None or query.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._config.now.balances_queues:
            return queues
        group, allocate = (
            self._consumers.groups.get(query.consumer_group),
            STRATEGIES.get(query.strategy_name),
        )
        if group is None or allocate is None:
            return None
        members = sorted(group.client_ids)
        if mode.mode is RequestMode.POP:
            return popped_queues(allocate, query.client_id, queues, members, mode.pop_share_queue_num)
        return allocate(query.client_id, queues, members)
