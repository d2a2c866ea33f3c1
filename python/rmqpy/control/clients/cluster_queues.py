"""Cluster queues: the readable queues of a topic at all brokers of the cluster.

Owns the routes of topics, for some seconds each. The broker's own queues are those of its table. Threads: the event
loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rmqpy.control.topics.table import Topics
from rmqpy.errors import RocketMQError, TopicNotFound
from rmqpy.message import MessageQueue
from rmqpy.protocol.requests.routes import GetRoute, QueueData
from rmqpy.protocol.topics import Permission
from rmqpy.remoting.client import Peer

#: Topics whose routes are kept, and for how long.
ROUTES_MAX: Final = 10_000
ROUTE_SECONDS: Final = 5.0
ASK_SECONDS: Final = 3.0


class ClusterQueues:
    """The queues that consumers of the cluster may read."""

    def __init__(
        self, broker: str, topics: Topics, name_servers: Sequence[Peer], elapsed: Callable[[], float]
    ) -> None:
        """`elapsed`: seconds of a monotonic clock."""
        self._broker = broker
        self._topics = topics
        self._name_servers = name_servers
        self._elapsed = elapsed
        self._routes: dict[str, tuple[float, Sequence[QueueData]]] = {}
        self._lookups: dict[str, asyncio.Task[Sequence[QueueData] | None]] = {}

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """The queues in the order of clients; None where the topic is unknown, or no name server answers."""
        others = await self._elsewhere(topic)
        own = self._topics.get(topic)
        if others is None or (own is None and not others):
            return None
        queues = [
            MessageQueue(topic, queue.broker_name, number)
            for queue in others
            for number in range(queue.read_queue_nums)
        ]
        if own is not None and own.perm & Permission.READ:
            queues += (MessageQueue(topic, self._broker, number) for number in range(own.read_queue_nums))
        return sorted(queues)

    async def _elsewhere(self, topic: str) -> Sequence[QueueData] | None:
        """Readable queues of other brokers."""
        known = self._routes.get(topic)
        if known is not None and self._elapsed() < known[0]:
            return known[1]
        lookup = self._lookups.get(topic)
        if lookup is None:
            lookup = self._lookups[topic] = asyncio.get_running_loop().create_task(self._look_up(topic))
            lookup.add_done_callback(lambda _: self._lookups.pop(topic, None))
        found = await asyncio.shield(lookup)
        return known[1] if found is None and known is not None else found

    async def _look_up(self, topic: str) -> Sequence[QueueData] | None:
        found: list[QueueData] | None = None if self._name_servers else []
        for server in self._name_servers:
            try:
                route = await server.call(
                    GetRoute(topic=topic, accept_standard_json_only=True), timeout=ASK_SECONDS
                )
            except TopicNotFound:
                found = []
                continue
            except (RocketMQError, OSError):
                continue
            found = [
                queue
                for queue in route.body.queue_datas
                if queue.perm & Permission.READ and queue.broker_name != self._broker
            ]
            break
        if found is not None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = (self._elapsed() + ROUTE_SECONDS, found)
        return found
