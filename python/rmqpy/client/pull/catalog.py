"""Catalog of a cluster: its topics, the minimum and maximum offsets of their queues, the progress of groups.

Owns only its hold of a cluster connection. A query may name many queues; their requests are in flight together, so that
fifty queues take as long as the slowest broker, and one timeout covers an unresponsive broker. For one thread.
"""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Final, NamedTuple, Self, TypeVar

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.offsets import commitment, place_query, progress_query
from rmqpy.client.pull import arrival_waiter
from rmqpy.client.routes import Route
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import Filter, MessageQueue
from rmqpy.protocol import declare, names, refusals
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import CheckClientConfig, SubscriptionData
from rmqpy.protocol.requests.clients import ClientConfig as Subscriber
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo, OffsetReply, queue_limits
from rmqpy.protocol.requests.routes import MASTER_ID, GetAllTopics, GetClusterInfo, GetSystemTopics
from rmqpy.protocol.requests.topics import GetSystemTopicListFromBroker
from rmqpy.protocol.static_topics import is_pseudo_broker
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, check_transport, run


class _TopicOnBroker(NamedTuple):
    """All queues of a topic at one broker."""

    topic: str
    broker: str


R = TypeVar("R")
#: The target of a query: a queue, or all queues of a topic at a broker.
Asked = TypeVar("Asked", MessageQueue, _TopicOnBroker)

#: The most requests in flight.
UNDER_WAY_MAX: Final = 256
#: The number of messages sampled for the average size in a queue.
SAMPLE_COUNT: Final = 32


class Catalog:
    """Queries a cluster about many queues in one call.

    ::

        with rmqpy.Catalog("127.0.0.1:9876") as catalog:
            ends = catalog.ends(catalog.queues("orders", "payments"))
    """

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        self._cluster = ClusterConnection.hold(ClientConfig.of(namesrv))
        self._caller = BlockingCaller(self._cluster.client)
        self._arrival_waiter = arrival_waiter.ArrivalWaiter(self._cluster, self._caller)
        self._is_closed = False
        self._release = weakref.finalize(self, self._cluster.release)
        self._release.atexit = False

    def topics(self) -> list[str]:
        """Return the names of all topics except RocketMQ's own, sorted."""
        servers, caller = self._cluster.servers, self._caller
        found = run(servers.ask(caller, GetAllTopics())).topic_list
        # Name servers list the topics named after clusters and brokers, a broker lists the other system topics.
        system = run(servers.ask(caller, GetSystemTopics()))
        own = set(system.topic_list)
        if system.broker_addr:
            timeout = self._cluster.config.request_timeout
            ask = GetSystemTopicListFromBroker()
            own.update(run(caller.ask(system.broker_addr, ask, timeout=timeout)).topic_list)
        return sorted(name for name in found if name not in own and not names.is_derived(name))

    def brokers(self) -> frozenset[str]:
        """Return the names of the live brokers, as name servers report them."""
        found = run(self._cluster.servers.ask(self._caller, GetClusterInfo()))
        return frozenset(found.broker_addr_table)

    def queues(self, *topics: str, skip_missing: bool = False) -> list[MessageQueue]:
        """Return the readable queues of the topics, sorted within each topic. Raises `TopicNotFound` for an absent
        topic, unless `skip_missing` is set."""
        run(self._cluster.routes.look_up(topics, self._caller))
        found: list[MessageQueue] = []
        for topic in topics:
            try:
                found += self._route(topic).readable
            except (errors.TopicNotFound, errors.NoBrokerRegistered):
                if not skip_missing:
                    raise
        return found

    def offsets(
        self, queues: Iterable[MessageQueue], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, tuple[int, int] | None]:
        """Return each queue's first offset and the offset after its last message; `None` if the master of its broker
        reports that the queue does not exist. Needs one request per topic and broker.

        `skip_unreachable`: leave out queues whose broker does not answer, is busy or is not registered, instead of
        raising `ConnectError`, `RequestTimeout` or `FlowControl`.
        """
        wanted: defaultdict[_TopicOnBroker, list[MessageQueue]] = defaultdict(list)
        logical: list[MessageQueue] = []
        for queue in queues:
            if is_pseudo_broker(queue.broker):
                logical.append(queue)
                continue
            wanted[_TopicOnBroker(queue.topic, queue.broker)].append(queue)
        run(self._cluster.routes.look_up({topic for topic, _ in wanted}, self._caller))
        masters = cache(self._masters)
        addresses = {asked: self._with_master(asked, masters) for asked in wanted}
        found: dict[MessageQueue, tuple[int, int] | None] = {}
        if logical:
            begins = self.begins(logical, skip_unreachable=skip_unreachable)
            ends = self.ends(begins, skip_unreachable=skip_unreachable)
            found |= {queue: (begins[queue], end) for queue, end in ends.items()}

        def start(asked: _TopicOnBroker, address: str) -> Call:
            return self._start(GetTopicStatsInfo(topic=asked.topic), address)

        def note(asked: _TopicOnBroker, call: Call, address: str) -> None:
            if call.code == ResponseCode.TOPIC_NOT_EXIST:
                held: dict[int, tuple[int, int]] = {}
            elif call.code == ResponseCode.SUCCESS:
                held = queue_limits(call.body)
            else:
                raise refusals.from_response(call.code, call.remark, broker=address, topic=asked.topic)
            is_of_master = address == addresses[asked][1]
            for queue in wanted[asked]:
                if queue.queue_id in held:
                    found[queue] = held[queue.queue_id]
                elif is_of_master:
                    found[queue] = None

        self._each(wanted, start, note, skip_unreachable, lambda asked: addresses[asked][0])
        return found

    def begins(
        self, queues: Iterable[MessageQueue], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, int]:
        """Return the first offset of each queue. `skip_unreachable`: see `offsets`."""
        asks = {queue: place_query(queue, "earliest") for queue in queues}
        return self._offsets(asks, skip_unreachable)

    def ends(
        self, queues: Iterable[MessageQueue], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, int]:
        """Return the offset after the last message of each queue."""
        asks = {queue: place_query(queue, "latest") for queue in queues}
        return self._offsets(asks, skip_unreachable)

    def wait(self, offsets: Mapping[MessageQueue, int], timeout: float) -> bool:
        """Wait until a queue has a message at its offset or later; return False after `timeout` seconds.

        Brokers notify the client of new messages, so waiting is cheap on both sides. A queue with an unreachable broker
        does not end the wait.
        """
        return self._arrival_waiter.wait(offsets, timeout)

    def since(self, moments: Mapping[MessageQueue, datetime]) -> dict[MessageQueue, int]:
        """Return the offset of the first message stored at or after a time; the queue's end if there is none."""
        asks = {queue: place_query(queue, moment) for queue, moment in moments.items()}
        return self._offsets(asks, False)

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the progress of a group, without the queues that have none."""
        asks = {queue: progress_query(group, queue) for queue in queues}
        return self._offsets(asks, False, absent=ResponseCode.QUERY_NOT_FOUND)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets as a group's progress. Returns when the brokers have them."""
        asks = {queue: commitment(group, queue, offset) for queue, offset in offsets.items()}
        self._each(
            asks,
            lambda queue, address: self._start(asks[queue], address),
            lambda queue, call, address: self._caller.read(asks[queue], call, address),
        )

    def message_bytes(
        self, offsets: Mapping[MessageQueue, int], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, int]:
        """Return the average message size in bytes of each queue, from a sample that starts at an offset; 0 without a
        sample. `skip_unreachable`: see `offsets`."""
        sizes: dict[MessageQueue, int] = {}

        def start(queue: MessageQueue, address: str) -> Call:
            ext = pulls.request(
                self._caller.wire_name(arrival_waiter.GROUP),
                queue,
                offsets[queue],
                wanted="*",
                messages_max=SAMPLE_COUNT,
                namespace=self._caller.namespace,
            )
            return self._caller.start(address, pulls.PULL, ext, timeout=self._cluster.config.request_timeout)

        def note(queue: MessageQueue, call: Call, address: str) -> None:
            pulled = pulls.read(call, queue, address)
            count = pulled.next_offset - offsets[queue]
            has_sample = pulled.found is pulls.Found.MESSAGES and count > 0
            sizes[queue] = -(-call.body_size // count) if has_sample else 0

        self._each(offsets, start, note, skip_unreachable)
        return sizes

    def check_filter(
        self, queues: Iterable[MessageQueue], wanted: Filter, *, skip_unreachable: bool = False
    ) -> None:
        """Check that the brokers of these queues support an expression, with one request per broker. All brokers
        support tags. `skip_unreachable`: see `offsets`.

        Raises `Unsupported` if SQL92 is disabled, and `BrokerError` if the broker cannot parse the expression.
        """
        if isinstance(wanted, str):
            return
        asks = {
            queue: CheckClientConfig(
                body=Subscriber(
                    subscription_data=SubscriptionData(
                        topic=queue.topic, sub_string=wanted.expression, expression_type="SQL92"
                    )
                )
            )
            for queue in {queue.broker: queue for queue in queues}.values()
        }

        def note(queue: MessageQueue, call: Call, _: str) -> None:
            if call.code != ResponseCode.SUCCESS:
                raise refusals.from_response(call.code, call.remark, broker=queue.broker, topic=queue.topic)

        run(self._cluster.routes.look_up({queue.topic for queue in asks}, self._caller))
        self._each(asks, lambda queue, address: self._start(asks[queue], address), note, skip_unreachable)

    def close(self) -> None:
        """Release the connection. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._arrival_waiter.close()
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _route(self, topic: str) -> Route:
        return run(self._cluster.routes.subscribe(topic, self._caller))

    def _reader(self, asked: MessageQueue | _TopicOnBroker) -> str:
        route = self._route(asked.topic)
        return route.reader(route.home(asked) if isinstance(asked, MessageQueue) else asked.broker)

    def _with_master(
        self, asked: _TopicOnBroker, masters: Callable[[], Mapping[str, str]]
    ) -> tuple[str, str]:
        """Return the address to query about a topic at a broker, and its master's address; empty if unknown. A deleted
        topic has no route, but its brokers are queried anyway."""
        try:
            route = self._route(asked.topic)
            return route.reader(asked.broker), route.brokers[asked.broker].get(MASTER_ID, "")
        except (errors.TopicNotFound, errors.NoBrokerRegistered, errors.ConnectError):
            master = masters().get(asked.broker, "")
            return master, master

    def _masters(self) -> dict[str, str]:
        """Return the master addresses by broker name; empty while no name server answers."""
        known = dict(self._cluster.config.address_map)
        try:
            brokers = run(self._cluster.servers.ask(self._caller, GetClusterInfo())).broker_addr_table
        except errors.NameServerUnreachable:
            return {}
        masters = {name: broker.broker_addrs.get(MASTER_ID, "") for name, broker in brokers.items()}
        return {name: known.get(address, address) for name, address in masters.items()}

    def _start(self, ask: declare.Request[R], address: str) -> Call:
        return self._caller.begin(address, ask, timeout=self._cluster.config.request_timeout)

    def _offsets(
        self,
        asks: Mapping[MessageQueue, declare.Request[OffsetReply]],
        skip_unreachable: bool,
        absent: ResponseCode | None = None,
    ) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}

        def note(queue: MessageQueue, call: Call, address: str) -> None:
            if absent is None or call.code != absent:
                found[queue] = self._caller.read(asks[queue], call, address).offset

        run(self._cluster.routes.look_up({queue.topic for queue in asks}, self._caller))
        self._each(asks, lambda queue, address: self._start(asks[queue], address), note, skip_unreachable)
        return found

    def _each(
        self,
        every: Iterable[Asked],
        start: Callable[[Asked, str], Call],
        note: Callable[[Asked, Call, str], object],
        skip_unreachable: bool = False,
        address_of: Callable[[Asked], str] | None = None,
    ) -> None:
        """Query each broker concurrently, and process the replies in order. After a broker failed to answer, its other
        queries are skipped."""
        waiting = deque(every)
        under_way: deque[tuple[Asked, Call, str]] = deque()
        silent: dict[str, errors.RocketMQError] = {}

        def failed(asked: Asked, error: errors.RocketMQError) -> None:
            if not (skip_unreachable and error.retriable):
                raise error

        while waiting or under_way:
            while waiting and len(under_way) < UNDER_WAY_MAX:
                asked = waiting.popleft()
                try:
                    address = self._reader(asked) if address_of is None else address_of(asked)
                    if not address:
                        raise errors.ConnectError(
                            f"broker {asked.broker} is not registered", broker=asked.broker
                        )
                    if address in silent:
                        raise silent[address]
                except (errors.ConnectError, errors.RequestTimeout) as error:
                    failed(asked, error)
                else:
                    under_way.append((asked, start(asked, address), address))
            if under_way:
                asked, call, address = under_way.popleft()
                run(self._caller.wait(call))
                try:
                    check_transport(call, address)
                    note(asked, call, address)
                except (errors.ConnectError, errors.RequestTimeout) as error:
                    self._cluster.routes.doubt(asked.topic)
                    silent[address] = type(error)(
                        f"broker {asked.broker} does not answer: {error}", broker=asked.broker
                    )
                    failed(asked, silent[address])
                except errors.FlowControl as error:
                    failed(asked, error)
