"""Membership of a consumer group, as brokers see it: heartbeats, goodbye, the other members.

Owns what this member reports to brokers. A broker identifies a member by its connection, so each member needs its own.

Invariant: every broker of a route receives the member's current subscriptions within one heartbeat, or is unreachable.
For its caller's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import NamedTuple

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.reports import outages
from rmqpy.client.reports.stderr import Stderr
from rmqpy.client.routes import Route
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
#: Warnings about missing brokers reach stderr when logging is not configured.
no_broker_log = log.getChild("no_broker")
no_broker_log.addHandler(Stderr(no_broker_log))

#: The most brokers queried for the members of a group in one rebalance.
ASKED_MAX = 3
#: Time after which another broker is queried as well.
ANSWER_S = 0.2


class Member(NamedTuple):
    """A member as brokers see it."""

    group: str
    client_id: str
    subscriptions: Subscriptions
    consume_type: ConsumeType
    model: MessageModel
    begins: ConsumeFromWhere


class TopicRoutes(NamedTuple):
    """The routes of the subscribed topics."""

    routes: dict[str, Route]
    #: Topics that do not exist yet, or any more.
    absent: set[str]
    #: Topics without a known route.
    unknown: set[str]


class Membership:
    """The membership of one member in its group."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, member: Member) -> None:
        self.member = member
        self.group = member.group
        self._cluster = cluster
        self._caller = caller
        #: Brokers that received a heartbeat, and need an unregistration.
        self._notified: set[str] = set()
        #: True if the name servers knew no broker at the last query.
        self._has_no_broker = False

    async def routes(self) -> TopicRoutes:
        """Return the routes of the subscribed topics. Raises if none is available, for example
        `NameServerUnreachable`."""
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
                # The topic may exist although no broker is registered yet, so the member waits.
                found.unknown.add(topic)
                no_broker = outcome
            elif isinstance(outcome, errors.RocketMQError):
                outages.warn(log, outcome, "group %s: cannot look up the route of %s", self.group, topic)
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
        """Send a heartbeat to every broker of every subscribed topic. An unreachable broker gets the next one.

        Raises an error that no retry can mend.
        """
        data = HeartbeatData(client_id=self.member.client_id, consumer_data_set=[self._data()])
        addresses = _addresses((await self.routes()).routes)
        outcomes = await asyncio.gather(
            *(self._ask(address, HeartBeat(body=data)) for address in addresses), return_exceptions=True
        )
        for address, outcome in zip(addresses, outcomes, strict=True):
            if outcome is None:
                self._notified.add(address)
            elif isinstance(outcome, errors.RocketMQError) and outcome.retriable:
                outages.warn(log, outcome, "group %s: heartbeat failed, retrying", self.group)
            else:
                raise outcome

    def has_notified(self, address: str) -> bool:
        """Return whether this broker has received a heartbeat."""
        return address in self._notified

    async def leave(self) -> None:
        """Unregister, so that the other members take over immediately. Never raises: brokers notice a lost connection
        later."""
        ask = UnregisterClient(client_id=self.member.client_id, consumer_group=self.group)
        await asyncio.gather(*(self._ask(address, ask) for address in self._notified), return_exceptions=True)
        self._notified.clear()

    async def members(self, route: Route) -> list[str] | None:
        """Return the sorted ids of all members: empty if a broker knows none, `None` if no broker answers."""
        addresses = _addresses({route.topic: route})
        asked: set[asyncio.Task[list[str] | None]] = set()
        try:
            for left in range(min(ASKED_MAX, len(addresses)) - 1, -1, -1):
                address = addresses.pop(random.randrange(len(addresses)))
                asked.add(asyncio.create_task(self._members_at(address)))
                # A commit depends on the answer, so a slow broker must not delay it.
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
                # Brokers report an empty group with this code.
                return []
            log.info("broker %s did not return the members of group %s: %s", address, self.group, error)
            return None
        return sorted(reply.consumer_id_list)

    async def check_group(self, route: Route) -> None:
        """Raise `GroupNotFound` if the group does not exist and is not created on first use: brokers accept heartbeats
        of such a member and ignore them. A slave may not know a new group yet."""
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
                # Old brokers do not serve this request.
                log.info(
                    "broker %s did not return the configuration of group %s: %s", address, self.group, error
                )

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
