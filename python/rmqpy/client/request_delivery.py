"""Delivery of replies to submitted requests: their futures and callbacks, and the end of their time.

Owns the thread `rmqpy-requests` of one producer, which completes the futures users hold, and calls back. It is not the
one that reads replies, so that a slow callback keeps nobody but its own producer's submitted requests waiting, and may
send requests itself.

Invariant: each submitted request ends once, at the latest with its time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final

from rmqpy import errors
from rmqpy.client.requests import OpenRequest
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

RequestCallback = Callable[[ReceivedMessage | errors.RocketMQError], object]

#: Requests that have ended and whose time is still waited for, beside as many as are open.
_OVER_MAX: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Submitted:
    """A request, and who wants to be told of its end."""

    request: OpenRequest
    callback: RequestCallback | None
    future: Future[ReceivedMessage] = field(default_factory=Future)


class RequestDelivery:
    """The submitted requests of one producer."""

    def __init__(self) -> None:
        #: What has begun, or ended; `None` ends the thread.
        self._news: SimpleQueue[_Submitted | None] = SimpleQueue()
        self._due: list[tuple[float, int, _Submitted]] = []
        self._order = count()
        self._over = 0
        self._thread = threading.Thread(target=self._serve, name="rmqpy-requests", daemon=True)
        self._thread.start()

    def begin(self, request: OpenRequest, callback: RequestCallback | None) -> Future[ReceivedMessage]:
        """See to this request; the future has the reply, or the error."""
        submitted = _Submitted(request, callback)
        # It is under way: there is no cancelling it.
        submitted.future.set_running_or_notify_cancel()
        self._news.put(submitted)
        request.outcome.add_done_callback(lambda _: self._news.put(submitted))
        return submitted.future

    def close(self) -> None:
        """End the thread behind the requests that have ended. Waits for callbacks, unless one of them calls it."""
        self._news.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                if not self._serve_one():
                    return
            except Exception:
                # The other requests wait for this thread.
                log.exception("the outcome of a request could not be delivered")

    def _serve_one(self) -> bool:
        """Take the next request that begins or ends; False at the end of the thread."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heappop(self._due)[2].request.expire()
        try:
            submitted = self._news.get(timeout=self._due[0][0] - now if self._due else None)
        except Empty:
            return True
        if submitted is None:
            return False
        if submitted.request.outcome.done():
            self._end(submitted)
        else:
            heappush(self._due, (submitted.request.deadline, next(self._order), submitted))
        return True

    def _end(self, submitted: _Submitted) -> None:
        if submitted.future.done():
            return  # It had ended before it was taken up here.
        submitted.request.close()
        outcome = submitted.request.outcome.result()
        if isinstance(outcome, errors.RocketMQError):
            submitted.future.set_exception(outcome)
        else:
            submitted.future.set_result(outcome)
        if submitted.callback is not None:
            try:
                submitted.callback(outcome)
            except BaseException:
                # Others wait for this thread.
                log.exception("the callback of a request failed")
        self._sweep()

    def _sweep(self) -> None:
        """Forget the ends of requests that are over, before they are more than those that are open."""
        self._over += 1
        if self._over > _OVER_MAX and 2 * self._over > len(self._due):
            self._over = 0
            self._due = [each for each in self._due if not each[2].future.done()]
            heapify(self._due)
