"""Retries: the queue of the next attempt and the pause before it, or the end of the send.

Pure, except for random pauses. All kinds of sends follow the rule of the Java client's blocking send: retry transport
failures, and refusals that another broker may not share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rmqpy._native import FailedAttempt, SendFuture
from rmqpy.client.routes import Route
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.backoff import BUSY

#: Refusals that concern the broker, not the message.
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
        # Stored, but not as safely as the broker promises. Retried only if the producer asks for it.
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
#: The start of the remark of a broker that is not the leader: it stored nothing, and a new master follows soon.
NOT_LEADING: Final = "[REJECTREQUEST]"
#: The longest pause while the master changes.
SUCCESSION_PAUSE_S: Final = 0.3
#: Failures of messages that have not left.
UNSENT: Final = frozenset({"connect", "overloaded"})
#: Failures without a response, after which another attempt may succeed.
TRANSPORT: Final = UNSENT | {"lost", "timeout"}


def pause_s(future: SendFuture, queue: MessageQueue) -> float:
    """Return the pause before the next attempt, to `queue`: zero, unless the only available broker has just reported
    that it is busy."""
    attempts = future._attempts
    last = attempts[-1]
    if _master_changes(attempts) and queue.broker == last.broker:
        return min(BUSY.pause_s(len(attempts)), SUCCESSION_PAUSE_S, future._remaining)
    if last.code != ResponseCode.SYSTEM_BUSY or queue.broker != last.broker:
        return 0.0
    return min(BUSY.pause_s(len(attempts)), future._remaining)


def next_queue(
    future: SendFuture, route: Route, retries: int, is_slow: Callable[[str], bool]
) -> MessageQueue | None:
    """Return the queue of the next attempt, or `None` to give the send up.

    Brokers without a failure come first, then fast ones, then those that did not fail last. If the user or the sharding
    key chose the queue, the message stays in it. Attempts at the only possible broker are not counted while its master
    changes: they store nothing, and the send's timeout bounds them.
    """
    attempts = future._attempts
    last = attempts[-1]
    # A second half would be checked as well, and could be committed too.
    worth_it = UNSENT if future._is_half else TRANSPORT
    is_worth_it = last.code in ELSEWHERE if last.code is not None else last.kind in worth_it
    if not is_worth_it or future._remaining <= 0:
        return None
    if len(attempts) > retries and not (retries and _master_changes(attempts)):
        return None
    if future._is_pinned:
        return MessageQueue(future.topic, future._broker, future._queue_id)
    tried = [attempt.broker for attempt in attempts]
    turn = len(attempts) + future._queue_id
    untried = [queue for queue in route.writable if queue.broker not in tried]
    return (
        _pick([queue for queue in untried if not is_slow(queue.broker)], turn)
        or _pick(untried, turn)
        or _pick([queue for queue in route.writable if queue.broker != tried[-1]], turn)
        or _pick(route.writable, turn)
    )


def _master_changes(attempts: Sequence[FailedAttempt]) -> bool:
    """Return whether all attempts went to one broker that is not the leader, or whose next master does not answer
    yet."""
    brokers = {attempt.broker for attempt in attempts}
    refused = [attempt.text.startswith(NOT_LEADING) for attempt in attempts]
    is_open = all(
        is_refused or attempt.kind == "connect" for attempt, is_refused in zip(attempts, refused, strict=True)
    )
    return len(brokers) == 1 and any(refused) and is_open


def _pick(queues: Sequence[MessageQueue], turn: int) -> MessageQueue | None:
    return queues[turn % len(queues)] if queues else None
