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
from rmqpy.client import outages
from rmqpy.client.allocation import Allocate, on_wire
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.client_queries import ClientQueryHandlers, QueryableMember
from rmqpy.client.group.freshness import ALIVE_S, Freshness
from rmqpy.client.group.membership import ANSWER_S, Member, Membership
from rmqpy.client.group.rebalance import Shares, View
from rmqpy.client.stderr import Stderr
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
#: A misspelt topic is seen by whoever runs the program.
absent_log = log.getChild("absent")
absent_log.addHandler(Stderr(absent_log))

HEARTBEAT_S: Final = 30.0
REBALANCE_S: Final = 20.0
#: While some queue could not be had: its lock is another member's, say.
REBALANCE_SOON: Final = Backoff(1.0, 5.0)
#: While a topic is not there.
MISSING: Final = Backoff(1.0, REBALANCE_S)
#: The least between two of them, whatever happens.
REBALANCE_PAUSE_S: Final = 0.1

#: Acts on a view, of a group that may have changed since that time on the running clock; False when something of it
#: could not be had yet.
Apply = Callable[[View, float], Awaitable[bool]]


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
        queried: QueryableMember,
    ) -> None:
        """`reset`: a broker orders to read queues from elsewhere. `fail`: the member cannot go on. `queried` answers
        client queries."""
        self.group = member.group
        self._loop = asyncio.get_running_loop()
        # A broker knows members apart by their connections: this one has its own.
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
        #: Held by whoever looks.
        self._looking = asyncio.Lock()
        self._loops: list[asyncio.Task[None]] = []
        self._ticking: asyncio.Task[None] | None = None
        self._announcing: set[asyncio.Task[None]] = set()
        self._is_doubtful = self._is_group_doubtful = False
        #: Doubts that followed each other, and when the last one was.
        self._doubts = 0
        self._doubted_at = 0.0
        #: Time to the next rebalance, unless something happens before.
        self._interval_s = REBALANCE_S
        #: Looks in a row after which something could not be had.
        self._misses = 0
        self._view: View | None = None

    async def start(self) -> None:
        """Join the group and take what is this member's. Raises what a user has to mend, such as a wrong address."""
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
        """Look no more, unless it is asked for. Returns when a look under way has given back what it was about to take.
        Idempotent."""
        for task in self._loops:
            task.cancel()
        await asyncio.gather(
            *(task for task in self._loops if task is not asyncio.current_task()), return_exceptions=True
        )

    async def close(self) -> None:
        """Leave the group and end the connection. Idempotent."""
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
        """End the connection, which brokers take for a goodbye; waits for nothing. Idempotent."""
        self._is_closed = True
        self._listener.close()
        self.caller.close()
        self.cluster.close()

    def look_again(self, error: errors.RocketMQError | None = None) -> None:
        """Tell brokers again who we are, and look at the group, in a moment; after longer ones while it is asked for
        again and again. `error`: what a broker said."""
        # One that was silent when the group was made has not heard of it; else somebody has to make it.
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
        """Tell brokers who we are and look at the group, now. Returns when the view has been acted on."""
        async with self._looking:
            await self._membership.announce()
            await self._look()

    @property
    def is_fresh(self) -> bool:
        """The newest view is what the group agreed on, as far as anybody knows. Any thread."""
        return self._freshness.is_fresh

    async def confirm(self) -> None:
        """Return when the newest view is fresh and acted on: at once, unless the group has changed, or the process
        stood still. Raises what kept it from being looked at."""
        self._freshness.tick()
        while not self.is_fresh:
            async with self._looking:
                if not self.is_fresh:
                    await self._look()

    async def resubscribe(self) -> None:
        """Subscriptions have changed: tell brokers, then look."""
        await self._membership.announce()
        self._due.set()

    def tolerate(self, error: Exception) -> None:
        """Log an error that passes, and try again; any other one ends the member."""
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
                # `wait_for` of Python 3.11 loses a cancellation that comes together with what it waits for.
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
                    # Nothing can be committed before.
                    self._interval_s = min(self._interval_s, REBALANCE_SOON.first_s)
            await asyncio.sleep(REBALANCE_PAUSE_S)

    async def _announce_soon(self) -> None:
        """Tell brokers, and wait for those that answer soon: one that does not keeps nobody from looking."""

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
            # Brokers make the group's own with the first heartbeat.
            if not topic.startswith(names.RETRY_PREFIX):
                absent_log.warning("group %s: topic %s does not exist; it is looked for", self.group, topic)
        # A topic may be made at any moment, the group's own to begin with.
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
        if self._membership.has_told(address):
            # The broker has forgotten us with the connection.
            self.look_again()
