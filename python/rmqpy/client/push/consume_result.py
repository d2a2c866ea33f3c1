"""Consume results: the values a handler may return, and their meaning: done, again, or dropped.

Owns the contract of handlers. Pure, for any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from rmqpy.config.arguments import check_types
from rmqpy.message import ReceivedMessage

#: Seconds of the 18 delay levels, as brokers have them unless configured otherwise.
DELAYS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
#: The broker chooses: 10 s after the first failure, then longer each time.
BY_POLICY: Final = 0


class ConsumeResult(Enum):
    """Values a handler may return."""

    #: Done, as is returning `None` or `True`.
    SUCCESS = "success"
    #: Deliver it again later, as raising an exception and returning `False` do.
    RETRY = "retry"
    #: Not wanted: not delivered again, and counted apart.
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver the message again, not before `after` seconds have passed.

    The delay is one of the broker's levels, the next longer one; the longest is two hours.

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
    """Of a batch, deliver only those `failed` again."""

    failed: Sequence[ReceivedMessage]


class HandlerResult(NamedTuple):
    """The consequence for the messages a handler was called with."""

    failed: Sequence[ReceivedMessage] = ()
    level: int = BY_POLICY
    #: The handler's own wish, in seconds.
    after: float | None = None
    is_discarded: bool = False
    #: Why it failed, in words.
    error: str = ""


#: Nothing is left to do.
DONE: Final = HandlerResult()
_DISCARDED: Final = HandlerResult(is_discarded=True)


def interpret(answer: Any, messages: Sequence[ReceivedMessage]) -> HandlerResult:
    """The meaning of what a handler returned for `messages`. Raises `TypeError` for any other value, and `ValueError`
    for a `BatchResult` with other messages."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY:
        return HandlerResult(messages, error=f"the handler returned {answer}")
    if answer is ConsumeResult.DISCARD:
        return _DISCARDED
    if isinstance(answer, Retry):
        return HandlerResult(messages, answer.level, answer.after, error=f"the handler returned {answer}")
    if isinstance(answer, BatchResult):
        failed = tuple(answer.failed)
        if any(one not in messages for one in failed):
            raise ValueError("a BatchResult names a message that is not of its batch")
        return HandlerResult(failed, error="the handler named it in a BatchResult")
    raise TypeError(
        f"a handler returned {answer!r}: return None when the message is done, a ConsumeResult, Retry or BatchResult"
    )
