"""Routes: a snapshot of the queues of each topic, looked up again behind the user's back.

Owns the cached routes of one cluster. Invariant: a route once learned stays usable; a name server that is down, or
does not know the topic any more for a moment, makes it old and never makes it vanish. So sends go on while every
name server is down. It ends when a broker of it and a name server both say that there is no such topic.

Any thread. There is no thread of its own: a route that has aged starts a request without waiting for it, and the next
look-up takes what has come back.
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
from rmqpy.protocol.names import AUTO_CREATE_TOPIC
from rmqpy.protocol.requests.routes import MASTER_ID, GetClusterInfo, GetRoute, TopicRoute
from rmqpy.protocol.topics import Permission, check_queues, order_queues
from rmqpy.remoting.client import Caller, check_transport
from rmqpy.remoting.nameservers import NameServers

#: Queues of a topic that its first message makes, as the Java client asks for.
TEMPLATE_QUEUES: Final = 4
#: Brokers take requests on the port so far below the one they advertise, too.
VIP_BELOW: Final = 2
#: A borrowed route is looked up again soon: the topic exists as soon as the first message is stored.
TEMPLATE_REFRESH_S: Final = 1.0
#: Look-ups on their way together.
LOOK_UPS_MAX: Final = 256
#: A route unused for this many refresh times is looked up before it is used.
IDLE_REFRESHES: Final = 4


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic and the addresses of its brokers, as a name server told it."""

    topic: str
    #: Broker name → broker id → address.
    brokers: Mapping[str, Mapping[int, str]]
    #: Queues that take messages and whose broker has a master, sorted.
    writable: tuple[MessageQueue, ...]
    #: Queues that give messages, sorted.
    readable: tuple[MessageQueue, ...]
    #: Borrowed from the template: the topic does not exist yet.
    is_borrowed: bool = False
    #: Broker name → address of its master's VIP port, where sends go there.
    vips: Mapping[str, str] = field(default_factory=dict)

    def master(self, broker: str) -> str:
        """The address that takes commits. Raises `ConnectError` when the broker has none."""
        address = self.brokers.get(broker, {}).get(MASTER_ID)
        if address is None:
            raise errors.ConnectError(f"broker {broker} has no master in the route of {self.topic}")
        return address

    def sender(self, broker: str) -> str:
        """The address that takes messages. Raises `ConnectError` when the broker has none."""
        return self.vips.get(broker) or self.master(broker)

    def reader(self, broker: str, suggested: int = MASTER_ID) -> str:
        """The address to pull from: the suggested replica, else the master, else any."""
        replicas = self.brokers.get(broker, {})
        address = replicas.get(suggested) or replicas.get(MASTER_ID) or next(iter(replicas.values()), None)
        if address is None:
            raise errors.ConnectError(f"broker {broker} has no address in the route of {self.topic}")
        return address


class _Refresh(NamedTuple):
    call: Call
    address: str


class _Entry:
    """The known route of one topic, and the look-up under way, if there is one."""

    __slots__ = ("checked_at", "is_denied", "refresh", "route")

    def __init__(self, route: Route, checked_at: float) -> None:
        self.route = route
        self.checked_at = checked_at
        self.refresh: _Refresh | None = None
        #: A broker of the route says that there is no such topic.
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

    def cached(self, topic: str, caller: Caller) -> Route | None:
        """The known route, without waiting; `None` when it must be looked up first."""
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
        """Seconds for which the known route of a topic needs no look-up; 0 or less when it is due."""
        entry = self._entries.get(topic)
        return 0.0 if entry is None else self._limit_s(entry) - (time.monotonic() - entry.checked_at)

    def doubt(self, topic: str, *, is_gone: bool = False) -> None:
        """A broker of this route did not serve it: let the next use look it up, at most once a second. `is_gone`: it
        said that there is no such topic, and the route ends when a name server says so, too."""
        entry = self._entries.get(topic)
        if entry is None:
            return
        entry.is_denied |= is_gone
        if time.monotonic() - entry.checked_at > TEMPLATE_REFRESH_S:
            entry.checked_at = time.monotonic() - self._refresh_s

    async def publish(self, topic: str, caller: Caller) -> Route:
        """The route for sending. A topic that does not exist borrows the template's queues: its first message
        makes it, where the cluster allows that.

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
        """The route for reading. Raises `TopicNotFound`, `NoBrokerRegistered` or `NameServerUnreachable`."""
        route = self.cached(topic, caller)
        if route is None or route.is_borrowed:
            route = await self._look_up(topic, caller, may_borrow=False)
        return route

    async def look_up(self, topics: Iterable[str], caller: Caller) -> None:
        """Look up routes that are not known, with many requests on their way. What cannot be looked up stays as it is;
        `subscribe` says why."""
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
                route = self._route(topic, caller.read(self._ask(topic), call, address).body)
                self._entries[topic] = _Entry(route, time.monotonic())
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
                route = self._route(topic, (await self._servers.ask(caller, self._ask(topic))).body)
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
            # A borrowed route is for sending: its queues may not be those the topic gets.
            if known is None or (known.route.is_borrowed and not may_borrow):
                raise
            # Old is better than none; the next look is due in a refresh time, not with every message.
            known.checked_at = time.monotonic()
            return known.route
        self._entries[topic] = _Entry(route, time.monotonic())
        return route

    async def _template(self, caller: Caller) -> TopicRoute | None:
        """The route of the template for new topics; `None` where first sends create none."""
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
        """Raise `NoBrokerRegistered` where a name server knows no topic because it knows no broker."""
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

    def _limit_s(self, entry: _Entry) -> float:
        return TEMPLATE_REFRESH_S if entry.route.is_borrowed else self._refresh_s

    def _renew(self, topic: str, entry: _Entry, caller: Caller) -> None:
        """Take what has come back, or ask again."""
        refresh = entry.refresh
        if refresh is not None:
            if not refresh.call.done():
                return
            entry.refresh = None
            entry.checked_at = time.monotonic()
            try:
                check_transport(refresh.call, refresh.address)
                told = caller.read(self._ask(topic), refresh.call, refresh.address)
                entry.route = self._route(topic, told.body)
                entry.is_denied = False
                return
            except errors.TopicNotFound:
                if entry.is_denied and self._entries.get(topic) is entry:
                    del self._entries[topic]
                return
            except (errors.ConnectError, errors.RequestTimeout):
                self._servers.fail(refresh.address)
            except errors.RocketMQError:
                # The name server answers, but not with a route: keep what we have until it does.
                return
        address = self._servers.current
        sent = caller.encode(self._ask(topic))
        call = caller.client.call(
            address, GetRoute.code, sent.ext, sent.body, timeout_ms=round(self._servers.timeout * 1000)
        )
        entry.refresh = _Refresh(call, address)

    def _start(self, topic: str, caller: Caller) -> _Refresh:
        address = self._servers.current
        return _Refresh(caller.begin(address, self._ask(topic), timeout=self._servers.timeout), address)

    def _route(self, topic: str, told: TopicRoute, *, is_borrowed: bool = False) -> Route:
        brokers = {
            broker.broker_name: {
                number: self._address_map.get(address, address)
                for number, address in broker.broker_addrs.items()
            }
            for broker in told.broker_datas
        }
        check_queues(topic, sum(data.write_queue_nums for data in told.queue_datas))
        check_queues(topic, sum(data.read_queue_nums for data in told.queue_datas))
        writable: list[MessageQueue] = []
        readable: list[MessageQueue] = []
        for data in sorted(told.queue_datas, key=lambda data: data.broker_name):
            name = data.broker_name
            count = data.write_queue_nums
            if is_borrowed:
                count = min(TEMPLATE_QUEUES, data.read_queue_nums)
            if data.perm & Permission.WRITE and MASTER_ID in brokers.get(name, {}):
                writable += [MessageQueue(topic, name, number) for number in range(count)]
            if data.perm & Permission.READ and brokers.get(name):
                readable += [MessageQueue(topic, name, number) for number in range(data.read_queue_nums)]
        if told.order_topic_conf:
            ordered = order_queues(topic, told.order_topic_conf)
            writable = [
                MessageQueue(topic, name, number) for name, count in ordered for number in range(count)
            ]
        vips = {
            broker.broker_name: self._address_map.get(vip, vip)
            for broker in told.broker_datas
            if self._is_vip and (vip := _vip(broker.broker_addrs.get(MASTER_ID))) is not None
        }
        return Route(topic, brokers, tuple(writable), tuple(readable), is_borrowed, vips)


def _vip(advertised: str | None) -> str | None:
    """The address of a broker's VIP port."""
    try:
        host, port = parse(advertised or "")
    except errors.ConfigError:
        return None
    return str(HostPort(host, port - VIP_BELOW))
