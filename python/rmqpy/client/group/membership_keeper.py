"""Membership keeper: keeps one member in its group.

Owns the member's connection, its heartbeats and the times at which shares are computed again: periodically, when a
broker reports a change of the group, and when a broker does not answer. The caller decides what a new view changes.

For the event loop that created it; so is `look_again`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.allocation import Allocate, on_wire
from rmqpy.client.group.client_queries import ClientQueryHandlers, QueryableMember
from rmqpy.client.group.freshness import ALIVE_S, Freshness
from rmqpy.client.group.membership import ANSWER_S, Member, Membership
from rmqpy.client.group.rebalance import Shares, View
from rmqpy.client.reports import outages
from rmqpy.client.reports.stderr import Stderr
from rmqpy.config.client import ClientConfig
from rmqpy.message import MessageQueue
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import NotifyConsumerIdsChanged
from rmqpy.protocol.requests.introspection import ResetConsumerClientOffset
from rmqpy.remoting.backoff import FAILING, Backoff
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.listener import Listener
from rmqpy.remoting.server import handles

log = logging.getLogger(__name__)
#: Warnings about absent topics reach stderr when logging is not configured.
absent_log = log.getChild("absent")
absent_log.addHandler(Stderr(absent_log))

HEARTBEAT_S: Final = 30.0
REBALANCE_S: Final = 20.0
#: Intervals while a queue could not be taken, for example because another member holds its lock.
REBALANCE_SOON: Final = Backoff(1.0, 5.0)
#: Intervals while a topic does not exist.
MISSING: Final = Backoff(1.0, REBALANCE_S)
#: The minimum interval between two rebalances.
REBALANCE_PAUSE_S: Final = 0.1

#: Applies a view to a member. The second argument is the time of the earliest change it covers, on the running clock.
#: Returns False if a queue could not be taken yet.
Apply = Callable[[View, float], Awaitable[bool]]


class MembershipKeeper:
    """The membership of one member, kept current."""

    def __init__(
        self,
        config: ClientConfig,
        member: Member,
        allocate: Allocate,
        *,
        apply: Apply,
        reset: Callable[[Mapping[MessageQueue, int]], None],
        fail: Callable[[BaseException], None],
        queried: QueryableMember,
    ) -> None:
        """`reset` is called when a broker moves the member's offsets, `fail` when the member cannot continue. `queried`
        answers client queries."""
        self.group = member.group
        self._loop = asyncio.get_running_loop()
        # A broker identifies members by their connections, so each member needs its own.
        self.cluster = ClusterConnection(config)
        self.caller = LoopCaller(self.cluster.client)
        self._membership = Membership(self.cluster, self.caller, member)
        namespace = self.cluster.client.namespace
        self._shares = Shares(self._membership, on_wire(allocate, namespace))
        self._apply = apply
        self._reset = reset
        self._fail = fail
        self._is_closed = False
        queries = ClientQueryHandlers(self.group, queried, namespace)
        self._listener = Listener(self.cluster.client, (self, queries), self._closed)
        self._due = asyncio.Event()
        self._freshness = Freshness(self._due.set)
        #: Held during each query of the group.
        self._looking = asyncio.Lock()
        self._loops: list[asyncio.Task[None]] = []
        self._ticking: asyncio.Task[None] | None = None
        self._announcing: set[asyncio.Task[None]] = set()
        self._is_doubtful = self._is_group_doubtful = False
        #: Requests for another query in a row, and the time of the last one.
        self._doubts = 0
        self._doubted_at = 0.0
        #: Time to the next periodic rebalance.
        self._interval_s = REBALANCE_S
        #: Rebalances in a row after which a topic or queue was missing.
        self._misses = 0
        self._view: View | None = None

    async def start(self) -> None:
        """Join the group and take this member's queues. Raises an error that a user must fix, such as a wrong
        address."""
        self._listener.start()
        await self.refresh()
        if self._is_closed:
            return
        self._loops = [
            asyncio.create_task(self._look_forever()),
            asyncio.create_task(self._announce_forever()),
        ]
        self._ticking = asyncio.create_task(self._tick_forever())

    async def stop(self) -> None:
        """End the periodic queries. Returns when a query in progress has given back the queues it was taking.
        Idempotent."""
        for task in self._loops:
            task.cancel()
        await asyncio.gather(
            *(task for task in self._loops if task is not asyncio.current_task()), return_exceptions=True
        )

    async def close(self) -> None:
        """Leave the group and close the connection. Idempotent."""
        await self.stop()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for task in (self._ticking, *self._announcing):
                if task is not None:
                    task.cancel()
            self._listener.close()
            await self._membership.leave()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the connection without waiting; brokers treat this as leaving the group. Idempotent."""
        self._is_closed = True
        self._listener.close()
        self.caller.close()
        self.cluster.close()

    def look_again(self, error: errors.RocketMQError | None = None) -> None:
        """Schedule a heartbeat and a query of the group, with growing pauses while calls repeat. `error` is a broker's
        refusal."""
        # A broker that was unreachable when the group was created may not know it. Otherwise the group must be created.
        self._is_group_doubtful |= isinstance(error, errors.GroupNotFound)
        if self._is_doubtful:
            return
        self._is_doubtful = True
        now = self._loop.time()
        self._doubts = self._doubts + 1 if now < self._doubted_at + REBALANCE_S else 1
        pause_s = FAILING.pause_s(self._doubts)
        self._doubted_at = now + pause_s
        self._loop.call_later(pause_s, self._due.set)

    async def refresh(self) -> None:
        """Send heartbeats and query the group now. Returns when the view is applied."""
        async with self._looking:
            await self._membership.announce()
            await self._look()

    @property
    def is_fresh(self) -> bool:
        """True if no change since the newest view is known. Any thread."""
        return self._freshness.is_fresh

    async def confirm(self) -> None:
        """Return when the newest view is fresh and applied: immediately, unless the group changed or the process was
        suspended. Raises the error that prevented the query."""
        self._freshness.tick()
        while not self.is_fresh:
            async with self._looking:
                if not self.is_fresh:
                    await self._look()

    async def resubscribe(self) -> None:
        """Send the changed subscriptions to brokers, then query the group."""
        await self._membership.announce()
        self._due.set()

    def tolerate(self, error: Exception) -> None:
        """Log a transient error and schedule a retry; any other error ends the member."""
        if isinstance(error, errors.RouteError) or (
            isinstance(error, errors.RocketMQError) and error.retriable
        ):
            outages.warn(log, error, "group %s", self.group)
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
                # `wait_for` of Python 3.11 can lose a cancellation that arrives together with the result.
                async with asyncio.timeout(self._interval_s):
                    await self._due.wait()
            self._due.clear()
            try:
                async with self._looking:
                    if self._is_group_doubtful:
                        self._is_doubtful = self._is_group_doubtful = False
                        await self._membership.announce()
                        await self._shares.check_group()
                    elif self._is_doubtful:
                        self._is_doubtful = False
                        await self._announce_soon()
                    await self._look()
            except Exception as error:
                self.tolerate(error)
                if not self.is_fresh:
                    # No commit is possible before the next query.
                    self._interval_s = min(self._interval_s, REBALANCE_SOON.first_s)
            await asyncio.sleep(REBALANCE_PAUSE_S)

    async def _announce_soon(self) -> None:
        """Send heartbeats and wait briefly, so that a slow broker does not delay the query of the group."""

        async def announce() -> None:
            try:
                await self._membership.announce()
            except Exception as error:
                self.tolerate(error)

        announcing = asyncio.create_task(announce())
        self._announcing.add(announcing)
        announcing.add_done_callback(self._announcing.discard)
        await asyncio.wait([announcing], timeout=ANSWER_S)

    async def _tick_forever(self) -> None:
        while True:
            self._freshness.tick()
            await asyncio.sleep(ALIVE_S)

    async def _look(self) -> None:
        with self._freshness.looking() as since:
            view = await self._shares.view()
            is_had = await self._apply(view, since)
        self._plan_next(view, is_had=is_had)

    def _plan_next(self, view: View, *, is_had: bool) -> None:
        before = self._view
        self._view = view
        for topic in sorted(view.absent - (before.absent if before is not None else frozenset())):
            # Brokers create the group's retry topic at its first heartbeat.
            if not topic.startswith(names.RETRY_PREFIX):
                absent_log.warning("group %s: topic %s does not exist, checking again", self.group, topic)
        # A missing topic may be created at any time; this includes the group's retry topic.
        missing = view.absent | view.unknown
        if before is not None and missing != before.absent | before.unknown:
            self._misses = 0
        if is_had and not missing:
            self._misses, self._interval_s = 0, REBALANCE_S
        else:
            self._misses += 1
            soon = REBALANCE_SOON if not is_had else MISSING
            self._interval_s = soon.pause_s(self._misses)

    # ---- requests of brokers ------------------------------------------------------------------------------

    @handles(NotifyConsumerIdsChanged)
    def group_changed(self, ask: NotifyConsumerIdsChanged) -> None:
        self._freshness.change()

    @handles(ResetConsumerClientOffset)
    def move(self, ask: ResetConsumerClientOffset) -> None:
        if ask.group == self.group:
            self._reset(ask.body.by_queue())

    def _closed(self, address: str) -> None:
        if self._membership.has_notified(address):
            # The broker forgot this member with the connection.
            self.look_again()
