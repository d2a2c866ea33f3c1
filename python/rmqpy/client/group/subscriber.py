"""Subscriber: membership of a consumer that polls, in its own thread, so that it survives while its user is busy.

Owns the thread and the newest view of the group. The consumer applies the view when it polls, so that its queues never
change in between. Any thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.client_queries import member_properties
from rmqpy.client.group.loop_thread import LoopThread
from rmqpy.client.group.membership import Member
from rmqpy.client.group.membership_keeper import MembershipKeeper
from rmqpy.client.group.offsets import begins
from rmqpy.client.group.rebalance import View
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.identity import client_id
from rmqpy.clock import running
from rmqpy.config.client import ClientConfig
from rmqpy.message import Filter, MessageQueue, ReceivedMessage
from rmqpy.protocol.allocation import averagely
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import ConsumeType, MessageModel
from rmqpy.protocol.requests.introspection import ConsumerRunningInfo, DirectConsumption, ProcessQueueInfo
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Time a member waits before it starts a queue of another owner.
GRACE_S: Final = 1.0


class Dated(NamedTuple):
    """A view and its times, all on the running clock."""

    view: View
    #: The time the view was first obtained.
    seen_at: float
    #: Former queues of this member, and the time from which they may belong to another member.
    gone: Mapping[MessageQueue, float]
    #: Queues that another member may have owned in between, and the time at which they returned.
    returned: Mapping[MessageQueue, float]

    def is_late(self, queue: MessageQueue) -> bool:
        """Return whether another member may have started a queue that this member has to give up."""
        return self.view.is_stranger or running() > self.gone.get(queue, self.seen_at) + GRACE_S


class Subscriber:
    """A member of `group` whose consumer polls."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        beginnings: Beginnings,
        positions: Callable[[], Mapping[MessageQueue, int]],
    ) -> None:
        """`positions` returns the consumer's offsets; called from the subscriber's thread."""
        self.subscriptions = Subscriptions()
        #: The error that ended the membership.
        self.failure: BaseException | None = None
        self._config = config
        self._group = group
        self._beginnings = beginnings
        self.positions = positions
        self._began_ms = round(time.time() * 1000)
        self._newest: Dated | None = None
        self._keeper: MembershipKeeper
        self._thread: LoopThread | None = None

    @property
    def newest(self) -> Dated | None:
        """The newest view of the member's queues."""
        return self._newest

    @property
    def is_fresh(self) -> bool:
        """True if no change since the newest view is known."""
        return self._thread is not None and self._keeper.is_fresh

    def confirmed(self, *, is_known: bool = True) -> Future[None]:
        """Return a future that is done when the newest view is fresh, or could not become so. `is_known=False`: a
        broker has forgotten this member."""
        if self._thread is None:
            # The member failed to join.
            return _done()
        work = self._keeper.confirm() if is_known else self._keeper.refresh()
        return self._thread.submit(work)

    def put(self, topics: Iterable[str], wanted: Filter) -> None:
        """Subscribe. Returns when brokers have the subscription and the share is known."""
        for topic in topics:
            self.subscriptions.put(topic, wanted)
        if self._thread is None:
            thread = LoopThread(f"rmqpy-{self._group}", self._live)
            try:
                self._thread = thread
                thread.start()
            except BaseException:
                thread.cancel()
                self._thread = None
                raise
        else:
            self._thread.submit(self._keeper.resubscribe()).result()

    def doubt(self, topic: str, error: errors.RocketMQError) -> None:
        """Note that a broker does not serve a topic, and query the group soon."""

        def look() -> None:
            self._keeper.cluster.routes.doubt(topic, is_gone=isinstance(error, errors.TopicNotFound))
            self._keeper.look_again(error)

        if self._thread is not None:
            self._thread.call(look)

    def leave(self) -> Future[None]:
        """Leave the group; the future is done when brokers were notified or did not answer. Does not wait, and may be
        called by a finalizer. Idempotent."""
        if self._thread is None:
            return _done()
        self._thread.cancel()
        return self._thread.ended

    # ---- client queries, on its own thread ------------------------------------------------------

    def running_info(self) -> ConsumerRunningInfo:
        """Return running info; a polling consumer has no pending messages."""
        return ConsumerRunningInfo(
            properties=member_properties(
                self._config.namesrv,
                ConsumeType.CONSUME_ACTIVELY,
                began_ms=self._began_ms,
                is_ordered=False,
                workers=0,
            ),
            subscription_set=[one.data() for one in self.subscriptions.table.values()],
            mq_table={
                named(queue): ProcessQueueInfo(commit_offset=offset)
                for queue, offset in self.positions().items()
            },
            status_table={},
        )

    async def handle(self, message: ReceivedMessage) -> DirectConsumption:
        """Refuse: a polling consumer has no handler."""
        remark = f"a member of {self._group} that polls cannot be handed a message"
        raise Refused(ResponseCode.SYSTEM_ERROR, remark)

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _live(self, ready: Callable[[], None]) -> None:
        member = Member(
            self._group,
            client_id(self._config.namesrv, None, self._config.unit),
            self.subscriptions,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            begins(self._beginnings.start_from),
        )
        self._keeper = MembershipKeeper(
            self._config,
            member,
            averagely,
            apply=self._apply,
            # The broker answers the next pull with the new offset, so a reset needs no action.
            reset=lambda moved: None,
            fail=self._fail,
            queried=self,
        )
        try:
            await self._keeper.start()
            ready()
            await asyncio.get_running_loop().create_future()
        finally:
            await self._keeper.close()

    async def _apply(self, view: View, since: float) -> bool:
        self._beginnings.see(view.readable)
        self._beginnings.keep(view.readable.keys() | view.unknown)
        self._newest = _dated(view, since, self._newest)
        return True

    def _fail(self, error: BaseException) -> None:
        log.error("group %s: %s", self._group, error)
        self.failure = error


def _done() -> Future[None]:
    nothing: Future[None] = Future()
    nothing.set_result(None)
    return nothing


def _dated(view: View, since: float, before: Dated | None) -> Dated:
    """Return a new view with the times of queues that left and returned. The group may have changed at `since`."""
    now = running()
    if before is None:
        return Dated(view, now, {}, {})
    had = before.view.queues
    gone = {queue: at for queue, at in before.gone.items() if queue not in view.queues}
    gone.update((queue, since) for queue in had - view.queues)
    again = view.queues & before.gone.keys()
    if now > since + GRACE_S:
        again |= view.queues & had
    returned = {queue: at for queue, at in before.returned.items() if queue in view.queues}
    returned.update((queue, now) for queue in again)
    return Dated(view, before.seen_at if before.view == view else now, gone, returned)
