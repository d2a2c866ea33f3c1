"""Failures of handlers: log reports of failed messages and their outcome.

Owns the texts. If logging is not configured they go to stderr, because an unnoticed failure loses message
after message. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rmqpy.client.reports.stderr import Stderr
from rmqpy.message import ReceivedMessage
from rmqpy.protocol import names

log = logging.getLogger(__name__)

#: The most characters of an error in a dead letter.
TEXT_MAX: Final = 1000


def failed(topic: str, messages: Sequence[ReceivedMessage], error: BaseException) -> str:
    """Report a handler that raised or returned an invalid value. Returns the error text for dead letters."""
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    log.error("handler failed on message %s%s of %s", messages[0].message_id, more, topic, exc_info=error)
    return f"{type(error).__name__}: {error}"


def undecodable(message: ReceivedMessage, error: Exception) -> None:
    """Report a message that its handler never gets, because it cannot be decoded."""
    log.error("message %s of %s at %s: %s", message.message_id, message.topic, message.queue, error)


def buried(message: ReceivedMessage, group: str, attempts: int, error: str) -> None:
    """Report a message that became a dead letter after its last attempt."""
    log.error(
        "message %s of %s went to the dead letters, %s, after %d of %d attempts: %s",
        message.message_id, message.topic, names.dead_letter_topic(group), attempts, attempts, property_text(error),
    )  # fmt: skip


def dropped(message: ReceivedMessage, group: str, attempts: int, error: str) -> None:
    """Report a message that was dropped because its group has neither retries nor dead letters."""
    log.error(
        "message %s of %s dropped after %d failed attempts, because group %s has no retry queues: %s",
        message.message_id, message.topic, attempts, group, property_text(error),
    )  # fmt: skip


def refused(message: ReceivedMessage, group: str, attempts: int, refusal: Exception, error: str) -> None:
    """Report a message that was dropped because brokers refuse it both as a retry and as a dead letter."""
    log.error(
        "message %s of %s at %s dropped after %d failed attempts: no broker accepts it for retry or as a dead letter"
        " of group %s (%s): %s",
        message.message_id, message.topic, message.queue, attempts, group, refusal, property_text(error),
    )  # fmt: skip


def unanswered(message: ReceivedMessage, error: Exception) -> None:
    """Report a reply that was not delivered."""
    log.warning("cannot deliver the reply to message %s of %s: %s", message.message_id, message.topic, error)


def property_text(error: str) -> str:
    """Return the error as a property value: one line of bounded length."""
    return " ".join("".join(one if one.isprintable() else " " for one in error).split())[:TEXT_MAX]


log.addHandler(Stderr(log))
