"""Reports of messages that their handler did not do, and of the end they took.

Owns the words, and their way to whoever runs the program: where nobody has configured logging they go to stderr, for a
handler that fails unseen loses a message after the other. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rmqpy.client.stderr import Stderr
from rmqpy.message import ReceivedMessage
from rmqpy.protocol import names

log = logging.getLogger(__name__)

#: Characters of an error that a dead letter carries.
TEXT_MAX: Final = 1000


def failed(topic: str, messages: Sequence[ReceivedMessage], error: BaseException) -> str:
    """Report a handler that raised, or returned what means nothing. Returns the error as dead letters carry it."""
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    log.error("a handler failed with message %s%s of %s", messages[0].message_id, more, topic, exc_info=error)
    return f"{type(error).__name__}: {error}"


def buried(message: ReceivedMessage, group: str, attempts: int, error: str) -> None:
    """Report a message that went to the dead letters after its last attempt."""
    log.error(
        "message %s of %s went to the dead letters, %s, after %d of %d attempts: %s",
        message.message_id, message.topic, names.dead_letter_topic(group), attempts, attempts, property_text(error),
    )  # fmt: skip


def dropped(message: ReceivedMessage, group: str, attempts: int, error: str) -> None:
    """Report a message that is lost to its group, which has its retries and dead letters switched off."""
    log.error(
        "message %s of %s is dropped after %d failed attempts, for group %s has no retry queues: %s",
        message.message_id, message.topic, attempts, group, property_text(error),
    )  # fmt: skip


def refused(message: ReceivedMessage, group: str, attempts: int, refusal: Exception, error: str) -> None:
    """Report a message that is lost, for brokers take it neither as a retry nor as a dead letter."""
    log.error(
        "message %s of %s at %s is dropped after %d failed attempts, for no broker takes it back, nor as a dead letter"
        " of group %s (%s): %s",
        message.message_id, message.topic, message.queue, attempts, group, refusal, property_text(error),
    )  # fmt: skip


def unanswered(message: ReceivedMessage, error: Exception) -> None:
    """Report a reply that its requester did not get."""
    log.warning(
        "the reply to message %s of %s was not delivered: %s", message.message_id, message.topic, error
    )


def property_text(error: str) -> str:
    """The error as the value of a property: one line, of bounded length."""
    return " ".join("".join(one if one.isprintable() else " " for one in error).split())[:TEXT_MAX]


log.addHandler(Stderr(log))
