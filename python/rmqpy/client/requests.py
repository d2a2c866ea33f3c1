"""Requests of one producer: messages whose sender waits for a reply.

Owns those that are open, and the room for them. Invariant: each ends once, with the reply, with the error that kept the
message from being sent, with the end of its time, or with that of the producer; and so many are open at most. Written
once, for producers in threads and in event loops, over a `Caller`. Any thread.
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

    from rmqpy.client.replies import Outcome

#: Part of a request's time in which brokers may be told of its producer. One that was not answers no replies here.
_REACH_PART: Final = 0.5


class OpenRequest:
    """One request, from before it is sent to its end."""

    def __init__(self, owner: Requests, topic: str, timeout_s: float, deadline: float) -> None:
        from concurrent.futures import Future
        from uuid import uuid4

        self._owner = owner
        self._topic = topic
        self._timeout_s = timeout_s
        self.deadline = deadline
        self.correlation_id = str(uuid4())
        #: Completed by any thread.
        self.outcome: Future[Outcome] = Future()

    @property
    def left_s(self) -> float:
        """What is left of its time."""
        return max(self.deadline - time.monotonic(), 0.001)

    @property
    def properties(self) -> Mapping[str, str]:
        """What makes a message this request."""
        return {
            CORRELATION_ID: self.correlation_id,
            REPLY_TO_CLIENT: self._owner.client_id,
            TIME_TO_LIVE: str(round(self._timeout_s * 1_000)),
        }

    def fail(self, error: errors.RocketMQError) -> None:
        """End it, where it has not ended."""
        from concurrent.futures import InvalidStateError

        with suppress(InvalidStateError):
            self.outcome.set_result(error)

    def expire(self) -> None:
        """Its time is up."""
        self.fail(
            errors.RequestTimeout(
                f"no reply to the request to {self._topic} within {self._timeout_s:g} s", topic=self._topic
            )
        )

    def close(self) -> None:
        """It has ended: give back its room. Idempotent."""
        self._owner.leave(self)

    async def reply(self, caller: Caller) -> ReceivedMessage:
        """Wait for the reply. Raises `RequestTimeout`."""
        if not await caller.until(self.outcome, self.left_s):
            self.expire()
        ended = self.outcome.result()
        if isinstance(ended, errors.RocketMQError):
            raise ended
        return ended


class Requests:
    """The open requests of one producer."""

    def __init__(self, cluster: ClusterConnection, open_max: int, *, is_waiting: bool) -> None:
        """`is_waiting`: for room, where as many are open as may be."""
        self._cluster = cluster
        self._open_max = open_max
        self._is_waiting = is_waiting
        #: May be taken again by the thread that has it: a producer may end in a finalizer.
        self._lock = threading.RLock()
        self._open: set[OpenRequest] = set()
        #: Room that is taken: by the open ones, and by those on their way to be.
        self._taken = 0
        self._line: deque[Future[None]] = deque()
        #: Done when brokers know where to send replies.
        self._reached: Future[None] | None = None
        self._is_closed = False

    @property
    def client_id(self) -> str:
        """The name that brokers find this producer's connections by."""
        return self._cluster.heartbeats.client_id

    async def begin(self, message: Message, timeout_s: float, caller: Caller) -> OpenRequest:
        """A request that a reply may come to from now on; its time runs. `close` follows.

        Raises `BufferFull` where there is no room for it in time, and `RequestTimeout` where no broker has heard of
        this producer.
        """
        deadline = time.monotonic() + timeout_s
        await self._enter(caller, deadline)
        try:
            request = OpenRequest(self, message.topic, timeout_s, deadline)
            await self._reach(caller, request)
            with self._lock:
                self._check_open()
                self._open.add(request)
            self._cluster.replies.expect(request.correlation_id, request.outcome)
            return request
        except BaseException:
            self._leave_room()
            raise

    def leave(self, request: OpenRequest) -> None:
        """An open request has ended."""
        with self._lock:
            if request not in self._open:
                return
            self._open.discard(request)
        self._cluster.replies.forget(request.correlation_id)
        self._leave_room()

    def close(self) -> None:
        """End all of them: the producer is closed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            left, line = list(self._open), list(self._line)
            self._line.clear()
            has_reached = self._reached is not None
        for request in left:
            request.fail(errors.ClosedError("the producer was closed before the reply came"))
        for waiter in line:
            waiter.set_result(None)
        if has_reached:
            self._cluster.heartbeats.forgo()
            self._cluster.replies.leave()

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
        """Leave the line; False where the room was given meanwhile, and is taken."""
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
                return True
        return False

    def _leave_room(self) -> None:
        """Give room to the first one in line."""
        with self._lock:
            waiter = self._line.popleft() if self._line else None
            if waiter is None:
                self._taken -= 1
        if waiter is not None:
            waiter.set_result(None)

    async def _reach(self, caller: Caller, request: OpenRequest) -> None:
        """The first time: have every broker told where replies go."""
        with self._lock:
            self._check_open()
            if self._reached is None:
                self._cluster.replies.join()
                self._reached = self._cluster.heartbeats.reach()
            reached = self._reached
        if not reached.done():
            await caller.until(reached, request.left_s * _REACH_PART)
        if not self.client_id:
            raise errors.RequestTimeout("no broker has been told of this producer, so that none could reply")

    def _full(self) -> errors.BufferFull:
        return errors.BufferFull(
            f"{self._open_max} requests wait for their replies",
            hint="send fewer at a time, or raise max_in_flight",
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.ClosedError("the producer is closed")
