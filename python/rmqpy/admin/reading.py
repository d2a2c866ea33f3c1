"""Reading a piece of one queue for an operator: nothing is committed, and no group has to exist."""

from collections.abc import AsyncIterator
from typing import Final

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection
from rmqpy.admin.topics import QueueState
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls

#: A group that every broker has for tools; nothing is committed for it.
TOOLS: Final = "TOOLS_CONSUMER"
_PULL_MESSAGES: Final = 32


async def read(
    cluster: AdminConnection, topic: str, state: QueueState, begin: int, end: int
) -> AsyncIterator[ReceivedMessage]:
    """The messages of a queue with offsets in [begin, end), as far as its broker holds them."""
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
