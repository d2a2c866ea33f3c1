"""Driver: connects the native controller with an event loop.

Owns the outcomes that handlers wait for. The native controller decides; the driver wakes it when its log has news, and
every 100 ms for leases and silent brokers. Threads: the event loop's.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqpy._native import BrokerSet, Controller, ControllerOutcome
from rmqpy.election.group import Group

log = logging.getLogger(__name__)

#: The precision of leases and of lost brokers.
TICK_SECONDS: Final = 0.1


class Driver:
    """Runs a native controller. `notify` receives the address of each broker to notify, with its set; calls to other
    controllers go through `group`."""

    def __init__(
        self, controller: Controller, notify: Callable[[str, BrokerSet], None], group: Group
    ) -> None:
        self.controller = controller
        self._notify = notify
        self._group = group
        self._waiting: dict[int, asyncio.Future[ControllerOutcome]] = {}
        self._served: dict[int, asyncio.Future[bytes]] = {}
        self._token = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._is_pump_due = False
        #: The reason that the controller cannot go on.
        self.fault: str | None = None

    def start(self) -> None:
        """Run on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.controller.fileno(), self._pump)
        self._ticked()

    async def stop(self) -> None:
        """Cancel what waits, and close the log. Idempotent."""
        if self._loop is not None:
            self._loop.remove_reader(self.controller.fileno())
            self._loop = None
        if self._tick is not None:
            self._tick.cancel()
        for waiting in self._waiting.values():
            waiting.cancel()
        for served in self._served.values():
            served.cancel()
        await self._group.close()
        await asyncio.to_thread(self.controller.stop)

    async def outcome(self, ask: Callable[[int], None]) -> ControllerOutcome:
        """Call `ask` with a token, and wait for the outcome of that request."""
        assert self._loop is not None, "requests are taken between start and stop only"
        self._token += 1
        token = self._token
        waiting: asyncio.Future[ControllerOutcome] = self._loop.create_future()
        self._waiting[token] = waiting
        try:
            ask(token)
            self.wake()
            return await waiting
        finally:
            del self._waiting[token]

    async def serve(self, body: bytes) -> bytes:
        """Serve a call of another controller, and return the reply."""
        assert self._loop is not None, "calls are taken between start and stop only"
        self._token += 1
        token = self._token
        served: asyncio.Future[bytes] = self._loop.create_future()
        self._served[token] = served
        try:
            self.controller.serve(token, body)
            return await served
        finally:
            del self._served[token]

    def wake(self) -> None:
        """Let the controller work, once for all requests of this turn of the loop."""
        if not self._is_pump_due and self._loop is not None:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _ticked(self) -> None:
        if self._loop is not None:
            self._tick = self._loop.call_later(TICK_SECONDS, self._ticked)
            self._pump()

    def _pump(self) -> None:
        self._is_pump_due = False
        if self._loop is None:
            return
        work = self.controller.pump()
        for is_warning, text in work.notes:
            log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
        for token, outcome in work.answers:
            waiting = self._waiting.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(outcome)
        for token, body in work.replies:
            served = self._served.get(token)
            if served is not None and not served.done():
                served.set_result(body)
        self._group.call(work.calls, self.controller.replied)
        for address, broker_set in work.notices:
            self._notify(address, broker_set)
        if work.fault is not None:
            log.error("the controller stops serving: %s", work.fault)
            self.fault = work.fault
