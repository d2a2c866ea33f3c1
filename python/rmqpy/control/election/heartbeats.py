"""Heartbeats: reports to every controller that this broker lives, and takes leases from the answers.

Owns one task for each controller, so that an unreachable one delays no other. The tasks outlive a restart of the
broker's parts and meanwhile repeat the last known state. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.registration import BrokerHeartbeat, HeartbeatTaken
from rmqpy.remoting.client import Peer
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

#: Heartbeats within one lease.
BEATS_PER_LEASE: Final = 4


class Heartbeats:
    """The heartbeats to all controllers."""

    def __init__(
        self,
        controllers: Sequence[Peer],
        beat: Callable[[], BrokerHeartbeat | None],
        on_answer: Callable[[float, HeartbeatTaken], None],
        *,
        interval: Callable[[], float],
        timeout_seconds: float,
    ) -> None:
        """`beat` returns the next heartbeat, or `None` while there is nothing to report. `on_answer` gets the time at
        which the heartbeat was sent, and its answer. `interval` returns seconds."""
        self._beat = beat
        self._on_answer = on_answer
        self._interval = interval
        self._timeout = timeout_seconds
        self._beats = [_Controller(peer) for peer in controllers]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start on the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(controller)) for controller in self._beats]

    def wake(self) -> None:
        """Send a heartbeat to every controller now."""
        for controller in self._beats:
            controller.woken.set()

    async def tell(self, beat: BrokerHeartbeat) -> None:
        """Send a heartbeat to every controller."""
        await asyncio.gather(*(self._send(controller, beat) for controller in self._beats))

    async def stop(self, last: BrokerHeartbeat | None) -> None:
        """Stop, and send a last heartbeat. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if last is not None and tasks:
            await self.tell(last)

    async def _run(self, controller: _Controller) -> None:
        while True:
            controller.woken.clear()
            try:
                if (beat := self._beat()) is not None:
                    await self._send(controller, beat)
            except Exception:
                log.exception("heartbeat to controller %s failed, retrying", controller.peer.address)
            await wait_at_most(controller.woken, self._interval())

    async def _send(self, controller: _Controller, beat: BrokerHeartbeat) -> None:
        sent_at = time.monotonic()
        try:
            answer = await controller.peer.call(beat, timeout=self._timeout)
        except (RocketMQError, OSError) as error:
            if controller.fault is None:
                log.warning("controller %s does not answer: %s", controller.peer.address, error)
            controller.fault = str(error)
            return
        if controller.fault is not None:
            log.info("controller %s answers again", controller.peer.address)
            controller.fault = None
        self._on_answer(sent_at, answer)


class _Controller:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.woken = asyncio.Event()
        self.fault: str | None = None
