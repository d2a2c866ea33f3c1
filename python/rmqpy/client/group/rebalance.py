"""Rebalance: the queues this member should own, compared with those it owns.

Owns the view of the group that the member acts on. Every member computes all shares alone, so the view is queried
before each decision and never cached. For its caller's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rmqpy.client.group.allocation import Allocate
from rmqpy.client.group.membership import Membership
from rmqpy.message import MessageQueue
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import MessageModel


class Rebalance(NamedTuple):
    """Queues that changed owner.

    `assigned` belong to this member from now on. `revoked` were released in order, with their progress committed.
    `lost` were taken while this member was unreachable, so another member receives the messages it had not committed.
    """

    assigned: frozenset[MessageQueue] = frozenset()
    revoked: frozenset[MessageQueue] = frozenset()
    lost: frozenset[MessageQueue] = frozenset()

    def __bool__(self) -> bool:
        return any(self)


class View(NamedTuple):
    """The queues a member should own."""

    queues: frozenset[MessageQueue]
    #: Topics without a known route or members; their queues stay owned.
    unknown: frozenset[str]
    #: Topics that do not exist; their queues are given up.
    absent: frozenset[str]
    #: True if brokers do not know this member, so that others have its queues.
    is_stranger: bool
    #: True if no other member can have owned the new queues.
    is_alone: bool
    #: Topic → all its queues, including those of other members; empty for an absent topic.
    readable: Mapping[str, tuple[MessageQueue, ...]]

    def taken(self, owned: Collection[MessageQueue]) -> set[MessageQueue]:
        """Return the queues to take."""
        return set(self.queues - frozenset(owned))

    def given(self, owned: Collection[MessageQueue]) -> set[MessageQueue]:
        """Return the queues to give up."""
        return {queue for queue in owned if queue not in self.queues and queue.topic not in self.unknown}


class Shares:
    """The computation of one member's share."""

    def __init__(self, membership: Membership, allocate: Allocate) -> None:
        self._membership = membership
        self._allocate = allocate

    async def view(self) -> View:
        """Query routes and members, and compute the share. Sends heartbeats first to brokers that do not know this
        member.

        Raises `NameServerUnreachable` if no route is known, and errors that keep this member out of the group.
        """
        view = await self._look()
        if view.is_stranger:
            await self._membership.announce()
            view = await self._look()
            if view.is_stranger:
                await self.check_group()
        return view

    async def check_group(self) -> None:
        """Raise `GroupNotFound` if a broker that received this member's heartbeat knows no such group."""
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
            # The group's retry topic appears with its first heartbeat, shortly after the routes are read.
            is_alone and not any(topic.startswith(names.RETRY_PREFIX) for topic in absent | unknown),
            readable,
        )
