"""Retries of sends: the next queue after a failed attempt, or the end.

Pure: what failed so far and the current route in, the next queue out. The rule is that of the Java client's
blocking send, for all forms of sending: transport failures and the refusals another broker may not share.
"""

from collections.abc import Sequence
from typing import Final

from rmqpy._native import SendFuture
from rmqpy.client.routes import Route
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import ResponseCode

#: Refusals that say something about the broker, not about the message.
ELSEWHERE: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        # Stored, but not as safely as asked: only seen here when the producer wants these tried elsewhere.
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
#: Failures without an answer after which the message may have a better chance.
TRANSPORT: Final = frozenset({"connect", "overloaded", "lost", "timeout"})


#: Pause before a busy broker is asked again, for sends and pulls alike; sends double it with each attempt.
BUSY_PAUSE_S: Final = 0.05


def pause_s(future: SendFuture, queue: MessageQueue) -> float:
    """The pause before the next attempt, which goes to `queue`: none, unless the broker that just said it is busy is
    the only one there is."""
    attempts = future.attempts
    broker, _, _, _, code, _, _ = attempts[-1]
    if code != ResponseCode.SYSTEM_BUSY or queue.broker != broker:
        return 0.0
    return min(BUSY_PAUSE_S * (1 << (len(attempts) - 1)), future.remaining)


def next_queue(future: SendFuture, route: Route, retries: int) -> MessageQueue | None:
    """The queue of the next attempt, or `None` when the send should be given up.

    A broker that has not failed yet comes first, then one that did not fail last. A message whose queue was chosen
    by the user or by its sharding key stays with that queue.
    """
    attempts = future.attempts
    _, _, _, kind, code, _, _ = attempts[-1]
    is_worth_it = code in ELSEWHERE if code is not None else kind in TRANSPORT
    if not is_worth_it or len(attempts) > retries or future.remaining <= 0:
        return None
    if future.is_pinned:
        return MessageQueue(future.topic, future.broker, future.queue_id)
    tried = [attempt[0] for attempt in attempts]
    turn = len(attempts) + future.queue_id
    return (
        _pick([queue for queue in route.writable if queue.broker not in tried], turn)
        or _pick([queue for queue in route.writable if queue.broker != tried[-1]], turn)
        or _pick(route.writable, turn)
    )


def _pick(queues: Sequence[MessageQueue], turn: int) -> MessageQueue | None:
    return queues[turn % len(queues)] if queues else None
