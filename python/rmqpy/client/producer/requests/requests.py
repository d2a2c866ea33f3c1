"""Requests: the part of a producer that sends messages whose sender waits for a reply.

A request is an ordinary message with properties that name it and its sender. The blocking and the asynchronous producer
share this code: coroutines that wait through a `Caller`. Any thread.
"""

# ruff: noqa: ASYNC109 - the timeout travels with the request
from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqpy import errors
from rmqpy._native import NotSent, SendFuture
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.producer.host import Host
from rmqpy.client.producer.message_arguments import Chosen, complete
from rmqpy.client.producer.requests.open_requests import OpenRequest, OpenRequests
from rmqpy.config.arguments import check_types
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rmqpy.client.producer.requests.delivery import RequestCallback, RequestDelivery


class ReadyRequest(NamedTuple):
    """A request that is ready to be sent."""

    open: OpenRequest
    #: The message, as interceptors know it.
    message: Message
    #: The message to send, with the properties of a request.
    marked: Message
    to: Chosen | None


class Requests:
    """Requests of one producer."""

    def __init__(self, cluster: ClusterConnection, open_max: int, *, is_waiting: bool) -> None:
        """`is_waiting`: wait for room while `open_max` requests are open, instead of raising `BufferFull`."""
        self._open = OpenRequests(cluster, open_max, is_waiting=is_waiting)
        self._lock = threading.Lock()
        self._delivery: RequestDelivery | None = None

    @property
    def late_replies(self) -> int:
        """Replies that arrived too late or twice, for all producers that share the connection."""
        return self._open.late_replies

    async def prepare(
        self,
        host: Host,
        message: Message | str,
        body: Body | None,
        queue: MessageQueue | None,
        timeout: float | timedelta,
        fields: MessageFields,
    ) -> ReadyRequest:
        """Open a request; sending it is left to the caller."""
        host._check_open()
        if fields or isinstance(message, str) or body is not None:
            message, _ = complete(message, body, fields)
        check_types(message=(message, Message))
        limit = seconds(timeout, row="send_timeout")
        message = host._intercept(message, None)
        try:
            request = await self._open.begin(message, limit, host._caller)
        except BaseException as error:
            host._tell(message, error)
            raise
        try:
            to = await host._choose(message, queue)
            return ReadyRequest(request, message, message._with_reserved(request.properties), to)
        except BaseException as error:
            request.close()
            host._tell(message, error)
            raise

    def starting(self, host: Host, ready: ReadyRequest) -> partial[SendFuture | NotSent]:
        """Return the call that starts the send."""
        return partial(host._sender.send, ready.marked, None, to=ready.to, timeout=ready.open.left_s)

    async def finish(self, host: Host, ready: ReadyRequest) -> ReceivedMessage:
        """Send the request and wait for its reply. The caller closes the request."""
        try:
            with host._accepted:
                [result] = await host._stored(ready.message.topic, self.starting(host, ready))
        except BaseException as error:
            host._tell(ready.message, error)
            raise
        host._tell(ready.message, result)
        return await ready.open.reply(host._caller)

    def sent(self, host: Host, ready: ReadyRequest, result: SendResult | errors.RocketMQError) -> None:
        """Note the end of a submitted request's send."""
        host._tell(ready.message, result)
        if isinstance(result, errors.RocketMQError):
            ready.open.fail(result)

    def deliver(self, ready: ReadyRequest, callback: RequestCallback | None) -> Future[ReceivedMessage]:
        """Return the future of a submitted request; the thread `rmqpy-requests` completes it."""
        from rmqpy.client.producer.requests.delivery import RequestDelivery

        with self._lock:
            if self._delivery is None:
                self._delivery = RequestDelivery()
        return self._delivery.begin(ready.open, callback)

    def close(self) -> None:
        """End all open requests. Idempotent."""
        self._open.close()

    def join(self) -> None:
        """Wait for the callbacks of the requests that have ended."""
        if self._delivery is not None:
            self._delivery.close()
