"""Host: the interface of a producer for its parts, requests and transactions.

A part gets its producer with each call and keeps no reference to it, so that an unreferenced producer is finalized
immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqpy._native import NotSent, Sender, SendFuture
from rmqpy.client.producer.accepted import Accepted
from rmqpy.client.producer.message_arguments import Chosen
from rmqpy.client.routes import Route
from rmqpy.message import Body, Message, MessageQueue, SendResult
from rmqpy.remoting.client import Caller


class Host(Protocol):
    """A producer, as its parts see it."""

    group: str
    _sender: Sender
    _accepted: Accepted

    @property
    def _caller(self) -> Caller: ...

    def _check_open(self) -> None: ...

    def _intercept(self, message: Message | str, body: Body | None) -> Message: ...

    def _tell(self, message: Message | str, outcome: SendResult | BaseException | None) -> None: ...

    async def _choose(self, message: Message, queue: MessageQueue | None) -> Chosen | None: ...

    async def _route(self, topic: str) -> Route: ...

    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]: ...
