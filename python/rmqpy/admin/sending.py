"""Resending of a message, to one group or to its topic."""

import time
from typing import Final

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection
from rmqpy.admin.reading import TOOLS
from rmqpy.protocol import names
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.messages import SendMessage

#: Properties that are dropped: its former destination, those that brokers add, and the cause of the failure.
_LEFT_BEHIND: Final = frozenset(
    {
        *("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
        *("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "MIN_OFFSET", "MAX_OFFSET"),
        names.CONSUME_ERROR,
    }
)
#: The original topic of a message in a retry topic: the one its consumer sees.
ORIGIN: Final = "RETRY_TOPIC"


def properties_of(message: ReceivedMessage) -> dict[str, str]:
    """The properties that are kept wherever a message is sent."""
    return {name: text for name, text in message.properties.items() if name not in _LEFT_BEHIND}


async def send_again(
    cluster: AdminConnection,
    address: str,
    topic: str,
    message: ReceivedMessage,
    properties: dict[str, str],
    body: bytes | None = None,
) -> str:
    """Send the message to any queue of `topic` on this broker, with an optional new `body`, and attempts starting over.
    Returns the broker's id."""
    ask = SendMessage(
        producer_group=TOOLS,
        topic=topic,
        queue_id=-1,
        born_timestamp=round(time.time() * 1_000),
        flag=message.flag,
        properties=encode(properties),
        body=message.body if body is None else body,
    )
    return (await cluster.ask(address, ask)).msg_id
