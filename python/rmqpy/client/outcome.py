"""Outcome of a send: the result, or the error that lists every attempt.

The native `SendFuture` calls this module in the thread that requests the result.
"""

from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import FailedAttempt, SendFuture
from rmqpy.message import MessageQueue, SendResult, SendStatus
from rmqpy.protocol import refusals
from rmqpy.remoting.client import transport_error

#: The status of a stored message by the broker's code; the native `SendFuture` looks it up.
STATUSES: Final = {status.value: status for status in SendStatus}


class SendAttempt(NamedTuple):
    """A failed attempt: the `queue` the message was meant for, the broker's `address`, the `error`, and the `seconds`
    it took."""

    queue: MessageQueue
    address: str
    error: errors.RocketMQError
    seconds: float


def of(future: SendFuture) -> SendResult | errors.RocketMQError:
    """Return the result of an ended send, or its error."""
    try:
        return future.result()
    except errors.RocketMQError as error:
        return error


def send_error(future: SendFuture) -> errors.SendError:
    """Return the error of a failed send; its cause is the last broker's response."""
    topic = future.topic
    attempts = [attempt(topic, each) for each in future._attempts]
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


def attempt(topic: str, failed: FailedAttempt) -> SendAttempt:
    """Return a failed attempt with its error."""
    error: errors.RocketMQError
    if failed.code is not None:
        error = refusals.from_response(failed.code, failed.text, broker=failed.broker, topic=topic)
    elif failed.kind == "malformed":
        error = errors.DecodeError(failed.text, broker=failed.broker, topic=topic)
    elif failed.kind == "unsendable":
        error = errors.MessageTooLarge(failed.text, broker=failed.broker, topic=topic)
    else:
        error = transport_error(failed.kind, failed.text, failed.address)
    queue = MessageQueue(topic, failed.broker, failed.queue_id)
    return SendAttempt(queue, failed.address, error, failed.seconds)
