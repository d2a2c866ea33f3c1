"""Prometheus metrics of a controller, with the names of Apache's, read at each scrape."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rmqpy._native import Controller
from rmqpy.config.controller import ControllerConfig
from rmqpy.monitor import connections, process
from rmqpy.monitor.exposition import Exposition, Family, expose, plain

_LEADER: Final = 3
_FOLLOWER: Final = 2


class Metrics:
    """The metrics of one controller."""

    def __init__(
        self,
        native: Controller,
        server: Callable[[], Mapping[str, int]],
        address: str,
        config: ControllerConfig,
    ) -> None:
        self._native = native
        self._server = server
        self._labels = {"address": address, "group": config.group, "peer_id": config.self_id}

    async def exposition(self, accept: str) -> Exposition:
        """All metrics, for a client that accepts these content types."""
        families = [*self._families(), *process.families()]
        return await asyncio.to_thread(expose, families, self._labels, accept)

    def _families(self) -> Iterator[Family]:
        native = self._native
        role = _LEADER if native.is_leader() else _FOLLOWER
        yield plain("rocketmq_controller_role", "gauge", "3: leader, 2: follower.", role)
        alive: Counter[tuple[str, str]] = Counter()
        in_sync, masters, leases = [], [], []
        for name in native.names():
            if (found := native.broker_set(name)) is None:
                continue
            labels = {"cluster": found.cluster, "broker_set": name}
            alive[found.cluster, name] += sum(replica.is_alive for replica in found.replicas)
            in_sync.append((labels, len(found.in_sync)))
            masters.append((labels, int(found.master_id is not None)))
            leases.append((labels, found.lease_ms / 1_000))
        yield Family(
            "rocketmq_controller_active_broker_num",
            "gauge",
            "Brokers that send heartbeats.",
            [({"cluster": cluster, "broker_set": name}, count) for (cluster, name), count in alive.items()],
        )
        yield Family("rmqpy_controller_in_sync_replicas", "gauge", "Replicas in the in-sync set.", in_sync)
        yield Family("rmqpy_controller_masters", "gauge", "1 if the broker set has a master.", masters)
        yield Family(
            "rmqpy_controller_lease_seconds",
            "gauge",
            "Time until another master may be elected; 0 without a lease.",
            leases,
        )
        results = ("new_master_elected", "keep_current_master", "no_master_elected")
        counts = zip(results, native.elections(), strict=True)
        yield Family(
            "rocketmq_controller_election_total",
            "counter",
            "Elections by result.",
            [({"election_result": result}, count) for result, count in counts],
        )
        counters = self._server()
        yield plain("rmqpy_requests_total", "counter", "Requests read.", counters.get("requests", 0))
        yield from connections.families(counters)
