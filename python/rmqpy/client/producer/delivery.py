"""Delivery of outcomes: the thread of one producer that retries failed sends without a waiter, and runs callbacks."""

from __future__ import annotations

import time
import weakref
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

from rmqpy._native import Completions, SendFuture
from rmqpy.client.done_callbacks import DoneCallbacks
from rmqpy.remoting.client import BURST_COUNT_MAX

#: The longest wait for a completion, and so for the first look at sends in flight.
LOOK_S: Final = 0.5


class Owner(Protocol):
    """The producer, as its delivery thread sees it."""

    def _completed(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """Process an ended attempt; return the seconds to pause before the next call."""

    def _look_around(self) -> float:
        """Look at sends in flight that have no outcome yet; return the seconds until the next look."""


def deliver(owner: weakref.ref[Owner], completions: Completions, callbacks: DoneCallbacks) -> None:
    """Run the delivery thread until the producer is closed or finalized."""
    pausing: list[tuple[float, int, SendFuture]] = []
    order = count()
    look_at = time.monotonic() + LOOK_S
    while True:
        now = time.monotonic()
        pause = max(0.0, pausing[0][0] - now) if pausing else LOOK_S
        completions.wait(min(pause, max(0.0, look_at - now)))
        completed = completions.take(BURST_COUNT_MAX)
        if not completed and completions.is_closed():
            break
        producer = owner()
        now = time.monotonic()
        while pausing and (producer is None or pausing[0][0] <= now):
            _, _, future = heappop(pausing)
            if producer is None:
                future._give_up()
            elif pause := producer._completed(future, has_paused=True):
                heappush(pausing, (now + pause, next(order), future))
        for _, future in completed:
            if producer is None:
                future._give_up()
            elif pause := producer._completed(future):
                heappush(pausing, (now + pause, next(order), future))
        if now >= look_at:
            look_at = now + (LOOK_S if producer is None else min(LOOK_S, producer._look_around()))
        del producer
    for _, _, future in pausing:
        future._give_up()
    callbacks.close()
