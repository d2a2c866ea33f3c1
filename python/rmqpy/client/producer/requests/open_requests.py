"""Open requests of one producer, and the room for them.

Invariant: each request ends once, with the reply, a send error, its timeout, or the close of the producer; the number
of open requests is bounded. The blocking and the asynchronous producer share this code, which waits through a `Caller`.
Any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.message import Message, ReceivedMessage
from rmqpy.protocol.requests.replies import CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rmqpy.client.producer.requests.replies import Outcome, Replies

#: Fraction of a request's time for notifying brokers of its producer. A broker that was not notified sends no replies.
_REACH_PART: Final = 0.5


class OpenRequest:
    """One request, from before its send to its end."""

    def __init__(self, owner: OpenRequests, topic: str, timeout_s: float, deadline: float) -> None:
        from concurrent.futures import Future
        from uuid import uuid4

        self._owner = owner
        self._topic = topic
        self._timeout_s = timeout_s
        self.deadline = deadline
        self.correlation_id = str(uuid4())
        #: Any thread may complete it.
        self.outcome: Future[Outcome] = Future()

    @property
    def left_s(self) -> float:
        """The seconds until the deadline."""
        return max(self.deadline - time.monotonic(), 0.001)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that mark a message as this request."""
        return {
            CORRELATION_ID: self.correlation_id,
            REPLY_TO_CLIENT: self._owner.client_id,
            TIME_TO_LIVE: str(round(self._timeout_s * 1_000)),
        }

    def fail(self, error: errors.RocketMQError) -> None:
        """End the request with an error, unless it has ended."""
        from concurrent.futures import InvalidStateError

        with suppress(InvalidStateError):
            self.outcome.set_result(error)

    def expire(self) -> None:
        """End the request at its timeout."""
        self.fail(
            errors.RequestTimeout(
                f"no reply to the request to {self._topic} within {self._timeout_s:g} s", topic=self._topic
            )
        )

    def close(self) -> None:
        """Release the request's room. Idempotent."""
        self._owner.leave(self)

    async def reply(self, caller: Caller) -> ReceivedMessage:
        """Wait for the reply. Raises `RequestTimeout`."""
        if not await caller.until(self.outcome, self.left_s):
            self.expire()
        ended = self.outcome.result()
        if isinstance(ended, errors.RocketMQError):
            raise ended
        return ended


class OpenRequests:
    """The open requests of one producer."""

    def __init__(self, cluster: ClusterConnection, open_max: int, *, is_waiting: bool) -> None:
        """`is_waiting`: wait for room while `open_max` requests are open, instead of raising `BufferFull`."""
        self._cluster = cluster
        self._open_max = open_max
        self._is_waiting = is_waiting
        #: Reentrant, because a finalizer may close a producer.
        self._lock = threading.RLock()
        self._open: set[OpenRequest] = set()
        #: Room used by open requests and by those that are about to open.
        self._taken = 0
        self._line: deque[Future[None]] = deque()
        #: Done when brokers know where to send replies.
        self._reached: Future[None] | None = None
        self._is_closed = False

    @property
    def client_id(self) -> str:
        """The client id by which brokers find this producer's connections."""
        return self._cluster.heartbeats.client_id

    @property
    def late_replies(self) -> int:
        """Replies that arrived too late or twice, for all producers of this cluster connection."""
        return self._replies.late

    @property
    def _replies(self) -> Replies:
        # Imports asyncio, which few producers need.
        from rmqpy.client.producer.requests.replies import Replies

        return self._cluster.shared(Replies)

    async def begin(self, message: Message, timeout_s: float, caller: Caller) -> OpenRequest:
        """Open a request, which can receive a reply from now on; its time runs. `close` follows.

        Raises `BufferFull` if no room was free in time, and `RequestTimeout` if no broker was notified of this
        producer.
        """
        deadline = time.monotonic() + timeout_s
        await self._enter(caller, deadline)
        try:
            request = OpenRequest(self, message.topic, timeout_s, deadline)
            await self._reach(caller, request)
            with self._lock:
                self._check_open()
                self._open.add(request)
            self._replies.expect(request.correlation_id, request.outcome)
            return request
        except BaseException:
            self._leave_room()
            raise

    def leave(self, request: OpenRequest) -> None:
        """Note the end of an open request."""
        with self._lock:
            if request not in self._open:
                return
            self._open.discard(request)
        self._replies.forget(request.correlation_id)
        self._leave_room()

    def close(self) -> None:
        """End all requests, because the producer is closed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            left, line = list(self._open), list(self._line)
            self._line.clear()
            has_reached = self._reached is not None
        for request in left:
            request.fail(errors.ClosedError("the producer was closed before the reply arrived"))
        for waiter in line:
            waiter.set_result(None)
        if has_reached:
            self._cluster.heartbeats.forgo()
            self._replies.leave()

    async def _enter(self, caller: Caller, deadline: float) -> None:
        """Wait for room."""
        from concurrent.futures import Future

        with self._lock:
            if self._taken < self._open_max:
                self._taken += 1
                return
            if not self._is_waiting:
                raise self._full()
            waiter: Future[None] = Future()
            self._line.append(waiter)
        try:
            is_in = await caller.until(waiter, max(deadline - time.monotonic(), 0.0))
        except BaseException:
            if not self._give_up(waiter):
                self._leave_room()
            raise
        if not is_in and self._give_up(waiter):
            raise self._full()
        self._check_open()

    def _give_up(self, waiter: Future[None]) -> bool:
        """Leave the line; return False if the room was granted meanwhile."""
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
                return True
        return False

    def _leave_room(self) -> None:
        """Grant room to the first waiter."""
        with self._lock:
            waiter = self._line.popleft() if self._line else None
            if waiter is None:
                self._taken -= 1
        if waiter is not None:
            waiter.set_result(None)

    async def _reach(self, caller: Caller, request: OpenRequest) -> None:
        """Have every broker notified where to send replies, the first time."""
        with self._lock:
            self._check_open()
            if self._reached is None:
                self._replies.join()
                self._reached = self._cluster.heartbeats.reach()
            reached = self._reached
        if not reached.done():
            await caller.until(reached, request.left_s * _REACH_PART)
        if not self.client_id:
            raise errors.RequestTimeout("no broker knows this producer yet, so no reply could reach it")

    def _full(self) -> errors.BufferFull:
        return errors.BufferFull(
            f"{self._open_max} requests are waiting for replies",
            hint="send fewer requests at a time, or raise max_in_flight",
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.ClosedError("the producer is closed")
