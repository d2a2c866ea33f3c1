"""Retries: the pause before a failed send is tried again, and its next queue, or its end.

Pure but for chance. The rule is that of the Java client's blocking send, for all forms of sending: transport failures
and the refusals another broker may not share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from rmqpy._native import SendFuture
from rmqpy.client.routes import Route
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.backoff import BUSY

if TYPE_CHECKING:
    from rmqpy._native import _Attempt

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
#: How the answer of a broker begins that does not lead: what it was sent is stored nowhere, and its name has another
#: master soon.
NOT_LEADING: Final = "[REJECTREQUEST]"
#: The longest pause while the master changes.
SUCCESSION_PAUSE_S: Final = 0.3
#: Failures without an answer after which the message may have a better chance.
TRANSPORT: Final = frozenset({"connect", "overloaded", "lost", "timeout"})


def pause_s(future: SendFuture, queue: MessageQueue) -> float:
    """The pause before the next attempt, which goes to `queue`: none, unless the broker that just said it is busy is
    the only one there is."""
    attempts = future._attempts
    broker, _, _, _, code, _, _ = attempts[-1]
    if _master_changes(attempts) and queue.broker == broker:
        return min(BUSY.pause_s(len(attempts)), SUCCESSION_PAUSE_S, future._remaining)
    if code != ResponseCode.SYSTEM_BUSY or queue.broker != broker:
        return 0.0
    return min(BUSY.pause_s(len(attempts)), future._remaining)


def next_queue(
    future: SendFuture, route: Route, retries: int, is_slow: Callable[[str], bool]
) -> MessageQueue | None:
    """The queue of the next attempt, or `None` when the send should be given up.

    A broker that has not failed yet comes first, one that is not slow before others, then one that did not fail last. A
    message whose queue was chosen by the user or by its sharding key stays with that queue. While the only broker that
    it can go to changes its master, the attempts are not counted: nothing is stored by them, and the time of the send
    bounds them.
    """
    attempts = future._attempts
    _, _, _, kind, code, _, _ = attempts[-1]
    is_worth_it = code in ELSEWHERE if code is not None else kind in TRANSPORT
    if not is_worth_it or future._remaining <= 0:
        return None
    if len(attempts) > retries and not (retries and _master_changes(attempts)):
        return None
    if future._is_pinned:
        return MessageQueue(future.topic, future._broker, future._queue_id)
    tried = [attempt[0] for attempt in attempts]
    turn = len(attempts) + future._queue_id
    untried = [queue for queue in route.writable if queue.broker not in tried]
    return (
        _pick([queue for queue in untried if not is_slow(queue.broker)], turn)
        or _pick(untried, turn)
        or _pick([queue for queue in route.writable if queue.broker != tried[-1]], turn)
        or _pick(route.writable, turn)
    )


def _master_changes(attempts: Sequence[_Attempt]) -> bool:
    """Whether all attempts went to one broker that does not lead, or whose next master does not answer yet."""
    brokers = {attempt[0] for attempt in attempts}
    refused = [attempt[5].startswith(NOT_LEADING) for attempt in attempts]
    is_open = all(
        is_refused or attempt[3] == "connect" for attempt, is_refused in zip(attempts, refused, strict=True)
    )
    return len(brokers) == 1 and any(refused) and is_open


def _pick(queues: Sequence[MessageQueue], turn: int) -> MessageQueue | None:
    return queues[turn % len(queues)] if queues else None
