"""Constants and steps of all integrations whose workers pop messages from the topic of a queue."""

from typing import Final

from rmqpy.client.simple.consumer_async import AsyncSimpleConsumer
from rmqpy.config.client import ClientConfig

#: Seconds for which a live worker keeps a message.
EXTEND_S: Final = 30 * 86_400.0
#: The most messages per request.
BATCH_MAX: Final = 32
#: Seconds to wait for a message that may not exist.
GET_S: Final = 0.3


async def purge(topic: str, group: str, config: ClientConfig) -> int:
    """Receive and acknowledge all messages that no worker has received; return their number."""
    count = 0
    async with AsyncSimpleConsumer(group, config, start_from="earliest") as consumer:
        consumer.subscribe(topic)
        while messages := await consumer.receive(BATCH_MAX, wait=GET_S):
            await consumer.ack(*messages)
            count += len(messages)
    return count
