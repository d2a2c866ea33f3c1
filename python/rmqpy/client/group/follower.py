"""Follower: applies the group's changes to a polling consumer between two polls, and notifies its user.

Owns the step from one share to the next. Invariant: a queue is revoked with its progress committed, or lost without a
commit when another member may have started it: when this consumer is late, or another member changed the progress.
For the thread or task of the consumer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, Protocol

from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.group.subscriber import GRACE_S, Dated, Subscriber
from rmqpy.clock import running
from rmqpy.message import Filter, MessageQueue

#: The longest poll before the group is checked again.
LOOK_S: Final = 0.5
#: Time to confirm the view after a change or a pause of the process. A commit fails when it runs out.
CONFIRM_S: Final = 3.0

Notify = Callable[[Rebalance], Awaitable[None]]


class Assignable(Protocol):
    """The part of a consumer that changes with its share of the queues."""

    def assignment(self) -> frozenset[MessageQueue]: ...

    async def take(
        self, queues: Collection[MessageQueue], filters: Mapping[str, Filter]
    ) -> frozenset[MessageQueue]: ...

    def keep(self, queues: Collection[MessageQueue]) -> None: ...

    async def commit_these(self, queues: frozenset[MessageQueue]) -> frozenset[MessageQueue]: ...

    async def compare(
        self, queues: Collection[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], frozenset[MessageQueue]]: ...

    async def sleep(self, seconds: float) -> None: ...

    async def until(self, done: Future[None], seconds: float) -> bool: ...


class Follower:
    """Assigns and revokes the queues of one polling consumer."""

    def __init__(self, subscriber: Subscriber, reading: Assignable, *, is_committing: bool) -> None:
        self.subscriber = subscriber
        self._reading = reading
        self._is_committing = is_committing
        self._notify: dict[str, Notify] = {}
        #: Queues that are being given up, while the callback runs.
        self._changing: frozenset[MessageQueue] | None = None
        #: Returned queues whose progress no other member had changed, and the time of their return.
        self._compared: dict[MessageQueue, float] = {}

    def listen(self, topics: Iterable[str], notify: Notify | None) -> None:
        """Call `notify` on changes that concern one of `topics`."""
        if notify is not None:
            self._notify |= dict.fromkeys(topics, notify)

    async def lost(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Return the queues that this member does not own. While that cannot be confirmed, return all of them."""
        subscriber = self.subscriber
        if not subscriber.is_fresh:
            await self._reading.until(subscriber.confirmed(), CONFIRM_S)
            if not subscriber.is_fresh:
                return sorted(queues)
        newest = subscriber.newest
        owned = set(self._reading.assignment())
        if newest is not None:
            handing_over = self._changing or frozenset()
            owned -= {
                queue
                for queue in newest.view.given(owned)
                if queue not in handing_over or newest.is_late(queue)
            }
            same, _ = await self._compare(newest, owned.intersection(queues))
            owned = {queue for queue in owned if queue in same or not self._is_doubtful(newest, queue)}
        return sorted(set(queues) - owned)

    async def announce(self) -> None:
        """Send heartbeats again, to the brokers that answer."""
        await self._reading.until(self.subscriber.confirmed(is_known=False), CONFIRM_S)

    async def follow(self) -> None:
        """Apply the newest share. Raises the error that ended the membership."""
        if self.subscriber.failure is not None:
            raise self.subscriber.failure
        newest = self.subscriber.newest
        if newest is None or self._changing is not None:
            return
        view, owned = newest.view, self._reading.assignment()
        given = frozenset(view.given(owned))
        _, moved = await self._compare(newest, owned - given)
        if given or moved:
            await self._give(newest, given, moved)
        taken = frozenset(view.taken(owned)) | moved
        if taken:
            if not view.is_alone:
                # The previous owner commits when it learns of the change, as this member does.
                await self._reading.sleep(max(0.0, newest.seen_at + GRACE_S - running()))
            await self._take(newest, taken)

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _give(
        self, newest: Dated, given: frozenset[MessageQueue], moved: frozenset[MessageQueue]
    ) -> None:
        revoked = frozenset(queue for queue in given if not newest.is_late(queue))
        self._changing = given
        try:
            if revoked and self._is_committing:
                revoked = await self._reading.commit_these(revoked)
            await self._tell(Rebalance(revoked=revoked, lost=(given - revoked) | moved))
        finally:
            self._changing = None
            self._reading.keep(self._reading.assignment() - given - moved)

    async def _take(self, newest: Dated, queues: frozenset[MessageQueue]) -> None:
        filters = {topic: one.filter for topic, one in self.subscriber.subscriptions.table.items()}
        # Queues that cannot be started yet follow with a later change.
        taken = await self._reading.take(queues, filters)
        self._compared.update((queue, newest.returned[queue]) for queue in taken & newest.returned.keys())
        await self._tell(Rebalance(assigned=taken))

    async def _tell(self, change: Rebalance) -> None:
        # Topics may share one callback, which is called once.
        for notify in dict.fromkeys(self._notify.values()):
            concerned = Rebalance(
                *(frozenset(q for q in part if self._notify.get(q.topic) is notify) for part in change)
            )
            if concerned:
                await notify(concerned)

    def _is_doubtful(self, newest: Dated, queue: MessageQueue) -> bool:
        """Return whether another member may have owned the queue in between."""
        returned_at = newest.returned.get(queue)
        return returned_at is not None and self._compared.get(queue) != returned_at

    async def _compare(
        self, newest: Dated, queues: Collection[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], frozenset[MessageQueue]]:
        """Split the doubtful ones of `queues` into those whose progress is unchanged, and those that another member
        moved."""
        doubtful = [queue for queue in queues if self._is_doubtful(newest, queue)]
        if not doubtful:
            return frozenset(), frozenset()
        same, moved = await self._reading.compare(doubtful)
        self._compared.update((queue, newest.returned[queue]) for queue in same)
        return same, moved
