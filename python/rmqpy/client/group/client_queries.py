"""Client queries: replies to administrators about positions, running info, or one message to handle.

Owns the form of the replies; the member provides their contents. On the event loop of its listener.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqpy._native import Namespace, __version__
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol import fastjson, namespaces
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.clients import ConsumeType
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    ConsumerRunningInfo,
    ConsumerStatus,
    DirectConsumption,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused, handles

#: The bytes of the queue id in a stored record.
_QUEUE_ID = slice(12, 16)


class QueryableMember(Protocol):
    """A member that answers queries about itself."""

    def positions(self) -> Mapping[MessageQueue, int]:
        """Return its progress in its queues."""

    def running_info(self) -> ConsumerRunningInfo:
        """Return its state and statistics, without thread stacks."""

    async def handle(self, message: ReceivedMessage) -> DirectConsumption:
        """Handle a message out of turn, without commit or retry. Raises `Refused`."""


def member_properties(
    namesrv: Sequence[str], consume_type: ConsumeType, *, began_ms: int, is_ordered: bool, workers: int
) -> dict[str, str]:
    """Return the properties of a member, by the names that Java's tools read."""
    return {
        "PROP_NAMESERVER_ADDR": ";".join(namesrv),
        "PROP_CONSUME_TYPE": consume_type.name,
        "PROP_CONSUMEORDERLY": "true" if is_ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(workers),
        "PROP_CONSUMER_START_TIMESTAMP": str(began_ms),
        "PROP_CLIENT_VERSION": f"rmqpy {__version__}",
    }


class ClientQueryHandlers:
    """The query handlers of one member."""

    def __init__(self, group: str, member: QueryableMember, namespace: Namespace | None) -> None:
        self._group = group
        self._member = member
        self._namespace = namespace

    @handles(GetConsumerStatusFromClient)
    def status(self, ask: GetConsumerStatusFromClient) -> ConsumerStatus:
        self._check(ask.group)
        positions = self._member.positions().items()
        table = {named(queue): offset for queue, offset in positions if queue.topic == ask.topic}
        return ConsumerStatus(message_queue_table=table, consumer_table={})

    @handles(GetConsumerRunningInfo)
    async def running_info(self, ask: GetConsumerRunningInfo) -> bytes:
        self._check(ask.consumer_group)
        info = self._member.running_info()
        if ask.jstack_enable:
            info = dataclasses.replace(info, jstack=await asyncio.to_thread(_stacks))
        # Brokers forward the body unread, so it has no declared reply type.
        return _answer(info if self._namespace is None else namespaces.outward(self._namespace, info))

    @handles(ConsumeMessageDirectly)
    async def consume(self, ask: ConsumeMessageDirectly) -> bytes:
        self._check(ask.consumer_group)
        queue = MessageQueue(ask.topic or "", ask.broker_name or "", int.from_bytes(ask.body[_QUEUE_ID]))
        message = ReceivedMessage(ask.body, None, queue, self._namespace)
        return _answer(await self._member.handle(message))

    def _check(self, group: str) -> None:
        if group != self._group:
            remark = f"The Consumer Group <{group}> not exist in this consumer"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)


def _answer(body: ConsumerRunningInfo | DirectConsumption) -> bytes:
    return fastjson.dumps(json_tree(body)).encode()


def _stacks() -> str:
    """Return the stack of every thread of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"{names.get(ident, 'unknown')} TID: {ident}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
