"""Reads from one queue for an operator, without commits and without a group."""

from collections.abc import AsyncIterator
from typing import Final

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection
from rmqpy.admin.topics import QueueState
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls

#: A group for tools that every broker has; nothing is committed for it.
TOOLS: Final = "TOOLS_CONSUMER"
_PULL_MESSAGES: Final = 32


async def read(
    cluster: AdminConnection, topic: str, state: QueueState, begin: int, end: int
) -> AsyncIterator[ReceivedMessage]:
    """Yield the messages of a queue with offsets in [begin, end), as far as its broker has them."""
    queue, address = MessageQueue(topic, state.broker, state.queue_id), cluster.reachable(state.address)
    offset = begin
    while offset < end:
        ext = pulls.request(
            TOOLS,
            queue,
            offset,
            wanted="*",
            messages_max=min(_PULL_MESSAGES, end - offset),
            namespace=cluster.caller.namespace,
        )
        call = await cluster.caller.call(address, pulls.PULL, ext, timeout=cluster.timeout)
        pulled = pulls.read(call, queue, address)
        if pulled.found is pulls.Found.MESSAGES:
            found = pulled.call.messages(queue, begin=begin, end=end, namespace=cluster.caller.namespace)
            for message in found:
                yield message
        elif pulled.found is pulls.Found.NOTHING and pulled.next_offset <= offset:
            return
        offset = max(offset + 1, pulled.next_offset)
