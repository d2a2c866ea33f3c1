"""Replies of a consumer to requests among its messages, through the broker that delivered the request.

Owns the route of a reply. It goes to the broker of its request, to which the requester is usually connected, or to the
next broker of the topic. Nothing is kept: if no broker delivers a reply, the requester times out and may ask again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy._native import NotSent, Sender
from rmqpy.client import outcome
from rmqpy.client.consume_result import Reply
from rmqpy.config.sender import SenderOptions
from rmqpy.message import Message, ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.replies import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_BYTES_MAX,
    REPLY_TO_CLIENT,
    TIME_TO_LIVE,
)
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import LoopCaller

if TYPE_CHECKING:
    from rmqpy.client.cluster import ClusterConnection

log = logging.getLogger(__name__)

#: Timeout of a reply that a handler returned.
REPLY_S: Final = 3.0


class ReplySender:
    """The replies of one consumer. On its caller's event loop."""

    def __init__(self, cluster: ClusterConnection, caller: LoopCaller, group: str) -> None:
        self._cluster = cluster
        self._caller = caller
        self._sender = Sender(
            cluster.client,
            caller.announced,
            SenderOptions(group=group, max_message_size=REPLY_BYTES_MAX, sends_replies=True),
        )

    async def send(self, request: ReceivedMessage, reply: Reply, timeout_s: float = REPLY_S) -> None:
        """Send a reply, and return when the requester has it.

        Raises `ValueError` for a message that is not a request, `BrokerError` if the requester is gone, and the error
        that prevented the delivery.
        """
        message, deadline = _message(request, reply), time.monotonic() + timeout_s
        failures = 0
        while True:
            try:
                await self._try_brokers(request, message, deadline)
                return
            except (errors.ConnectError, errors.FlowControl, errors.BufferFull) as error:
                failures += 1
                pause_s = BUSY.pause_s(failures)
                if time.monotonic() + pause_s >= deadline:
                    raise
                log.info("reply to %s failed, retrying: %s", request.message_id, error)
                self._cluster.routes.doubt(request.queue.topic)
                await self._caller.sleep(pause_s)

    async def _try_brokers(self, request: ReceivedMessage, message: Message, deadline: float) -> None:
        """Try one broker after the other until one has delivered the reply. Raises the first broker's refusal."""
        route = await self._cluster.routes.subscribe(request.queue.topic, self._caller)
        first = request.queue.broker
        refusal: errors.RocketMQError | None = None
        for broker in sorted(route.brokers, key=lambda name: (name != first, name)):
            try:
                await self._try(message, broker, route.master(broker), deadline)
                return
            except (errors.BrokerError, errors.ConnectError) as error:
                if error.code not in (None, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):
                    raise
                # A refusal for a missing requester says more than an unreachable broker.
                if refusal is None or refusal.code is None:
                    refusal = error
        raise refusal or errors.ConnectError(f"no broker serves topic {request.queue.topic}")

    async def _try(self, message: Message, broker: str, address: str, deadline: float) -> None:
        """One attempt. Raises the broker's refusal, or the transport error."""
        left_s, token = max(deadline - time.monotonic(), 0.001), self._caller.next_token()
        to = (address, broker, 0, True)
        sent = self._sender.send(message, to=to, timeout=left_s, announce="always", token=token)
        if isinstance(sent, NotSent):
            raise errors.BufferFull(f"{self._sender.in_flight} replies are in flight")
        try:
            await self._caller.arrival(token)
        finally:
            # It is the only attempt, even if this task is cancelled.
            sent._abandon()
        if failed := sent._attempts:
            raise outcome.attempt(message.topic, failed[-1]).error


def _message(request: ReceivedMessage, reply: Reply) -> Message:
    """The reply as a message. Raises `ValueError` for one to a message that is not a request."""
    known = request.properties
    names = (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER)
    missing = [name for name in names if not known.get(name)]
    if missing:
        raise ValueError(
            f"message {request.message_id} of {request.topic} is not a request: it lacks {', '.join(missing)}"
        )
    properties = {
        MESSAGE_TYPE: REPLY,
        CORRELATION_ID: known[CORRELATION_ID],
        REPLY_TO_CLIENT: known[REPLY_TO_CLIENT],
        TIME_TO_LIVE: known.get(TIME_TO_LIVE, ""),
    }
    message = reply.message().replace(topic=f"{known[CLUSTER]}_REPLY_TOPIC")
    return message._with_reserved({name: value for name, value in properties.items() if value})
