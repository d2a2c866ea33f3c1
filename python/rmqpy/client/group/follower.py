"""A polling consumer's share of a group: what it owns changes between two polls, and its user is told.

Owns the step from one share to the next. Invariant: a queue is revoked with its progress committed, or, when the
consumer comes so late that another member has begun with it, is lost without a commit. For the thread or task of the
consumer.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.group.subscriber import Subscriber
from rmqpy.message import MessageQueue

#: Others wait for so long before they begin with a queue that had an owner.
GRACE_S: Final = 1.0
#: A poll looks at the group at least this often.
LOOK_S: Final = 0.5

Notify = Callable[[Rebalance], Awaitable[None]]


class Assignable(Protocol):
    """The part of a consumer that changes with its share."""

    def assignment(self) -> frozenset[MessageQueue]: ...

    async def share(self, queues: Iterable[MessageQueue], tags: Mapping[str, str]) -> None: ...

    async def commit_these(self, queues: frozenset[MessageQueue]) -> None: ...

    async def sleep(self, seconds: float) -> None: ...


class Follower:
    """Makes what a consumer reads follow its group."""

    def __init__(self, subscriber: Subscriber, reading: Assignable, *, is_committing: bool) -> None:
        self.subscriber = subscriber
        self._reading = reading
        self._is_committing = is_committing
        self._notify: dict[str, Notify] = {}
        self._changing: frozenset[MessageQueue] | None = None

    def listen(self, topic: str, notify: Notify | None) -> None:
        """Tell `notify` of changes that concern `topic`."""
        if notify is not None:
            self._notify[topic] = notify

    def lost(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Those of `queues` that are not this member's, or not any more."""
        newest = self.subscriber.newest
        owned = set(self._reading.assignment())
        if newest is not None and self._changing is None:
            owned -= newest.view.given(owned)
        return sorted(set(queues) - owned)

    async def follow(self) -> None:
        """Take over the newest share. Raises what ended the membership."""
        if self.subscriber.failure is not None:
            raise self.subscriber.failure
        newest = self.subscriber.newest
        owned = self._reading.assignment()
        if newest is None or self._changing is not None:
            return
        view, since = newest
        tags = {topic: one.tags for topic, one in self.subscriber.subscriptions.table.items()}
        given, taken = frozenset(view.given(owned)), frozenset(view.taken(owned))
        if not given and not taken:
            return
        is_late = view.is_stranger or time.monotonic() > since + GRACE_S
        change = Rebalance(taken, frozenset() if is_late else given, given if is_late else frozenset())
        self._changing = given
        try:
            if taken:
                if not view.is_alone:
                    # The one before us commits when it hears of the change, as we do.
                    await self._reading.sleep(max(0.0, since + GRACE_S - time.monotonic()))
                await self._reading.share(sorted(owned | taken), tags)
            if change.revoked and self._is_committing:
                await self._reading.commit_these(change.revoked)
            for topic, notify in self._notify.items():
                concerned = Rebalance(*(frozenset(q for q in part if q.topic == topic) for part in change))
                if concerned:
                    await notify(concerned)
        finally:
            self._changing = None
            await self._reading.share(sorted((owned | taken) - given), tags)
