"""Rebalance: the queues this member should have now, and their difference from those it has.

Owns the view of the group that the member acts on. Every member computes the shares of all alone, so that what is
asked here is asked before every decision and never remembered. For the event loop its caller belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rmqpy.client.allocation import Allocate
from rmqpy.client.group.membership import Membership
from rmqpy.message import MessageQueue
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import MessageModel


class Rebalance(NamedTuple):
    """Queues that changed hands.

    `assigned` are this member's from now on. `revoked` were handed over in order: their progress is committed. `lost`
    were taken while this member was not heard of: what it had not committed is being delivered to another member.
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
    #: Topics that do not exist: what is owned of them is given up.
    absent: frozenset[str]
    #: Brokers do not know this member, so that others have its queues.
    is_stranger: bool
    #: No other member can have had the queues that are new.
    is_alone: bool
    #: Topic → all its queues, those of other members included; empty for a topic that does not exist.
    readable: Mapping[str, tuple[MessageQueue, ...]]

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
                await self.check_group()
        return view

    async def check_group(self) -> None:
        """Raise `GroupNotFound` when a broker that was told of this member knows no such group."""
        for route in (await self._membership.routes()).routes.values():
            await self._membership.check_group(route)

    async def _look(self) -> View:
        member = self._membership.member
        routes, absent, unknown = await self._membership.routes()
        readable = dict.fromkeys(absent, ()) | {topic: route.readable for topic, route in routes.items()}
        queues: list[MessageQueue] = []
        me = member.client_id
        is_stranger, is_alone = False, True
        if member.model is MessageModel.BROADCASTING:
            queues = [queue for route in routes.values() for queue in route.readable]
            routes = {}
        known = await asyncio.gather(*map(self._membership.members, routes.values()))
        for (topic, route), members in zip(routes.items(), known, strict=True):
            is_stranger |= members is not None and me not in members
            if not members:
                unknown.add(topic)
                continue
            is_alone &= members == [me]
            queues += self._allocate(me, route.readable, members)
        return View(
            frozenset(queues),
            frozenset(unknown),
            frozenset(absent),
            is_stranger,
            # The group's own topic appears with its first heartbeat, a moment after the others are read.
            is_alone and not any(topic.startswith(names.RETRY_PREFIX) for topic in absent | unknown),
            readable,
        )
