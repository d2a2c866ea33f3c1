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
from rmqpy.protocol.requests.routes import MASTER_ID
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
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        # Stored, but not as safely as the broker promises. Retried only if the producer asks for it.
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
#: The start of the remark of a broker that is not the leader: it stored nothing, and a new master follows soon.
NOT_LEADING: Final = "[REJECTREQUEST]"
#: The longest pause while the master changes.
SUCCESSION_PAUSE_S: Final = 0.2
#: Failures of messages that have not left.
UNSENT: Final = frozenset({"connect", "overloaded"})
#: Failures without a response, after which another attempt may succeed.
TRANSPORT: Final = UNSENT | {"lost", "timeout"}
#: Failures that a master leaves behind which is killed or replaced.
ENDED: Final = frozenset({"connect", "lost"})


def pause_s(future: SendFuture, route: Route, queue: MessageQueue, retries: int) -> float:
    """Return the pause before the next attempt, to `queue`: zero, unless the only available broker has just reported
    that it is busy, or its master changes."""
    attempts = future._attempts
    last = attempts[-1]
    if queue.broker == last.broker and _master_changes(attempts, route, retries):
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
    if not _is_worth_it(future):
        return None
    if len(attempts) > retries and not _master_changes(attempts, route, retries):
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


def succession_pause_s(future: SendFuture, route: Route, retries: int) -> float | None:
    """Return the pause before the route is used again, while the broker of all attempts has no master, but replicas
    that may lead soon; `None` without such a broker."""
    attempts = future._attempts
    replicas = route.brokers.get(attempts[-1].broker)
    if not replicas or MASTER_ID in replicas or not _is_worth_it(future):
        return None
    return min(SUCCESSION_PAUSE_S, future._remaining) if _master_changes(attempts, route, retries) else None


def _is_worth_it(future: SendFuture) -> bool:
    """Return whether another attempt may succeed, within the time of the send."""
    last = future._attempts[-1]
    # A second half would be checked as well, and could be committed too.
    worth_it = UNSENT if future._is_half else TRANSPORT
    is_worth_it = last.code in ELSEWHERE if last.code is not None else last.kind in worth_it
    return is_worth_it and future._remaining > 0


def _master_changes(attempts: Sequence[FailedAttempt], route: Route, retries: int) -> bool:
    """Return whether all attempts went to one broker whose master changes: it is not the leader, or it ended, and has
    replicas one of which may lead soon. So for a logical queue that has just moved: its brokers have one name. At most
    `retries` attempts may have been stored."""
    brokers = {attempt.broker for attempt in attempts}
    refused = [
        attempt.text.startswith(NOT_LEADING) or attempt.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        for attempt in attempts
    ]
    is_open = all(
        is_refused or attempt.kind in ENDED for attempt, is_refused in zip(attempts, refused, strict=True)
    )
    lost = sum(attempt.kind == "lost" for attempt in attempts)
    last = attempts[-1]
    # Either one of the others may lead soon, or another one does already.
    has_others = not route.brokers.get(last.broker, {}).keys() <= {MASTER_ID} or (
        route.has_master(last.broker) and route.sender(last.broker) != last.address
    )
    return len(brokers) == 1 and is_open and 0 < retries >= lost and (any(refused) or has_others)


def _pick(queues: Sequence[MessageQueue], turn: int) -> MessageQueue | None:
    return queues[turn % len(queues)] if queues else None
