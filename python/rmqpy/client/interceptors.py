"""Interceptors: code of an application that runs around every send and every call of a handler.

Owns the two base classes and the rule for failures. An exception before a send prevents it, because the message may be
incomplete; any other exception is logged and changes nothing. Clients without interceptors skip this code. Any
thread.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

from rmqpy.message import Message, ReceivedMessage, SendResult

log = logging.getLogger(__name__)


class ProducerInterceptor:
    """Sees each message of a producer before and after it is sent. Override the methods you need.

    ::

        class Tracing(rmqpy.ProducerInterceptor):
            def before_send(self, message):
                return message.replace(properties={**message.properties, "traceparent": current()})

        producer = rmqpy.Producer(interceptors=[Tracing()])
    """

    def before_send(self, message: Message) -> Message:
        """Return the message to send. Called once per message, whatever the number of attempts, in the sender's thread
        or task. An exception reaches the sender, and nothing is sent."""
        return message

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        """Called once, after the end of a send that passed `before_send`: with its result, its error, or `None` for a
        one-way send that has left. Runs in the thread that receives the outcome and must not block."""


class ConsumerInterceptor:
    """Sees the messages that a `PushConsumer` passes to its handlers. Override the methods you need.

    Called in the thread, or the task, that calls the handler.
    """

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """Called before a handler gets these messages; more than one only with a `batch_size`."""

    def after_consume(
        self, messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None
    ) -> None:
        """Called after a handler has returned `result` or raised `error`."""


def before_send(interceptors: Sequence[ProducerInterceptor], message: Message) -> Message:
    """Pass the message through the interceptors in order. If one raises, notify those before it and raise."""
    for count, each in enumerate(interceptors):
        try:
            changed: object = each.before_send(message)
            if not isinstance(changed, Message):
                raise TypeError(f"{each!r} returned {changed!r}: before_send returns the message to send")
        except BaseException as error:
            after_send(interceptors[:count], message, error)
            raise
        message = changed
    return message


def after_send(
    interceptors: Sequence[ProducerInterceptor], message: Message, outcome: SendResult | BaseException | None
) -> None:
    """Notify the interceptors in reverse order."""
    for each in reversed(interceptors):
        _guarded(each.after_send, message, outcome)


def around(
    interceptors: Sequence[ConsumerInterceptor], handler: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap a handler so that the interceptors run before and after it."""
    if not interceptors:
        return handler

    def before(argument: Any) -> Sequence[ReceivedMessage]:
        messages = argument if isinstance(argument, list) else [argument]
        for each in interceptors:
            _guarded(each.before_consume, messages)
        return messages

    def after(messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None) -> None:
        for each in reversed(interceptors):
            _guarded(each.after_consume, messages, result, error)

    async def finish(messages: Sequence[ReceivedMessage], answer: Awaitable[Any]) -> Any:
        try:
            result = await answer
        except BaseException as error:
            after(messages, None, error)
            raise
        after(messages, result, None)
        return result

    @wraps(handler)
    def handle(argument: Any) -> Any:
        messages = before(argument)
        try:
            answer = handler(argument)
        except BaseException as error:
            after(messages, None, error)
            raise
        if inspect.isawaitable(answer):
            return finish(messages, answer)
        after(messages, answer, None)
        return answer

    @wraps(handler)
    async def handle_later(argument: Any) -> Any:
        return await finish(before(argument), handler(argument))

    return handle_later if inspect.iscoroutinefunction(handler) else handle


def _guarded(tell: Callable[..., None], *facts: Any) -> None:
    try:
        tell(*facts)
    except BaseException as error:
        # The message is stored or handled anyway. Only a Ctrl-C of the user propagates.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        log.exception("an interceptor failed: %r", tell)
