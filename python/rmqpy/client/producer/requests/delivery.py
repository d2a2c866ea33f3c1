"""Delivery of replies to submitted requests: completes futures, runs callbacks and enforces timeouts.

Owns the thread `rmqpy-requests` of one producer. Another thread reads replies, so a slow callback delays only the
submitted requests of its own producer, and may itself send requests.

Invariant: each submitted request ends once, at the latest with its timeout.
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
from rmqpy.client.producer.requests.open_requests import OpenRequest
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

RequestCallback = Callable[[ReceivedMessage | errors.RocketMQError], object]

#: Ended requests kept in the timeout queue, in addition to as many as are open.
_OVER_MAX: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Submitted:
    """A submitted request with its callback and future."""

    request: OpenRequest
    callback: RequestCallback | None
    future: Future[ReceivedMessage] = field(default_factory=Future)


class RequestDelivery:
    """The submitted requests of one producer."""

    def __init__(self) -> None:
        #: Requests that have begun or ended; `None` ends the thread.
        self._news: SimpleQueue[_Submitted | None] = SimpleQueue()
        self._due: list[tuple[float, int, _Submitted]] = []
        self._order = count()
        self._over = 0
        self._thread = threading.Thread(target=self._serve, name="rmqpy-requests", daemon=True)
        self._thread.start()

    def begin(self, request: OpenRequest, callback: RequestCallback | None) -> Future[ReceivedMessage]:
        """Deliver the end of this request; the future has the reply or the error."""
        submitted = _Submitted(request, callback)
        # A request in flight cannot be cancelled.
        submitted.future.set_running_or_notify_cancel()
        self._news.put(submitted)
        request.outcome.add_done_callback(lambda _: self._news.put(submitted))
        return submitted.future

    def close(self) -> None:
        """End the thread after the requests that have ended. Waits for callbacks, unless a callback calls it."""
        self._news.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                if not self._serve_one():
                    return
            except Exception:
                # An exception must not end the thread of the other requests.
                log.exception("the outcome of a request could not be delivered")

    def _serve_one(self) -> bool:
        """Process the next start or end of a request; return False at the end of the thread."""
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
            return  # Already ended at its first turn; this is the second.
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
                # An exception must not end the thread of the other requests.
                log.exception("the callback of a request failed")
        self._sweep()

    def _sweep(self) -> None:
        """Remove ended requests from the timeout queue before they outnumber the open ones."""
        self._over += 1
        if self._over > _OVER_MAX and 2 * self._over > len(self._due):
            self._over = 0
            self._due = [each for each in self._due if not each[2].future.done()]
            heapify(self._due)
