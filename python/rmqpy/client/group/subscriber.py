"""Membership for a consumer that polls: in a thread of its own, so that it lasts while its user is busy.

Owns the thread and the newest view of the group. The consumer takes the view when it polls, in its own time: what
it owns changes then, and not under its hands. Any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from rmqpy.client.allocation import averagely
from rmqpy.client.group.client_queries import ClientQueryHandlers, member_properties
from rmqpy.client.group.identity import client_id
from rmqpy.client.group.membership import Member
from rmqpy.client.group.membership_keeper import MembershipKeeper
from rmqpy.client.group.offsets import StartFrom, begins
from rmqpy.client.group.rebalance import View
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.config.client import ClientConfig
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import ConsumeType, MessageModel
from rmqpy.protocol.requests.introspection import ConsumerRunningInfo, DirectConsumption, ProcessQueueInfo
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)


class Dated(NamedTuple):
    """A view, and when it was first seen, on the monotonic clock."""

    view: View
    since: float


class Subscriber:
    """A member of `group` that does not consume by itself."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        start_from: StartFrom,
        positions: Callable[[], Mapping[MessageQueue, int]],
    ) -> None:
        """`positions`: where the consumer stands; asked from the subscriber's thread."""
        self.subscriptions = Subscriptions()
        #: The error that ended the membership.
        self.failure: BaseException | None = None
        self._config = config
        self._group = group
        self._start_from = start_from
        self.positions = positions
        self._began_ms = round(time.time() * 1000)
        self._newest: Dated | None = None
        self._loop: asyncio.AbstractEventLoop
        self._keeper: MembershipKeeper
        self._end: asyncio.Event
        self._thread: threading.Thread | None = None

    @property
    def newest(self) -> Dated | None:
        """The newest view of what the member should own."""
        return self._newest

    def put(self, topic: str, tags: str) -> None:
        """Subscribe. Returns when the group has heard of it and the share is known."""
        self.subscriptions.put(topic, tags)
        if self._thread is None:
            started: Future[None] = Future()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._live(started)), name=f"rmqpy-{self._group}", daemon=True
            )
            self._thread.start()
            try:
                started.result()
            except BaseException:
                self._thread = None
                raise
        else:
            self._run(self._keeper.resubscribe())

    def close(self) -> None:
        """Leave the group. Idempotent."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

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

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _live(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        member = Member(
            self._group,
            client_id(self._config.namesrv, None),
            self.subscriptions,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            begins(self._start_from),
        )
        self._keeper = MembershipKeeper(
            self._config,
            member,
            averagely,
            apply=self._apply,
            # A poll meets a reset by itself: the broker answers it with the new offset.
            reset=lambda moved: None,
            fail=self._fail,
            queries=ClientQueryHandlers(self._group, self),
        )
        try:
            await self._keeper.start()
            started.set_result(None)
            await self._end.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            await self._keeper.close()

    async def _apply(self, view: View) -> bool:
        if self._newest is None or self._newest.view != view:
            self._newest = Dated(view, time.monotonic())
        return True

    def _fail(self, error: BaseException) -> None:
        log.error("group %s: %s", self._group, error)
        self.failure = error
