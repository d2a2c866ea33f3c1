"""Membership keeper: keeps one member in its group, for as long as it lives.

Owns the member's own connection, its heartbeats and the moments at which shares are looked at anew: by the clock,
when a broker says that the group has changed, and when one does not answer. The caller decides what a new view
changes.

For the event loop it was made in; `look_again` from there as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from rmqpy import errors
from rmqpy.client.allocation import Allocate
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.membership import Member, Membership
from rmqpy.client.group.rebalance import Shares, View
from rmqpy.config.client import ClientConfig
from rmqpy.message import MessageQueue
from rmqpy.protocol.requests.clients import NotifyConsumerIdsChanged
from rmqpy.protocol.requests.introspection import ResetConsumerClientOffset
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.listener import Listener
from rmqpy.remoting.server import handles

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 30.0
REBALANCE_S: Final = 20.0
#: While some queue could not be had.
REBALANCE_SOON_S: Final = 1.0
#: The least between two of them, whatever happens.
REBALANCE_PAUSE_S: Final = 0.1

#: Acts on a view; False when something of it could not be had yet.
Apply = Callable[[View], Awaitable[bool]]


class MembershipKeeper:
    """One member's view of its group."""

    def __init__(
        self,
        config: ClientConfig,
        member: Member,
        allocate: Allocate,
        *,
        apply: Apply,
        reset: Callable[[Mapping[MessageQueue, int]], None],
        fail: Callable[[BaseException], None],
        queries: object,
    ) -> None:
        """`reset`: a broker orders to read queues from elsewhere. `fail`: the member cannot go on. `queries` has the
        handlers of client queries."""
        self.group = member.group
        self._loop = asyncio.get_running_loop()
        # A broker knows members apart by their connections: this one has its own.
        self.cluster = ClusterConnection(config)
        self.caller = LoopCaller(self.cluster.client)
        self._membership = Membership(self.cluster, self.caller, member)
        self._shares = Shares(self._membership, allocate)
        self._apply = apply
        self._reset = reset
        self._fail = fail
        self._is_closed = False
        self._listener = Listener(self.cluster.client, (self, queries), self._closed)
        self._due = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._is_doubtful = False
        #: Time to the next rebalance, unless something happens before.
        self._interval_s = REBALANCE_SOON_S
        self._unknown: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Join the group and take what is this member's. Raises what a user has to mend, such as a wrong address."""
        self._listener.start()
        await self._membership.announce()
        await self._look()
        self._loops = [
            asyncio.create_task(self._look_forever()),
            asyncio.create_task(self._announce_forever()),
        ]

    def stop(self) -> None:
        """Look no more. Idempotent."""
        for task in self._loops:
            task.cancel()

    async def close(self) -> None:
        """Leave the group and end the connection. Idempotent."""
        self.stop()
        if self._is_closed:
            return
        self._is_closed = True
        self._listener.close()
        await self._membership.leave()
        self.caller.close()
        self.cluster.close()

    def look_again(self) -> None:
        """Tell brokers again who we are, and look at the group, in a moment."""
        self._is_doubtful = True
        self._loop.call_later(REBALANCE_SOON_S, self._due.set)

    async def resubscribe(self) -> None:
        """Subscriptions have changed: tell brokers, then look."""
        await self._membership.announce()
        self._due.set()

    def tolerate(self, error: Exception) -> None:
        """Log an error that passes, and try again; any other one ends the member."""
        if isinstance(error, errors.RouteError) or (
            isinstance(error, errors.RocketMQError) and error.retriable
        ):
            log.warning("group %s: %s", self.group, error)
        else:
            self._fail(error)

    async def _announce_forever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._membership.announce()
            except Exception as error:
                self.tolerate(error)

    async def _look_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self._interval_s)
            self._due.clear()
            try:
                if self._is_doubtful:
                    self._is_doubtful = False
                    await self._membership.announce()
                await self._look()
            except Exception as error:
                self.tolerate(error)
            await asyncio.sleep(REBALANCE_PAUSE_S)

    async def _look(self) -> None:
        view = await self._shares.view()
        if not await self._apply(view) or view.unknown != self._unknown:
            self._interval_s = REBALANCE_SOON_S
        elif view.unknown:
            # A topic that may be made at any moment, the group's own to begin with: looked for ever more seldom.
            self._interval_s = min(2 * self._interval_s, REBALANCE_S)
        else:
            self._interval_s = REBALANCE_S
        self._unknown = view.unknown

    # ---- requests of brokers ------------------------------------------------------------------------------

    @handles(NotifyConsumerIdsChanged)
    def group_changed(self, ask: NotifyConsumerIdsChanged) -> None:
        self._due.set()

    @handles(ResetConsumerClientOffset)
    def move(self, ask: ResetConsumerClientOffset) -> None:
        if ask.group == self.group:
            self._reset(ask.body.by_queue())

    def _closed(self, address: str) -> None:
        if self._membership.has_told(address):
            # The broker has forgotten us with the connection.
            self.look_again()
