"""Catalog of a cluster: its topics, their queues with begin and end, the progress of groups.

Owns nothing but its hold of a cluster connection. Each question may name many queues; their requests are on the way
together, so that fifty queues take as long as the slowest of their brokers, and a broker that does not answer is waited
for once. For one thread.
"""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Final, NamedTuple, Self, TypeVar

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.client import arrival_waiter
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.offsets import commitment, place_query, progress_query
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
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, check_transport, run


class _TopicOnBroker(NamedTuple):
    """All queues of a topic that one broker has."""

    topic: str
    broker: str


R = TypeVar("R")
#: Who is asked: the broker of a queue, or of all queues of a topic there.
Asked = TypeVar("Asked", MessageQueue, _TopicOnBroker)

#: Requests on their way together.
UNDER_WAY_MAX: Final = 256
#: Messages looked at to learn how large a queue's messages are.
SAMPLE_COUNT: Final = 32


class Catalog:
    """Asks a cluster about many queues at once.

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
        """Names of all topics but those RocketMQ keeps for itself, sorted."""
        servers, caller = self._cluster.servers, self._caller
        found = run(servers.ask(caller, GetAllTopics())).topic_list
        # Name servers know the topics named as clusters and brokers, a broker knows the others.
        system = run(servers.ask(caller, GetSystemTopics()))
        own = set(system.topic_list)
        if system.broker_addr:
            timeout = self._cluster.config.request_timeout
            ask = GetSystemTopicListFromBroker()
            own.update(run(caller.ask(system.broker_addr, ask, timeout=timeout)).topic_list)
        return sorted(name for name in found if name not in own and not names.is_derived(name))

    def brokers(self) -> frozenset[str]:
        """Names of the brokers that name servers count as alive."""
        found = run(self._cluster.servers.ask(self._caller, GetClusterInfo()))
        return frozenset(found.broker_addr_table)

    def queues(self, *topics: str, skip_missing: bool = False) -> list[MessageQueue]:
        """The queues of topics that can be read, those of each topic sorted. Raises `TopicNotFound`, unless it is to
        `skip_missing` topics."""
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
        """The first offset each queue holds, and the one after its last message; `None` where the master of its
        broker says that there is no such queue. One request for all queues of a topic on a broker.

        `skip_unreachable`: leave out queues whose broker does not answer, is busy or is not registered, instead of
        raising `ConnectError`, `RequestTimeout` or `FlowControl`.
        """
        wanted: defaultdict[_TopicOnBroker, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            wanted[_TopicOnBroker(queue.topic, queue.broker)].append(queue)
        run(self._cluster.routes.look_up({topic for topic, _ in wanted}, self._caller))
        masters = cache(self._masters)
        addresses = {asked: self._with_master(asked, masters) for asked in wanted}
        found: dict[MessageQueue, tuple[int, int] | None] = {}

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
        """The first offset each queue holds. `skip_unreachable`: as in `offsets`."""
        asks = {queue: place_query(queue, "earliest") for queue in queues}
        return self._offsets(asks, skip_unreachable)

    def ends(
        self, queues: Iterable[MessageQueue], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, int]:
        """The offset after the last message of each queue."""
        asks = {queue: place_query(queue, "latest") for queue in queues}
        return self._offsets(asks, skip_unreachable)

    def wait(self, offsets: Mapping[MessageQueue, int], timeout: float) -> bool:
        """Until a queue has a message at its offset or later; False when `timeout` seconds passed first.

        Brokers tell when something comes: waiting takes next to nothing, on either side. A queue whose broker cannot
        be asked ends no wait.
        """
        return self._arrival_waiter.wait(offsets, timeout)

    def since(self, moments: Mapping[MessageQueue, datetime]) -> dict[MessageQueue, int]:
        """The offset of the first message stored at or after a moment; the end where none is that new."""
        asks = {queue: place_query(queue, moment) for queue, moment in moments.items()}
        return self._offsets(asks, False)

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The progress of a group; queues it has no commit in are left out."""
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
        """Bytes a message of each queue takes on average, judged by the first ones from an offset on; 0 where there
        is none. `skip_unreachable`: as in `offsets`."""
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
        """Check that the brokers of these queues filter by an expression; tags all of them do. One request to each
        broker. `skip_unreachable`: as in `offsets`.

        Raises `Unsupported` where SQL92 is switched off, and `BrokerError` where the broker cannot read this one.
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
        """Give the connections back. Idempotent."""
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
        return self._route(asked.topic).reader(asked.broker)

    def _with_master(
        self, asked: _TopicOnBroker, masters: Callable[[], Mapping[str, str]]
    ) -> tuple[str, str]:
        """The address to ask about a topic on a broker, and that of its master; empty where none is known. Of a topic
        that is gone no route tells: its brokers are asked all the same."""
        try:
            route = self._route(asked.topic)
            return route.reader(asked.broker), route.brokers[asked.broker].get(MASTER_ID, "")
        except (errors.TopicNotFound, errors.NoBrokerRegistered, errors.ConnectError):
            master = masters().get(asked.broker, "")
            return master, master

    def _masters(self) -> dict[str, str]:
        """Addresses of the brokers that name servers know, by name; none while no name server answers."""
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
        """Ask each broker, with many requests on their way, and note the replies in order. After one that did not
        answer a broker is not asked the rest."""
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
