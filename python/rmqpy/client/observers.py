"""Observers of clients: what rmqpy itself does around every send, call of a handler and poll, trace and telemetry.

Owns the list of those that all clients of this process get, which is empty unless telemetry is switched on, and the
pairing of a send's begin with its end. Observers stand innermost: they see what leaves. Any thread.
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
    """Sees each message of a producer as it leaves, and its end."""

    def begin(self, message: Message) -> tuple[Message, Any]:
        """The message to send instead, and what `end` is to know."""

    def mark_half(self, state: Any) -> None:
        """The message that has this state is sent as a half message."""

    def end(self, message: Message, state: Any, outcome: SendResult | BaseException | None) -> None:
        """The end of a send; see `ProducerInterceptor.after_send`."""


class ObservedSends(ProducerInterceptor):
    """Tells observers of one producer's sends: the innermost of its interceptors."""

    def __init__(self, observers: Sequence[SendObserver]) -> None:
        self._observers = observers
        #: Of sends under way, by the identity of their message: one that nobody else sends.
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
        """This one is sent as a half message."""
        for each, state in zip(self._observers, self._states.get(id(message), ()), strict=False):
            each.mark_half(state)

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        states = self._states.pop(id(message), ())
        for each, state in zip(self._observers, states, strict=False):
            each.end(message, state, outcome)


class ReceiveObserver(Protocol):
    """Sees what each poll of a consumer hands out."""

    def received(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """These are handed out by a poll that began then, in seconds since the epoch; at least one."""


def tell_received(
    observers: Sequence[ReceiveObserver], messages: Sequence[ReceivedMessage], began: float
) -> None:
    """Tell all of them. What they raise is logged: the messages are the caller's all the same."""
    for each in observers:
        try:
            each.received(messages, began)
        except Exception:
            log.exception("an observer failed: %r", each)


class Telemetry(NamedTuple):
    """Makes the observers of clients, each of its configuration, its group, and whether it broadcasts."""

    sends: Callable[[ClientConfig, str], SendObserver]
    calls: Callable[[ClientConfig, str, bool], ConsumerInterceptor]
    receives: Callable[[ClientConfig, str], ReceiveObserver]


#: What every client that is made from now on has beside its own.
EVERYWHERE: Final[list[Telemetry]] = []
