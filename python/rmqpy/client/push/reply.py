"""Replies of a consumer: to the requests among its messages, by way of the broker that gave them.

Owns what a handler may return, and the way of a reply. It goes to the broker its request came from, which the requester
is connected to as a rule, or to the next one of the topic's. Nothing is kept here: where no broker delivers a reply,
the requester waits in vain, and may ask again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy.client.compression import compressed
from rmqpy.message import Body, Message, ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.ids import UniqueIds
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.replies import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TIME_TO_LIVE,
    SendReplyMessage,
)
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from rmqpy.client.cluster import ClusterConnection

log = logging.getLogger(__name__)

#: What a reply that its handler returned may take.
REPLY_S: Final = 3.0
#: Bytes of a body above which it is compressed, as the original's producers have it.
_COMPRESS_ABOVE: Final = 4096
#: A topic that `Message` accepts; replies name the cluster's.
_CHECKED: Final = "reply"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a handler to a request: the producer that waits in `request` gets it. The message is done.

    `body` and `properties` are those of a message. Raises `ValueError` for what none may have.

    >>> Reply("4 kg", properties={"unit": "kg"})
    Reply(body='4 kg', properties={'unit': 'kg'})
    """

    body: Body
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self._message()

    def _message(self) -> Message:
        """The same, checked."""
        return Message(_CHECKED, self.body, properties=self.properties)


class ReplySender:
    """Replies of one consumer. For the event loop its caller belongs to."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, group: str) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._ids = UniqueIds()

    async def send(self, request: ReceivedMessage, reply: Reply, timeout_s: float = REPLY_S) -> None:
        """Until the requester has the reply.

        Raises `ValueError` for a message that is no request, `BrokerError` where the requester is gone, and what
        kept the reply from the brokers.
        """
        ask, deadline = self._ask(request, reply), time.monotonic() + timeout_s
        failures = 0
        while True:
            try:
                await self._try_brokers(request, ask, deadline)
                return
            except (errors.ConnectError, errors.FlowControl) as error:
                failures += 1
                pause_s = BUSY.pause_s(failures)
                if time.monotonic() + pause_s >= deadline:
                    raise
                log.info("the reply to %s is sent again: %s", request.message_id, error)
                self._cluster.routes.doubt(request.queue.topic)
                await self._caller.sleep(pause_s)

    async def _try_brokers(self, request: ReceivedMessage, ask: SendReplyMessage, deadline: float) -> None:
        """One broker after the other, until one has delivered it. Raises what the first one said that answered."""
        route = await self._cluster.routes.subscribe(request.queue.topic, self._caller)
        first = request.queue.broker
        refusal: errors.RocketMQError | None = None
        for broker in sorted(route.brokers, key=lambda name: (name != first, name)):
            try:
                left_s = max(deadline - time.monotonic(), 0.001)
                await self._caller.ask(route.master(broker), ask, timeout=left_s)
                return
            except (errors.BrokerError, errors.ConnectError) as error:
                if error.code not in (None, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):
                    raise
                # That the requester is not at a broker says more than that another one cannot be asked.
                if refusal is None or refusal.code is None:
                    refusal = error
        raise refusal or errors.ConnectError(f"no broker of {request.queue.topic} is known")

    def _ask(self, request: ReceivedMessage, reply: Reply) -> SendReplyMessage:
        known, message = request.properties, reply._message()
        names = (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER)
        missing = [name for name in names if not known.get(name)]
        if missing:
            raise ValueError(
                f"message {request.message_id} of {request.topic} is no request: it has no {', '.join(missing)}"
            )
        properties = {
            **message.properties,
            MESSAGE_TYPE: REPLY,
            CORRELATION_ID: known[CORRELATION_ID],
            REPLY_TO_CLIENT: known[REPLY_TO_CLIENT],
            TIME_TO_LIVE: known.get(TIME_TO_LIVE, ""),
            "UNIQ_KEY": self._ids.next(),
        }
        body, sys_flag = compressed(message.body, _COMPRESS_ABOVE)
        return SendReplyMessage(
            producer_group=self._group,
            topic=f"{known[CLUSTER]}_REPLY_TOPIC",
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            properties=encode({name: value for name, value in properties.items() if value}),
            body=body,
        )
