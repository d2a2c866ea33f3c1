"""Prometheus metrics of a name server, read from its tables at each scrape."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rmqpy.monitor import connections, process
from rmqpy.monitor.exposition import Exposition, Family, expose, plain
from rmqpy.routing.routes import Routes

_REFUSALS: Final = {
    "unauthenticated": "Requests refused by authentication.",
    "unauthorized": "Requests refused by authorization.",
}


class Metrics:
    """The metrics of one name server."""

    def __init__(self, routes: Routes, server: Callable[[], Mapping[str, int]], address: str) -> None:
        self._routes = routes
        self._server = server
        self._address = address

    async def exposition(self, accept: str) -> Exposition:
        """All metrics, for a client that accepts these content types."""
        families = [*self._families(), *process.families()]
        return await asyncio.to_thread(
            expose, families, {"node_type": "nameserver", "node_id": self._address}, accept
        )

    def _families(self) -> Iterator[Family]:
        info = self._routes.cluster_info()
        yield Family(
            "rmqpy_registered_brokers",
            "gauge",
            "Live brokers, including slaves.",
            [
                (
                    {"cluster": cluster},
                    sum(len(info.broker_addr_table[name].broker_addrs) for name in members),
                )
                for cluster, members in info.cluster_addr_table.items()
            ],
        )
        yield plain("rmqpy_topics", "gauge", "Topics with a route.", len(self._routes.queues.topics()))
        counters = self._server()
        yield plain("rmqpy_requests_total", "counter", "Requests read.", counters.get("requests", 0))
        for name, text in _REFUSALS.items():
            yield plain(f"rmqpy_{name}_total", "counter", text, counters.get(name, 0))
        yield from connections.families(counters)
