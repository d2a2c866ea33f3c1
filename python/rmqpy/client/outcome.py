"""Outcome of a send: the result users get, or the error that tells every attempt.

Called by the native `SendFuture` when its result is asked for, in that thread.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import SendFuture
from rmqpy.message import MessageQueue, SendResult, SendStatus
from rmqpy.protocol import refusals
from rmqpy.remoting.client import transport_error

#: A failed attempt: broker, queue id, address, kind, response code, text, seconds; see `_native.pyi`.
AttemptFacts = tuple[str, int, str, str, int | None, str, float]

#: Of a stored message, by the broker's code; looked up by the native `SendFuture`.
STATUSES: Final = {status.value: status for status in SendStatus}


class SendAttempt(NamedTuple):
    """One broker that was asked, and why it does not have the message: the `queue` it was meant for, the broker's
    `address`, the `error`, and the `seconds` it took."""

    queue: MessageQueue
    address: str
    error: errors.RocketMQError
    seconds: float


def of(future: SendFuture) -> SendResult | errors.RocketMQError:
    """The result of a send that is over, or its error."""
    try:
        return future.result()
    except errors.RocketMQError as error:
        return error


def send_error(future: SendFuture) -> errors.SendError:
    """The error of a send that was given up; its cause is what the last broker said."""
    return not_sent(future.topic, future._attempts)


def not_sent(topic: str, facts: Sequence[AttemptFacts]) -> errors.SendError:
    """The error of a message whose attempts all failed."""
    attempts = [attempt(topic, each) for each in facts]
    last = attempts[-1].error
    kind = type(last) if isinstance(last, errors.SendError) else errors.SendError
    if isinstance(last, errors.AuthError):
        kind = errors.SendDenied
    tried = "; ".join(f"{one.queue.broker}: {one.error}" for one in attempts)
    count = f"{len(attempts)} attempts" if len(attempts) > 1 else "1 attempt"
    error = kind(
        f"message to {topic} was not sent in {count} ({tried})",
        attempts=attempts,
        code=last.code,
        remark=last.remark,
        broker=last.broker,
        topic=topic,
        retriable=last.retriable,
    )
    error.__cause__ = last
    return error


def attempt(topic: str, facts: AttemptFacts) -> SendAttempt:
    """An attempt that failed, of what the native half tells of it."""
    broker, queue_id, address, kind, code, text, seconds = facts
    error: errors.RocketMQError
    if code is not None:
        error = refusals.from_response(code, text, broker=broker, topic=topic)
    elif kind == "malformed":
        error = errors.DecodeError(text, broker=broker, topic=topic)
    elif kind == "unsendable":
        error = errors.MessageTooLarge(text, broker=broker, topic=topic)
    else:
        error = transport_error(kind, text, address)
    return SendAttempt(MessageQueue(topic, broker, queue_id), address, error, seconds)
