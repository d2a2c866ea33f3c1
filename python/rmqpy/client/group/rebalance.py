"""Rebalance: the queues this member should have now, and their difference from those it has.

Owns the view of the group that the member acts on. Every member computes the shares of all alone, so that what is
asked here is asked before every decision and never remembered. For the event loop its caller belongs to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rmqpy.client.allocation import Allocate
from rmqpy.client.group.membership import Membership
from rmqpy.message import MessageQueue
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import MessageModel


class Rebalance(NamedTuple):
    """Queues that changed hands.

    `revoked` were handed over in order: their progress is committed. `lost` were taken while this member was not
    heard of: what it had not committed is being delivered to another member.
    """

    assigned: frozenset[MessageQueue] = frozenset()
    revoked: frozenset[MessageQueue] = frozenset()
    lost: frozenset[MessageQueue] = frozenset()

    def __bool__(self) -> bool:
        return any(self)


class View(NamedTuple):
    """The queues a member should own, as far as they are known."""

    queues: frozenset[MessageQueue]
    #: Topics of which nothing could be learned: what is owned of them stays.
    unknown: frozenset[str]
    #: Brokers do not know this member, so that others have its queues.
    is_stranger: bool
    #: No other member can have had the queues that are new.
    is_alone: bool

    def taken(self, owned: Collection[MessageQueue]) -> set[MessageQueue]:
        """Queues to take."""
        return set(self.queues - frozenset(owned))

    def given(self, owned: Collection[MessageQueue]) -> set[MessageQueue]:
        """Queues to give up."""
        return {queue for queue in owned if queue not in self.queues and queue.topic not in self.unknown}


class Shares:
    """Computes what one member should own."""

    def __init__(self, membership: Membership, allocate: Allocate) -> None:
        self._membership = membership
        self._allocate = allocate

    async def view(self) -> View:
        """Ask for routes and members, and share. A broker that does not know this member hears of it first.

        Raises `NameServerUnreachable` when no route is known, and what keeps this member out of the group.
        """
        view = await self._look()
        if view.is_stranger:
            await self._membership.announce()
            view = await self._look()
            if view.is_stranger:
                for route in (await self._membership.routes()).values():
                    await self._membership.check_group(route)
        return view

    async def _look(self) -> View:
        member = self._membership.member
        routes = await self._membership.routes()
        queues: list[MessageQueue] = []
        unknown = member.subscriptions.table.keys() - routes.keys()
        me = member.client_id
        is_stranger, is_alone = False, True
        for topic, route in routes.items():
            if member.model is MessageModel.BROADCASTING:
                queues += route.readable
                continue
            members = await self._membership.members(route)
            is_stranger |= members is not None and me not in members
            if not members:
                unknown.add(topic)
                continue
            is_alone &= members == [me]
            queues += self._allocate(me, route.readable, members)
        return View(
            frozenset(queues),
            # The group's own topic appears with its first heartbeat, a moment after the others are read.
            frozenset(unknown),
            is_stranger,
            is_alone and not any(topic.startswith(names.RETRY_PREFIX) for topic in unknown),
        )
