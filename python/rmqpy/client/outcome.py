"""Outcome of a send: the result users get, or the error that tells every attempt.

Called by the native `SendFuture` when its result is asked for, in that thread.
"""

from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import SendFuture
from rmqpy.message import MessageQueue, SendStatus
from rmqpy.protocol import refusals
from rmqpy.remoting.client import transport_error

#: Of a stored message, by the broker's code; looked up by the native `SendFuture`.
STATUSES: Final = {status.value: status for status in SendStatus}


class SendAttempt(NamedTuple):
    """One broker that was asked, and why it does not have the message."""

    queue: MessageQueue
    address: str
    error: errors.RocketMQError
    seconds: float


def send_error(future: SendFuture) -> errors.SendError:
    """The error of a send that was given up; its cause is what the last broker said."""
    attempts = [_attempt(future.topic, facts) for facts in future.attempts]
    last = attempts[-1].error
    kind = type(last) if isinstance(last, errors.SendError) else errors.SendError
    tried = "; ".join(f"{attempt.queue.broker}: {attempt.error}" for attempt in attempts)
    count = f"{len(attempts)} attempts" if len(attempts) > 1 else "1 attempt"
    error = kind(
        f"message to {future.topic} was not sent in {count} ({tried})",
        attempts=attempts,
        code=last.code,
        remark=last.remark,
        broker=last.broker,
        topic=future.topic,
        retriable=last.retriable,
    )
    error.__cause__ = last
    return error


def _attempt(topic: str, facts: tuple[str, int, str, str, int | None, str, float]) -> SendAttempt:
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
