"""Requests and replies of both producers: a request is a message like any other, with the properties that have a reply
come back. Written once, as coroutines over a `Caller`.
"""

# ruff: noqa: ASYNC109 - the timeout travels with the request
from __future__ import annotations

from abc import ABC
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, SendFuture
from rmqpy.client.message_arguments import Chosen, complete
from rmqpy.client.requests import OpenRequest
from rmqpy.client.transacting import TransactingProducer
from rmqpy.config.arguments import check_types
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult


class ReadyRequest(NamedTuple):
    """A request that is about to be sent: the message as interceptors know it, and as it leaves."""

    open: OpenRequest
    message: Message
    marked: Message
    to: Chosen | None


class RequestingProducer(TransactingProducer, ABC):
    """A producer that sends requests."""

    @property
    def late_replies(self) -> int:
        """Replies that were dropped, since the first request: they came after the end of their request's time, or a
        second time. Of all producers of this process with the same configuration."""
        return self._cluster.replies.late

    async def _request(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta = 3.0,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for its reply: what a consumer's handler returns as `Reply`.

        `timeout` is the time for both, and for the room that `max_in_flight` leaves. Raises `RequestTimeout` where no
        reply comes in time, because nobody consumes the topic, or the handler failed, which has the request delivered
        again, or took too long; a reply that comes later is dropped. Raises `SendError` where the request is not sent,
        and `BufferFull` where there is no room.
        """
        ready = await self._ready(message, body, queue, timeout, fields)
        try:
            return await self._finish_request(ready)
        finally:
            ready.open.close()

    async def _ready(
        self,
        message: Message | str,
        body: Body | None,
        queue: MessageQueue | None,
        timeout: float | timedelta,
        fields: MessageFields,
    ) -> ReadyRequest:
        """Open a request, up to sending it."""
        self._check_open()
        if fields or isinstance(message, str) or body is not None:
            message, _ = complete(message, body, fields)
        check_types(message=(message, Message))
        limit = seconds(timeout, row="send_timeout")
        message = self._intercept(message, None)
        try:
            request = await self._requests.begin(message, limit, self._caller)
        except BaseException as error:
            self._tell(message, error)
            raise
        try:
            to = await self._choose(message, queue)
            return ReadyRequest(request, message, message._with_reserved(request.properties), to)
        except BaseException as error:
            request.close()
            self._tell(message, error)
            raise

    async def _finish_request(self, ready: ReadyRequest) -> ReceivedMessage:
        try:
            with self._accepted:
                [result] = await self._stored(ready.message.topic, self._starting(ready))
        except BaseException as error:
            self._tell(ready.message, error)
            raise
        self._tell(ready.message, result)
        return await ready.open.reply(self._caller)

    def _starting(self, ready: ReadyRequest) -> partial[SendFuture | NotSent]:
        """What starts the send of a request."""
        return partial(self._sender.send, ready.marked, None, to=ready.to, timeout=ready.open.left_s)

    def _request_sent(self, ready: ReadyRequest, result: SendResult | errors.RocketMQError) -> None:
        """The send of a request that nobody waits for has ended."""
        self._tell(ready.message, result)
        if isinstance(result, errors.RocketMQError):
            ready.open.fail(result)
