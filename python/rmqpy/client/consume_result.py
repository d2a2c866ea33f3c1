"""Consume results: the values a handler may return, and their effect: done, retry, discard, reply.

Owns the contract of handlers. Pure, for any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from rmqpy.config.arguments import check_types
from rmqpy.message import Body, Message, ReceivedMessage

#: The 18 delay levels in seconds, as brokers define them by default.
DELAYS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
#: The broker chooses: 10 s after the first failure, then longer each time.
BY_POLICY: Final = 0
#: A topic that `Message` accepts, for checks only. Replies are sent to the cluster's reply topic.
_CHECKED: Final = "reply"


class ConsumeResult(Enum):
    """Values a handler may return."""

    #: The message is done, as after returning `None` or `True`.
    SUCCESS = "success"
    #: Deliver the message again later, as after an exception or `False`.
    RETRY = "retry"
    #: Do not deliver the message again, and count it as discarded.
    DISCARD = "discard"
    #: Make the message a dead letter now, without further attempts.
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver the message again after at least `after` seconds.

    The delay is rounded up to one of the broker's delay levels; the longest is two hours.

    >>> Retry(after=45).level
    5
    """

    after: float

    def __post_init__(self) -> None:
        check_types(after=(self.after, float | int))

    @property
    def level(self) -> int:
        """The delay level."""
        return min(bisect_left(DELAYS_S, self.after) + 1, len(DELAYS_S))


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Deliver only the `failed` messages of a batch again, and make the `dead` ones dead letters. `error` is stored in
    the dead letters."""

    failed: Sequence[ReceivedMessage] = ()
    dead: Sequence[ReceivedMessage] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request, which completes the message. The producer that waits in `request` receives it.

    `body` and `properties` follow the rules of a message. Raises `ValueError` if one of them is invalid.

    >>> Reply("4 kg", properties={"unit": "kg"})
    Reply(body='4 kg', properties={'unit': 'kg'})
    """

    body: Body
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self.message()

    def message(self) -> Message:
        """Return body and properties as a message, which checks them."""
        return Message(_CHECKED, self.body, properties=self.properties)


class HandlerResult(NamedTuple):
    """The messages to deliver again, and the delay."""

    failed: Sequence[ReceivedMessage] = ()
    level: int = BY_POLICY
    #: The delay in seconds that the handler asked for.
    after: float | None = None
    is_discarded: bool = False
    #: The reason of the failure, as text.
    error: str = ""
    #: The messages that become dead letters without another attempt.
    dead: Sequence[ReceivedMessage] = ()


#: Nothing is left to do.
DONE: Final = HandlerResult()
_DISCARDED: Final = HandlerResult(is_discarded=True)


def interpret(answer: Any, messages: Sequence[ReceivedMessage]) -> HandlerResult:
    """Return the effect of a handler's return value. Raises `TypeError` for an unknown value, and `ValueError`
    for a `BatchResult` that names other messages."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY:
        return HandlerResult(messages, error=f"the handler returned {answer}")
    if answer is ConsumeResult.DISCARD:
        return _DISCARDED
    if answer is ConsumeResult.DEAD_LETTER:
        return HandlerResult(error=f"the handler returned {answer}", dead=messages)
    if isinstance(answer, Retry):
        return HandlerResult(messages, answer.level, answer.after, error=f"the handler returned {answer}")
    if isinstance(answer, BatchResult):
        dead = tuple(answer.dead)
        failed = tuple(one for one in answer.failed if one not in dead)
        if any(one not in messages for one in (*failed, *dead)):
            raise ValueError("a BatchResult names a message that was not in its batch")
        return HandlerResult(failed, error=answer.error or "the handler named it in a BatchResult", dead=dead)
    raise TypeError(
        f"a handler returned {answer!r}: return None when the message is done, a ConsumeResult, Retry or BatchResult"
    )
