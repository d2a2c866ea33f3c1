"""Observers of clients: traces and telemetry of rmqpy around every send, handler call and poll.

Owns the observers that all clients of this process get, none unless telemetry is on, and pairs the start of each send
with its end. Observers are the innermost interceptors: they see what leaves. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from rmqpy.client.interceptors import ConsumerInterceptor, ProducerInterceptor
from rmqpy.config.client import ClientConfig
from rmqpy.message import Message, ReceivedMessage, SendResult

log = logging.getLogger(__name__)


class SendObserver(Protocol):
    """Observes each message of a producer as it leaves, and its end."""

    def begin(self, message: Message) -> tuple[Message, Any]:
        """Return the message to send, and the state for `end`."""

    def mark_half(self, state: Any) -> None:
        """Note that the message of this state is sent as a half message."""

    def end(self, message: Message, state: Any, outcome: SendResult | BaseException | None) -> None:
        """Note the end of a send; see `ProducerInterceptor.after_send`."""


class ObservedSends(ProducerInterceptor):
    """Notifies observers of one producer's sends, as the innermost interceptor."""

    def __init__(self, observers: Sequence[SendObserver]) -> None:
        self._observers = observers
        #: States of sends in flight, by the identity of their message object, which no other send uses.
        self._states: dict[int, list[Any]] = {}

    def before_send(self, message: Message) -> Message:
        given, states = message, []
        for each in self._observers:
            message, state = each.begin(message)
            states.append(state)
        if message is given:
            message = message.replace()
        self._states[id(message)] = states
        return message

    def mark_half(self, message: Message) -> None:
        """Note that this message is sent as a half message."""
        for each, state in zip(self._observers, self._states.get(id(message), ()), strict=False):
            each.mark_half(state)

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        states = self._states.pop(id(message), ())
        for each, state in zip(self._observers, states, strict=False):
            each.end(message, state, outcome)


class ReceiveObserver(Protocol):
    """Observes the messages that each poll of a consumer returns."""

    def received(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """Note the messages of a poll, at least one, that began at `began` seconds since the epoch."""


def tell_received(
    observers: Sequence[ReceiveObserver], messages: Sequence[ReceivedMessage], began: float
) -> None:
    """Notify all observers. Their exceptions are logged, because the caller gets its messages anyway."""
    for each in observers:
        try:
            each.received(messages, began)
        except Exception:
            log.exception("an observer failed: %r", each)


class Telemetry(NamedTuple):
    """Factories of the observers of one client, from its configuration, group and mode."""

    sends: Callable[[ClientConfig, str], SendObserver]
    calls: Callable[[ClientConfig, str, bool], ConsumerInterceptor]
    receives: Callable[[ClientConfig, str], ReceiveObserver]


#: Telemetry for every client created from now on, in addition to its own observers.
EVERYWHERE: Final[list[Telemetry]] = []
