"""Catalog of a cluster: its topics, their queues with begin and end, the progress of groups.

Owns nothing but its hold of a cluster connection. Each question may name many queues; their requests are on the way
together, so that fifty queues take as long as the slowest of their brokers. For one thread.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Self, TypeVar

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.client import arrival_waiter
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.offsets import commitment, place_query, progress_query
from rmqpy.client.routes import Route
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare, names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import OffsetReply
from rmqpy.protocol.requests.routes import GetAllTopics, GetClusterInfo, GetSystemTopics
from rmqpy.protocol.requests.topics import GetSystemTopicListFromBroker
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, check_transport, read, run

R = TypeVar("R")

#: Requests on their way together.
UNDER_WAY_MAX: Final = 256
#: Messages looked at to learn how large a queue's messages are.
SAMPLE_COUNT: Final = 32


class Catalog:
    """Asks a cluster about many queues at once.

    ::

        with rmqpy.Catalog("127.0.0.1:9876") as catalog:
            ends = catalog.ends(catalog.queues("orders"))
    """

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        self._cluster = ClusterConnection.hold(ClientConfig.of(namesrv))
        self._caller = BlockingCaller(self._cluster.client)
        self._arrival_waiter = arrival_waiter.ArrivalWaiter(self._cluster, self._caller)
        self._is_closed = False

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

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read, sorted. Raises `TopicNotFound`."""
        return list(self._route(topic).readable)

    def begins(
        self, queues: Iterable[MessageQueue], *, skip_unreachable: bool = False
    ) -> dict[MessageQueue, int]:
        """The first offset each queue holds. `skip_unreachable`: leave out queues whose broker does not answer,
        instead of raising `ConnectError` or `RequestTimeout`."""
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
        self._each(asks, lambda _, ask, call, address: read(ask, call, address))

    def message_bytes(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Bytes a message of each queue takes on average, judged by the first ones from an offset on.

        Queues that answer with none are left out.
        """
        calls = {}
        for queue, offset in offsets.items():
            ext = pulls.request(arrival_waiter.GROUP, queue, offset, tags="*", messages_max=SAMPLE_COUNT)
            address = self._route(queue.topic).reader(queue.broker)
            timeout = self._cluster.config.request_timeout
            calls[queue] = (self._caller.start(address, pulls.PULL, ext, timeout=timeout), address)
        sizes = {}
        for queue, (call, address) in calls.items():
            run(self._caller.wait(call))
            pulled = pulls.read(call, queue, address)
            count = pulled.next_offset - offsets[queue]
            if pulled.found is pulls.Found.MESSAGES and count > 0:
                sizes[queue] = -(-call.body_size // count)
        return sizes

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._arrival_waiter.close()
            self._cluster.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _route(self, topic: str) -> Route:
        return run(self._cluster.routes.subscribe(topic, self._caller))

    def _offsets(
        self,
        asks: Mapping[MessageQueue, declare.Request[OffsetReply]],
        skip_unreachable: bool,
        absent: ResponseCode | None = None,
    ) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}

        def note(queue: MessageQueue, ask: declare.Request[OffsetReply], call: Call, address: str) -> None:
            if absent is None or call.code != absent:
                found[queue] = read(ask, call, address).offset

        self._each(asks, note, skip_unreachable)
        return found

    def _each(
        self,
        asks: Mapping[MessageQueue, declare.Request[R]],
        note: Callable[[MessageQueue, declare.Request[R], Call, str], Any],
        skip_unreachable: bool = False,
    ) -> None:
        """Ask for every queue, many requests at a time, and note each reply in order."""
        waiting = list(asks.items())
        while waiting:
            burst, waiting = waiting[:UNDER_WAY_MAX], waiting[UNDER_WAY_MAX:]
            calls = []
            for queue, ask in burst:
                sent = declare.encode(ask)
                try:
                    address = self._route(queue.topic).reader(queue.broker)
                except errors.ConnectError:
                    if not skip_unreachable:
                        raise
                    continue
                timeout = self._cluster.config.request_timeout
                call = self._caller.start(address, ask.code, sent.ext, sent.body, timeout=timeout)
                calls.append((queue, ask, call, address))
            for queue, ask, call, address in calls:
                run(self._caller.wait(call))
                try:
                    check_transport(call, address)
                except (errors.ConnectError, errors.RequestTimeout):
                    self._cluster.routes.doubt(queue.topic)
                    if not skip_unreachable:
                        raise
                else:
                    note(queue, ask, call, address)
