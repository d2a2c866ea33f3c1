"""Send-back: failed messages go back to the broker, to be delivered again later, or to the dead letters.

Owns the three ways a failed message can take. Invariant: `send_back` returns when some broker has the message, so
that a message is never finished here before it is safe there. For the event loop its caller belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.push.consume_result import BY_POLICY, DELAYS_S
from rmqpy.message import ReceivedMessage
from rmqpy.protocol import names
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack, SendMessage
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: The level of the first retry: 10 s. Each further one waits a level longer.
FIRST_RETRY_LEVEL: Final = 3
#: Between attempts when no broker takes it.
PAUSE_S: Final = 5.0
TIMEOUT_S: Final = 5.0
PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

#: Properties of the copy a broker made of a message, which are wrong for another copy.
_OF_THE_COPY: Final = frozenset(
    {"TRAN_MSG", "DELAY", "REAL_TOPIC", "REAL_QID", "MIN_OFFSET", "MAX_OFFSET", "WAIT"}
)


class SendBack:
    """Failed messages of one group."""

    def __init__(
        self, cluster: ClusterConnection, caller: Caller, group: str, retries_max: int | None
    ) -> None:
        """`retries_max`: deliveries after the first; `None` leaves it to the group's configuration."""
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._retries_max = retries_max

    async def send_back(self, message: ReceivedMessage, level: int = BY_POLICY) -> None:
        """Until some broker has taken the message back, however long that takes."""
        while True:
            try:
                await self._return(message, level)
                return
            except errors.RocketMQError as error:
                log.info("message %s could not be sent back: %s", message.message_id, error)
            try:
                await self._send_again(message, level or FIRST_RETRY_LEVEL + message.delivery_attempt - 1)
                return
            except errors.RocketMQError as error:
                log.warning(
                    "message %s could neither be sent back nor sent again, which is repeated: %s",
                    message.message_id,
                    error,
                )
            await asyncio.sleep(PAUSE_S)

    async def bury(self, message: ReceivedMessage) -> None:
        """To the dead letters, until some broker has it."""
        while True:
            try:
                await self._return(message, -1)
                return
            except errors.RocketMQError as error:
                log.warning("message %s is no dead letter yet: %s", message.message_id, error)
            await asyncio.sleep(PAUSE_S)

    async def _return(self, message: ReceivedMessage, level: int) -> None:
        """The broker that has the message makes the copy."""
        queue = message.queue
        ask = ConsumerSendMessageBack(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=self._retries_max,
            bname=queue.broker,
        )
        route = await self._cluster.routes.subscribe(queue.topic, self._caller)
        await self._caller.ask(route.master(queue.broker), ask, timeout=TIMEOUT_S)

    async def _send_again(self, message: ReceivedMessage, level: int) -> None:
        """Any broker takes a copy as a new message of the group's retry topic."""
        topic = names.retry_topic(self._group)
        route = await self._cluster.routes.publish(topic, self._caller)
        queue = random.choice(route.writable)
        kept = {name: value for name, value in message.properties.items() if name not in _OF_THE_COPY}
        kept["RETRY_TOPIC"] = message.topic
        kept.setdefault("ORIGIN_MESSAGE_ID", message.message_id)
        kept["DELAY"] = str(min(level, len(DELAYS_S)))
        ask = SendMessage(
            producer_group=PRODUCER_GROUP,
            topic=topic,
            queue_id=queue.queue_id,
            born_timestamp=round(message.born_at.timestamp() * 1000),
            flag=message.flag,
            properties="".join(f"{name}\x01{value}\x02" for name, value in kept.items()),
            reconsume_times=message.delivery_attempt,
            max_reconsume_times=self._retries_max,
            body=message.body,
        )
        await self._caller.ask(route.master(queue.broker), ask, timeout=TIMEOUT_S)
