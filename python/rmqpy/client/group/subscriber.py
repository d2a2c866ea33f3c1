"""Membership for a consumer that polls: in a thread of its own, so that it lasts while its user is busy.

Owns the thread and the newest view of the group. The consumer takes the view when it polls, in its own time: what
it owns changes then, and not under its hands. Any thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy.client.allocation import averagely
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.client_queries import member_properties
from rmqpy.client.group.identity import client_id
from rmqpy.client.group.membership import Member
from rmqpy.client.group.membership_keeper import MembershipKeeper
from rmqpy.client.group.offsets import begins
from rmqpy.client.group.rebalance import View
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.loop_thread import LoopThread
from rmqpy.clock import running
from rmqpy.config.client import ClientConfig
from rmqpy.message import Filter, MessageQueue, ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import ConsumeType, MessageModel
from rmqpy.protocol.requests.introspection import ConsumerRunningInfo, DirectConsumption, ProcessQueueInfo
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Others wait for so long before they begin with a queue that had an owner.
GRACE_S: Final = 1.0


class Dated(NamedTuple):
    """A view and its times, all on the running clock."""

    view: View
    #: When it was first seen.
    seen_at: float
    #: Queues that were this member's: since when they may not be.
    gone: Mapping[MessageQueue, float]
    #: Queues that are this member's, and may have been another's in between: when they were this one's again.
    returned: Mapping[MessageQueue, float]

    def is_late(self, queue: MessageQueue) -> bool:
        """Another member may have begun with a queue that this one has to give up."""
        return self.view.is_stranger or running() > self.gone.get(queue, self.seen_at) + GRACE_S


class Subscriber:
    """A member of `group` that does not consume by itself."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        beginnings: Beginnings,
        positions: Callable[[], Mapping[MessageQueue, int]],
    ) -> None:
        """`positions`: where the consumer stands; asked from the subscriber's thread."""
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
        """The newest view of what the member should own."""
        return self._newest

    @property
    def is_fresh(self) -> bool:
        """The newest view is what the group agreed on, as far as anybody knows."""
        return self._thread is not None and self._keeper.is_fresh

    def confirmed(self, *, is_known: bool = True) -> Future[None]:
        """Done when the newest view is fresh, or has failed to become so. `is_known`: no broker has forgotten us."""
        if self._thread is None:
            # It has not become a member.
            return _done()
        work = self._keeper.confirm() if is_known else self._keeper.refresh()
        return self._thread.submit(work)

    def put(self, topics: Iterable[str], wanted: Filter) -> None:
        """Subscribe. Returns when the group has heard of it and the share is known."""
        for topic in topics:
            self.subscriptions.put(topic, wanted)
        if self._thread is None:
            self._thread = LoopThread(f"rmqpy-{self._group}", self._live)
            try:
                self._thread.start()
            except BaseException:
                self._thread = None
                raise
        else:
            self._thread.submit(self._keeper.resubscribe()).result()

    def doubt(self, topic: str, error: errors.RocketMQError) -> None:
        """A broker does not serve a topic: look at the group in a moment."""

        def look() -> None:
            self._keeper.cluster.routes.doubt(topic, is_gone=isinstance(error, errors.TopicNotFound))
            self._keeper.look_again(error)

        if self._thread is not None:
            self._thread.call(look)

    def leave(self) -> Future[None]:
        """Leave the group; done when brokers know, or did not answer. Does not wait, and may be a finalizer's.
        Idempotent."""
        if self._thread is None:
            return _done()
        self._thread.cancel()
        return self._thread.ended

    # ---- client queries, on its own thread ------------------------------------------------------

    def running_info(self) -> ConsumerRunningInfo:
        """Running info for brokers; a consumer that polls has nothing that waits."""
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
        """Refuses: there is no handler to hand a message to."""
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
            # A poll meets a reset by itself: the broker answers it with the new offset.
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
    """A new view, of a group that may have changed at `since`, and what of the view before is still to be noted."""
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
