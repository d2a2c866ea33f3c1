"""Interceptors: what an application has done around every send and every call of a handler.

Owns the two base classes and the rule of failures: what is raised before a send keeps it from starting, for the message
may be incomplete; everything else that interceptors raise is logged and changes nothing. Clients without interceptors
come past none of this. Any thread.
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
    """Sees each message of a producer before and after it is sent. Override what is needed.

    ::

        class Tracing(rmqpy.ProducerInterceptor):
            def before_send(self, message):
                return message.replace(properties={**message.properties, "traceparent": current()})

        producer = rmqpy.Producer(interceptors=[Tracing()])
    """

    def before_send(self, message: Message) -> Message:
        """The message to send instead; called once for each, whatever the number of attempts, in the thread or task
        that sends. What it raises reaches the sender, and nothing is sent."""
        return message

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        """The end of a send: its result, or its error, or `None` for a one-way send that has left. Called once for each
        message that passed `before_send`, by the thread that learns of it; it must not block."""


class ConsumerInterceptor:
    """Sees what a `PushConsumer` hands to its handlers. Override what is needed.

    Called in the thread, or the task, that calls the handler.
    """

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """A handler is about to be called with these messages; more than one only where `batch_size` is."""

    def after_consume(
        self, messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None
    ) -> None:
        """A handler has returned `result`, or raised `error`."""


def before_send(interceptors: Sequence[ProducerInterceptor], message: Message) -> Message:
    """The message as the interceptors leave it, the first one first. Raises what they raise; those before are told."""
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
    """Tell all of them, the last one first."""
    for each in reversed(interceptors):
        _guarded(each.after_send, message, outcome)


def around(
    interceptors: Sequence[ConsumerInterceptor], handler: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """A handler that tells the interceptors before and after."""
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
        # The message is stored or handled all the same. Only Ctrl-C is the user's, not the interceptor's.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        log.exception("an interceptor failed: %r", tell)
