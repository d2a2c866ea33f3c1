"""Membership of a consumer group, as brokers see it: heartbeats, goodbye, the other members.

Owns what this member tells brokers about itself. A broker knows a member by its connection, so that a member needs
a connection of its own: two members on one connection would be one.

Invariant: every broker that a route names has heard of the member's present subscriptions within one heartbeat, or
is not reachable. For the event loop its caller belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import NamedTuple

from rmqpy import errors
from rmqpy.client import outages
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.routes import Route
from rmqpy.client.stderr import Stderr
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroup,
    HeartBeat,
    HeartbeatData,
    MessageModel,
    UnregisterClient,
)
from rmqpy.protocol.requests.groups import GetSubscriptionGroupConfig
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)
#: Whoever runs the program sees what it waits for.
no_broker_log = log.getChild("no_broker")
no_broker_log.addHandler(Stderr(no_broker_log))

#: Brokers asked for the members of a group before that is put off to the next rebalance.
ASKED_MAX = 3
#: Time after which another broker is asked as well.
ANSWER_S = 0.2


class Member(NamedTuple):
    """A member as it describes itself to brokers."""

    group: str
    client_id: str
    subscriptions: Subscriptions
    consume_type: ConsumeType
    model: MessageModel
    begins: ConsumeFromWhere


class TopicRoutes(NamedTuple):
    """Routes of subscribed topics."""

    routes: dict[str, Route]
    #: Topics that do not exist: not yet, or not any more.
    absent: set[str]
    #: Topics of which no route could be learned.
    unknown: set[str]


class Membership:
    """A member of its group."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, member: Member) -> None:
        self.member = member
        self.group = member.group
        self._cluster = cluster
        self._caller = caller
        #: Brokers that have been told, and must hear the goodbye.
        self._told: set[str] = set()
        #: At the last look name servers knew no broker.
        self._has_no_broker = False

    async def routes(self) -> TopicRoutes:
        """Routes of the subscribed topics. Raises, `NameServerUnreachable` for one, when none can be had."""
        topics = list(self.member.subscriptions.table)
        asks = (self._cluster.routes.subscribe(topic, self._caller) for topic in topics)
        found = TopicRoutes({}, set(), set())
        failure: errors.RocketMQError | None = None
        no_broker: errors.NoBrokerRegistered | None = None
        for topic, outcome in zip(topics, await asyncio.gather(*asks, return_exceptions=True), strict=True):
            if isinstance(outcome, Route):
                found.routes[topic] = outcome
            elif isinstance(outcome, errors.TopicNotFound):
                found.absent.add(topic)
            elif isinstance(outcome, errors.NoBrokerRegistered):
                # Its topics may exist, and its brokers come: a member that starts before them waits.
                found.unknown.add(topic)
                no_broker = outcome
            elif isinstance(outcome, errors.RocketMQError):
                outages.warn(log, outcome, "group %s: the route of %s is not known", self.group, topic)
                found.unknown.add(topic)
                failure = failure or outcome
            else:
                raise outcome
        if no_broker is not None and not self._has_no_broker:
            no_broker_log.warning("group %s: %s", self.group, no_broker)
        self._has_no_broker = no_broker is not None
        if failure is not None and not found.routes:
            raise failure
        return found

    async def announce(self) -> None:
        """Send a heartbeat to every broker of every subscribed topic. One that is down is told at the next.

        Raises what a broker refuses the group with for good.
        """
        data = HeartbeatData(client_id=self.member.client_id, consumer_data_set=[self._data()])
        addresses = _addresses((await self.routes()).routes)
        outcomes = await asyncio.gather(
            *(self._ask(address, HeartBeat(body=data)) for address in addresses), return_exceptions=True
        )
        for address, outcome in zip(addresses, outcomes, strict=True):
            if outcome is None:
                self._told.add(address)
            elif isinstance(outcome, errors.RocketMQError) and outcome.retriable:
                outages.warn(log, outcome, "a heartbeat of group %s failed and is repeated", self.group)
            else:
                raise outcome

    def has_told(self, address: str) -> bool:
        """True when this broker knew of the member."""
        return address in self._told

    async def leave(self) -> None:
        """Say goodbye, so that the others take over at once. Nothing is raised: brokers notice without it, later."""
        ask = UnregisterClient(client_id=self.member.client_id, consumer_group=self.group)
        await asyncio.gather(*(self._ask(address, ask) for address in self._told), return_exceptions=True)
        self._told.clear()

    async def members(self, route: Route) -> list[str] | None:
        """Ids of all members, sorted; empty when a broker has heard of none, `None` when no broker can tell."""
        addresses = _addresses({route.topic: route})
        asked: set[asyncio.Task[list[str] | None]] = set()
        try:
            for left in range(min(ASKED_MAX, len(addresses)) - 1, -1, -1):
                address = addresses.pop(random.randrange(len(addresses)))
                asked.add(asyncio.create_task(self._members_at(address)))
                # The one who asks decides with the answer what it may commit: it does not wait long for one broker.
                until = asyncio.get_running_loop().time() + ANSWER_S if left else None
                while asked:
                    wait_s = None if until is None else until - asyncio.get_running_loop().time()
                    done, asked = await asyncio.wait(
                        asked, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    for one in done:
                        if (members := one.result()) is not None:
                            return members
                    if not done:
                        break
        finally:
            for one in asked:
                one.cancel()
        return None

    async def _members_at(self, address: str) -> list[str] | None:
        ask = GetConsumerListByGroup(consumer_group=self.group)
        try:
            reply = await self._caller.ask(address, ask, timeout=self._cluster.config.request_timeout)
        except errors.RocketMQError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                # The brokers' way of saying that there are none.
                return []
            log.info("%s cannot tell the members of group %s: %s", address, self.group, error)
            return None
        return sorted(reply.consumer_id_list)

    async def check_group(self, route: Route) -> None:
        """Raise `GroupNotFound` when the group does not exist and is not made on first use: brokers accept the
        heartbeats of such a member and forget them. A slave may not have heard of a new group yet."""
        ask = GetSubscriptionGroupConfig(group=self.group)
        slaves = {
            address
            for replicas in route.brokers.values()
            for broker_id, address in replicas.items()
            if broker_id != MASTER_ID and MASTER_ID in replicas
        }
        for address in _addresses({route.topic: route}):
            if address in slaves:
                continue
            try:
                await self._caller.ask(address, ask, timeout=self._cluster.config.request_timeout)
            except errors.GroupNotFound:
                raise
            except errors.RocketMQError as error:
                # Old brokers cannot say.
                log.info("%s cannot tell about group %s: %s", address, self.group, error)

    def _data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self.member.consume_type,
            message_model=self.member.model,
            consume_from_where=self.member.begins,
            subscription_data_set=[one.data() for one in self.member.subscriptions.table.values()],
        )

    async def _ask(self, address: str, ask: HeartBeat | UnregisterClient) -> None:
        await self._caller.ask(address, ask, timeout=self._cluster.config.request_timeout)


def _addresses(routes: Mapping[str, Route]) -> list[str]:
    return sorted(
        {
            address
            for route in routes.values()
            for replicas in route.brokers.values()
            for address in replicas.values()
        }
    )
