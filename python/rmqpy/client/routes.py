"""Routes: a snapshot of the queues of each topic, refreshed in the background.

Owns the cached routes of one cluster. Invariant: a route stays usable once it is known. A name server that is down, or
briefly does not know the topic, makes the route stale but never removes it, so that sends continue while every name
server is down. A route is removed when one of its brokers and a name server both report that the topic does not exist.

Any thread. There is no background thread: using a stale route starts a look-up without waiting, and a later use takes
the reply.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.config.addresses import HostPort, parse
from rmqpy.message import MessageQueue
from rmqpy.protocol.declare import read_tree
from rmqpy.protocol.names import AUTO_CREATE_TOPIC, is_light
from rmqpy.protocol.requests.routes import (
    MASTER_ID,
    ClusterInfo,
    GetClusterInfo,
    GetRoute,
    QueueData,
    TopicRoute,
)
from rmqpy.protocol.static_topics import LEADERLESS, TopicMappingInfo, leaders, pseudo_broker
from rmqpy.protocol.topics import Permission, check_queues, order_queues
from rmqpy.remoting.client import Caller, check_transport
from rmqpy.remoting.nameservers import NameServers

#: The default number of queues of a topic created by its first message, as in the Java client.
TEMPLATE_QUEUES: Final = 4
#: A broker's VIP port is its advertised port minus this.
VIP_BELOW: Final = 2
#: The refresh interval while a broker of the route has no master: another one is elected within a second.
LEADERLESS_REFRESH_S: Final = 0.3
#: The shortest interval of looking up a route whose broker does not serve it.
DOUBT_S: Final = 0.3
#: The refresh interval of a borrowed route, short because the topic exists after the first stored message.
TEMPLATE_REFRESH_S: Final = 1.0
#: The most look-ups in flight.
LOOK_UPS_MAX: Final = 256
#: The most addresses of replaced masters.
REPLACED_MAX: Final = 256
#: A route unused for this many refresh times is looked up before it is used.
IDLE_REFRESHES: Final = 4


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic and the addresses of its brokers, as a name server returned them."""

    topic: str
    #: Broker name → broker id → address.
    brokers: Mapping[str, Mapping[int, str]]
    #: Sorted queues that accept messages and whose broker has a master.
    writable: tuple[MessageQueue, ...]
    #: Sorted queues that can be read.
    readable: tuple[MessageQueue, ...]
    #: True for a route borrowed from the template, while the topic does not exist.
    is_borrowed: bool = False
    #: Broker name → VIP address of its master, if sends use it.
    vips: Mapping[str, str] = field(default_factory=dict)
    #: For a static topic: logical queue → name of the broker that leads it.
    leaders: Mapping[MessageQueue, str] = field(default_factory=dict)

    def home(self, queue: MessageQueue) -> str:
        """Return the name of the broker that serves a queue."""
        return self.leaders.get(queue, queue.broker)

    @property
    def lacks_master(self) -> bool:
        """Whether a broker has replicas, and no master."""
        return any(MASTER_ID not in replicas for replicas in self.brokers.values())

    def has_master(self, broker: str) -> bool:
        """Return whether the broker has a master."""
        return MASTER_ID in self.brokers.get(broker, ())

    @property
    def masters(self) -> set[str]:
        """The addresses that take messages and commits."""
        found = {replicas[MASTER_ID] for replicas in self.brokers.values() if MASTER_ID in replicas}
        return found | set(self.vips.values())

    def master(self, broker: str) -> str:
        """Return the address that takes commits. Raises `ConnectError` if the broker has no master."""
        address = self.brokers.get(broker, {}).get(MASTER_ID)
        if address is None:
            raise errors.ConnectError(f"broker {broker} has no master in the route of {self.topic}")
        return address

    def sender(self, broker: str) -> str:
        """Return the address that takes messages. Raises `ConnectError` if the broker has no master."""
        return self.vips.get(broker) or self.master(broker)

    def reader(self, broker: str, suggested: int = MASTER_ID) -> str:
        """Return the address to pull from: the suggested replica, else the master, else any replica."""
        replicas = self.brokers.get(broker, {})
        address = replicas.get(suggested) or replicas.get(MASTER_ID) or next(iter(replicas.values()), None)
        if address is None:
            raise errors.ConnectError(f"broker {broker} has no address in the route of {self.topic}")
        return address


class _Refresh(NamedTuple):
    call: Call
    address: str


class _Entry:
    """The known route of one topic, and its look-up in flight, if any."""

    __slots__ = ("checked_at", "is_denied", "refresh", "route")

    def __init__(self, route: Route, checked_at: float) -> None:
        self.route = route
        self.checked_at = checked_at
        self.refresh: _Refresh | None = None
        #: A broker of the route reported that the topic does not exist.
        self.is_denied = False


class Routes:
    """The routes of one cluster."""

    def __init__(
        self,
        servers: NameServers,
        *,
        refresh_s: float = 30.0,
        address_map: Mapping[str, str] | None = None,
        zone: str | None = None,
        is_vip: bool = False,
    ) -> None:
        self._servers = servers
        self._refresh_s = refresh_s
        self._zone = zone
        self._is_vip = is_vip
        self._address_map = dict(address_map or {})
        self._entries: dict[str, _Entry] = {}
        #: Addresses of masters that another broker has replaced, the latest last.
        self._replaced: dict[str, None] = {}

    def cached(self, topic: str, caller: Caller) -> Route | None:
        """Return the known route without waiting, or `None` if it must be looked up first."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        age = time.monotonic() - entry.checked_at
        if age < self._limit_s(entry):
            return entry.route
        if entry.refresh is None and age > self._refresh_s * IDLE_REFRESHES:
            return None
        self._renew(topic, entry, caller)
        return entry.route if topic in self._entries else None

    def fresh_s(self, topic: str) -> float:
        """Return the seconds until the route needs a look-up; 0 or less if it is due."""
        entry = self._entries.get(topic)
        return 0.0 if entry is None else self._limit_s(entry) - (time.monotonic() - entry.checked_at)

    def doubt(self, topic: str, *, is_gone: bool = False) -> None:
        """Mark a route as stale because a broker did not serve it: the next use looks it up, at most every `DOUBT_S`.
        With `is_gone` the broker reported an absent topic, and the route is removed if a name server agrees."""
        entry = self._entries.get(topic)
        if entry is None:
            return
        entry.is_denied |= is_gone
        if time.monotonic() - entry.checked_at > DOUBT_S:
            entry.checked_at = time.monotonic() - self._refresh_s

    def doubt_master(self, address: str, caller: Caller) -> None:
        """Look up the routes on which `address` is a master, without waiting, because it does not answer."""
        for topic, entry in list(self._entries.items()):
            if address in entry.route.masters:
                self.doubt(topic)
                self.cached(topic, caller)

    def is_replaced(self, address: str) -> bool:
        """Return whether another broker is the master that `address` was."""
        return address in self._replaced

    async def publish(self, topic: str, caller: Caller) -> Route:
        """Return the route for sending. An absent topic borrows the template's queues: its first message creates it, if
        the cluster allows that.

        Raises `TopicNotFound`, `NoWritableQueue`, `NoBrokerRegistered` or `NameServerUnreachable`.
        """
        route = self.cached(topic, caller) or await self._look_up(topic, caller, may_borrow=True)
        if not route.writable:
            raise errors.NoWritableQueue(
                f"topic {topic} has no queue that takes messages",
                topic=topic,
                hint=f"look at its permissions and brokers: rmqpy topic describe {topic}",
            )
        return route

    async def subscribe(self, topic: str, caller: Caller) -> Route:
        """Return the route for reading. Raises `TopicNotFound`, `NoBrokerRegistered` or `NameServerUnreachable`."""
        route = self.cached(topic, caller)
        if route is None or route.is_borrowed:
            route = await self._look_up(topic, caller, may_borrow=False)
        return route

    async def look_up(self, topics: Iterable[str], caller: Caller) -> None:
        """Look up unknown routes concurrently. A failed look-up changes nothing; `subscribe` raises its reason."""
        waiting = deque(topic for topic in dict.fromkeys(topics) if self.cached(topic, caller) is None)
        under_way: deque[tuple[str, _Refresh]] = deque()
        while waiting or under_way:
            while waiting and len(under_way) < LOOK_UPS_MAX:
                topic = waiting.popleft()
                under_way.append((topic, self._start(topic, caller)))
            topic, (call, address) = under_way.popleft()
            await caller.wait(call)
            try:
                check_transport(call, address)
                self._learned(topic, self._route(topic, self._read(topic, caller, call, address)))
            except (errors.ConnectError, errors.RequestTimeout):
                self._servers.fail(address)
                if entry := self._entries.get(topic):
                    entry.checked_at = time.monotonic()
            except errors.RocketMQError:
                continue

    async def _look_up(self, topic: str, caller: Caller, *, may_borrow: bool) -> Route:
        known = self._entries.get(topic)
        try:
            try:
                route = self._route(topic, await self._found(topic, caller))
            except errors.TopicNotFound:
                template = await self._template(caller) if may_borrow else None
                if template is None:
                    await self._check_brokers(topic, caller)
                if known is not None and known.is_denied:
                    self._entries.pop(topic, None)
                    known = None
                if not may_borrow:
                    raise
                route = self._borrowed(topic, template)
        except errors.RocketMQError:
            # A borrowed route is for sending only: the topic may get other queues.
            if known is None or (known.route.is_borrowed and not may_borrow):
                raise
            # A stale route is better than none; the next look-up is due after a refresh interval.
            known.checked_at = time.monotonic()
            return known.route
        self._learned(topic, route)
        return route

    def _learned(self, topic: str, route: Route) -> None:
        known = self._entries.get(topic)
        self._note_replaced(None if known is None else known.route, route)
        self._entries[topic] = _Entry(route, time.monotonic())

    def _note_replaced(self, before: Route | None, route: Route) -> None:
        """Note the masters whose place another address has taken."""
        for broker, replicas in route.brokers.items():
            master = replicas.get(MASTER_ID)
            if master is None:
                continue
            self._replaced.pop(master, None)
            former = None if before is None else before.brokers.get(broker, {}).get(MASTER_ID)
            if former is not None and former != master:
                self._replaced[former] = None
        while len(self._replaced) > REPLACED_MAX:
            self._replaced.pop(next(iter(self._replaced)), None)

    async def _template(self, caller: Caller) -> TopicRoute | None:
        """Return the template's route, or `None` if first sends create no topics."""
        try:
            return (await self._servers.ask(caller, self._ask(AUTO_CREATE_TOPIC))).body
        except errors.TopicNotFound:
            return None

    def _borrowed(self, topic: str, template: TopicRoute | None) -> Route:
        if template is None:
            raise errors.TopicNotFound(
                f"topic {topic!r} does not exist and this cluster does not create topics on first use",
                topic=topic,
                hint=f"run: rmqpy topic create {topic}",
            )
        return self._route(topic, template, is_borrowed=True)

    async def _check_brokers(self, topic: str, caller: Caller) -> None:
        """Raise `NoBrokerRegistered` if no broker is registered, so that the name server cannot know the topic."""
        try:
            found = (await self._servers.ask(caller, GetClusterInfo())).broker_addr_table
        except errors.RocketMQError:
            return
        if not found:
            addresses = ", ".join(self._servers.addresses)
            raise errors.NoBrokerRegistered(
                f"no broker is registered at {addresses}: whether topic {topic!r} exists is not known",
                topic=topic,
            )

    def _ask(self, topic: str) -> GetRoute:
        return GetRoute(
            topic=topic,
            accept_standard_json_only=True,
            zone_mode=True if self._zone else None,
            zone_name=self._zone,
        )

    def _question(self, topic: str) -> GetRoute | GetClusterInfo:
        """Return the request for the route of a topic. Brokers register no light queues, and each may have any."""
        return GetClusterInfo() if is_light(topic) else self._ask(topic)

    async def _found(self, topic: str, caller: Caller) -> TopicRoute:
        """Ask for the route of a topic."""
        if is_light(topic):
            return _light_route(topic, await self._servers.ask(caller, GetClusterInfo()))
        return (await self._servers.ask(caller, self._ask(topic))).body

    def _read(self, topic: str, caller: Caller, call: Call, address: str) -> TopicRoute:
        """Return the route in the reply of a look-up. Raises like `Caller.read`."""
        if is_light(topic):
            return _light_route(topic, caller.read(GetClusterInfo(), call, address))
        return caller.read(self._ask(topic), call, address).body

    def _limit_s(self, entry: _Entry) -> float:
        if entry.route.is_borrowed:
            return TEMPLATE_REFRESH_S
        return min(LEADERLESS_REFRESH_S, self._refresh_s) if entry.route.lacks_master else self._refresh_s

    def _renew(self, topic: str, entry: _Entry, caller: Caller) -> None:
        """Take the reply of the look-up, or start another one."""
        refresh = entry.refresh
        if refresh is not None:
            if not refresh.call.done():
                return
            entry.refresh = None
            entry.checked_at = time.monotonic()
            try:
                check_transport(refresh.call, refresh.address)
                route = self._route(topic, self._read(topic, caller, refresh.call, refresh.address))
                self._note_replaced(entry.route, route)
                entry.route = route
                entry.is_denied = False
                return
            except errors.TopicNotFound:
                if entry.is_denied and self._entries.get(topic) is entry:
                    del self._entries[topic]
                return
            except (errors.ConnectError, errors.RequestTimeout):
                self._servers.fail(refresh.address)
            except errors.RocketMQError:
                # The name server has no route at the moment: keep the known one.
                return
        address = self._servers.current
        ask = self._question(topic)
        sent = caller.encode(ask)
        call = caller.client.call(
            address, ask.code, sent.ext, sent.body, timeout_ms=round(self._servers.timeout * 1000)
        )
        entry.refresh = _Refresh(call, address)

    def _start(self, topic: str, caller: Caller) -> _Refresh:
        address = self._servers.current
        return _Refresh(caller.begin(address, self._question(topic), timeout=self._servers.timeout), address)

    def _route(self, topic: str, data: TopicRoute, *, is_borrowed: bool = False) -> Route:
        brokers = {
            broker.broker_name: {
                number: self._address_map.get(address, address)
                for number, address in broker.broker_addrs.items()
            }
            for broker in data.broker_datas
        }
        check_queues(topic, sum(queues.write_queue_nums for queues in data.queue_datas))
        check_queues(topic, sum(queues.read_queue_nums for queues in data.queue_datas))
        writable: list[MessageQueue] = []
        readable: list[MessageQueue] = []
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
            name = queues.broker_name
            count = queues.write_queue_nums
            if is_borrowed:
                count = min(TEMPLATE_QUEUES, queues.read_queue_nums)
            if queues.perm & Permission.WRITE and MASTER_ID in brokers.get(name, {}):
                writable += [MessageQueue(topic, name, number) for number in range(count)]
            if queues.perm & Permission.READ and brokers.get(name):
                readable += [MessageQueue(topic, name, number) for number in range(queues.read_queue_nums)]
        if data.order_topic_conf:
            ordered = order_queues(topic, data.order_topic_conf)
            writable = [
                MessageQueue(topic, name, number) for name, count in ordered for number in range(count)
            ]
        vips = {
            broker.broker_name: self._address_map.get(vip, vip)
            for broker in data.broker_datas
            if self._is_vip and (vip := _vip(broker.broker_addrs.get(MASTER_ID))) is not None
        }
        led: dict[MessageQueue, str] = {}
        if data.topic_queue_mapping_by_broker:
            permissions = {queues.broker_name: queues.perm for queues in data.queue_datas}
            led = _logical_queues(topic, data.topic_queue_mapping_by_broker)
            writable = [
                queue
                for queue, leader in led.items()
                if permissions.get(leader, 0) & Permission.WRITE and MASTER_ID in brokers.get(leader, {})
            ]
            # All of them, so that every member of a group allocates the same queues.
            readable = list(led)
        return Route(topic, brokers, tuple(writable), tuple(readable), is_borrowed, vips, led)


def _light_route(topic: str, cluster: ClusterInfo) -> TopicRoute:
    """Return the route of a light queue: one queue at each broker."""
    brokers = list(cluster.broker_addr_table.values())
    if not brokers:
        raise errors.NoBrokerRegistered(f"no broker is registered that could have {topic!r}", topic=topic)
    queues = [
        QueueData(
            broker_name=broker.broker_name, read_queue_nums=1, write_queue_nums=1, perm=Permission.READ_WRITE
        )
        for broker in brokers
    ]
    return TopicRoute(queue_datas=queues, broker_datas=brokers)


def _logical_queues(topic: str, mappings: Mapping[str, object]) -> dict[MessageQueue, str]:
    """Return the queues of a static topic in the order of clients, with their leaders."""
    found: dict[MessageQueue, str] = {}
    infos = [read_tree(TopicMappingInfo, mapping) for mapping in mappings.values()]
    for scope, queues in leaders(infos).items():
        check_queues(topic, len(queues))
        for number, leader in enumerate(queues):
            name = pseudo_broker(scope) if leader else LEADERLESS
            found[MessageQueue(topic, name, number)] = leader or name
    return dict(sorted(found.items()))


def _vip(advertised: str | None) -> str | None:
    """Return the VIP address of a broker."""
    try:
        host, port = parse(advertised or "")
    except errors.ConfigError:
        return None
    return str(HostPort(host, port - VIP_BELOW))
