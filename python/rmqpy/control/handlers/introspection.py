"""Client queries: requests of administrators to the members of a group, through the broker. On the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass

from rmqpy._native import Store
from rmqpy.control.access.records import RecordRights
from rmqpy.control.clients.registry import ConnectedClient, Consumers
from rmqpy.control.clients.relay import Relay
from rmqpy.control.groups.table import Groups
from rmqpy.control.topics.table import Topics
from rmqpy.protocol.access import Action
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    ConsumerStatus,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    InvokeBrokerToGetConsumerStatus,
)
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.remoting.server import Refused, RequestContext, handles

#: Timeout for one member's positions, so that a slow member does not delay the others.
_STATUS_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class IntrospectionHandlers:
    """Queries that are forwarded to a client."""

    _broker_name: str
    _store: Store
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _relay: Relay
    _rights: RecordRights

    @handles(GetConsumerRunningInfo)
    async def running_info(self, ask: GetConsumerRunningInfo) -> bytes:
        member = self._member(ask.consumer_group, ask.client_id)
        return await self._relay.ask(member.connection, ask)

    @handles(ConsumeMessageDirectly)
    async def consume(self, ask: ConsumeMessageDirectly, context: RequestContext) -> bytes:
        member = self._member(ask.consumer_group, ask.client_id)
        record = await asyncio.to_thread(self._record, ask.msg_id or "")
        self._rights.check(record, Action.SUB, ask.code, context)
        topic, group = self._topics.get(ask.topic or ""), self._groups.get(ask.consumer_group)
        complete = dataclasses.replace(
            ask,
            client_id=member.client_id,
            broker_name=self._broker_name,
            topic_sys_flag=topic.topic_sys_flag if topic else None,
            group_sys_flag=group.group_sys_flag if group else None,
            body=record,
        )
        return await self._relay.ask(member.connection, complete)

    @handles(InvokeBrokerToGetConsumerStatus)
    async def status(self, ask: InvokeBrokerToGetConsumerStatus) -> ConsumerStatus:
        wanted = ask.client_addr
        members = [self._member(ask.group, wanted)] if wanted else self._members(ask.group)
        answers = await asyncio.gather(*(self._stands(member, ask.topic, ask.group) for member in members))
        table = {member.client_id: offsets for member, offsets in zip(members, answers, strict=True)}
        return ConsumerStatus(message_queue_table={}, consumer_table=table)

    async def _stands(self, member: ConnectedClient, topic: str, group: str) -> dict[MessageQueue, int]:
        ask = GetConsumerStatusFromClient(topic=topic, group=group)
        answer = await self._relay.ask(member.connection, ask, seconds=_STATUS_SECONDS)
        return answer.message_queue_table

    def _members(self, group_name: str) -> list[ConnectedClient]:
        group = self._consumers.groups.get(group_name)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group_name}")
        return list(group.members.values())

    def _member(self, group_name: str, client_id: str | None) -> ConnectedClient:
        for member in self._members(group_name):
            if not client_id or member.client_id == client_id:
                return member
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the consumer <{group_name}> <{client_id}> not online")

    def _record(self, message_id: str) -> bytes:
        # An offset message id ends with the log position, whatever the length of its address.
        try:
            position = int(message_id[-16:], 16) if len(message_id) in (32, 56) else -1
        except ValueError:
            position = -1
        record = self._store.message(position) if 0 <= position < 1 << 63 else None
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id!r} does not exist")
        return record
