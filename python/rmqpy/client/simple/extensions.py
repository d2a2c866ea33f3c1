"""Extensions: messages that a consumer holds stay hidden while it works on them.

Owns the held messages and the time when each is extended next: when half of its invisible time has passed. Invariant:
a message is released before anything else is done with its handle, and `release` waits for an extension in flight, so
that the newest handle is used. Threads: in a threaded consumer one thread extends while another one holds and releases;
the lock guards the table and is not held during a request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.simple.requests import Handle
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: Part of the invisible time after which a message is extended.
PART: Final = 0.5
#: Longest pause of the thread or task that extends.
PAUSE_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class _Held:
    message: ReceivedMessage
    invisible_s: float
    hidden_until: float
    #: When extensions end, whatever the work does.
    ends: float
    next: float
    failures: int = 0
    #: Done when the extension in flight has ended.
    extending: Future[None] | None = field(default=None)


class Extensions:
    """The messages that one consumer holds."""

    def __init__(
        self,
        caller: Caller,
        hide: Callable[[ReceivedMessage, float], Awaitable[None]],
        *,
        seconds_max: float,
        changed: Callable[[], None],
    ) -> None:
        """`hide` keeps a message hidden for some seconds from now on. `changed` is called when a message is held."""
        self._caller = caller
        self._hide = hide
        self._seconds_max = seconds_max
        self._changed = changed
        self._lock = threading.Lock()
        self._held: dict[Handle, _Held] = {}

    def hold(self, message: ReceivedMessage, hidden_until: float, invisible_s: float) -> None:
        """Keep a message hidden that is hidden until then, by the monotonic clock."""
        held = _Held(
            message,
            invisible_s,
            hidden_until,
            ends=time.monotonic() + self._seconds_max,
            next=hidden_until - invisible_s * PART,
        )
        with self._lock:
            self._held[Handle.of(message)] = held
        self._changed()

    async def release(self, message: ReceivedMessage) -> None:
        """Extend a message no more. On return no extension of it is in flight."""
        with self._lock:
            held = self._held.pop(Handle.of(message), None)
        if held is not None and held.extending is not None:
            await self._caller.until(held.extending, max(0.0, held.hidden_until - time.monotonic()))

    def release_all(self) -> None:
        """Extend no message any more."""
        with self._lock:
            self._held.clear()

    async def extend_due(self) -> float:
        """Extend the due messages; returns the seconds until the next one is due."""
        while True:
            now = time.monotonic()
            with self._lock:
                handle, held = min(self._held.items(), key=lambda entry: entry[1].next, default=(None, None))
                if handle is None or held is None:
                    return PAUSE_SECONDS_MAX
                if held.next > now:
                    return min(held.next - now, PAUSE_SECONDS_MAX)
                if now >= min(held.hidden_until, held.ends):
                    del self._held[handle]
                    log.warning(
                        "%r is not extended any longer, and is redelivered unless it is acknowledged",
                        held.message,
                    )
                    continue
                held.extending = Future()
            await self._extend(handle, held, now)

    async def _extend(self, handle: Handle, held: _Held, now: float) -> None:
        extending = held.extending
        try:
            await self._hide(held.message, held.invisible_s)
            held.hidden_until = now + held.invisible_s
            held.next = now + held.invisible_s * PART
            held.failures = 0
        except errors.RocketMQError as error:
            held.failures += 1
            left = held.hidden_until - time.monotonic()
            held.next = time.monotonic() + min(FAILING.pause_s(held.failures), left * PART)
            if not error.retriable:
                with self._lock:
                    self._held.pop(handle, None)
            log.warning("cannot extend %r: %s", held.message, error)
        finally:
            held.extending = None
            if extending is not None:
                extending.set_result(None)
