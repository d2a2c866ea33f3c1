"""Live brokers: the last heartbeat of each, by broker, connection, name and address.

Owns one entry per broker. Invariant: an entry is in all four indexes or in none.
Threads: only the event loop's.
"""

from collections.abc import Iterator
from typing import TypeVar

from rmqpy.routing.brokers import BrokerKey, BrokerLiveInfo

K = TypeVar("K", int, str, tuple[str, str])


class LiveBrokers:
    """The table. A lookup by connection, name or address costs only its own entries."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerKey, BrokerLiveInfo] = {}
        self._by_connection: dict[int, dict[BrokerKey, None]] = {}
        self._by_name: dict[str, dict[BrokerKey, None]] = {}
        #: By cluster and address.
        self._by_address: dict[tuple[str, str], dict[BrokerKey, None]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __contains__(self, broker: BrokerKey) -> bool:
        return broker in self._brokers

    def __iter__(self) -> Iterator[BrokerLiveInfo]:
        return iter(self._brokers.values())

    def get(self, broker: BrokerKey) -> BrokerLiveInfo | None:
        """The last heartbeat of one broker."""
        return self._brokers.get(broker)

    def put(self, live: BrokerLiveInfo) -> None:
        """Add a broker, or replace its entry, perhaps on another connection."""
        key = live.info.key
        if (known := self._brokers.get(key)) is not None:
            _drop(self._by_connection, known.info.connection, key)
        self._brokers[key] = live
        self._by_connection.setdefault(live.info.connection, {})[key] = None
        self._by_name.setdefault(key.name, {})[key] = None
        self._by_address.setdefault((key.cluster, key.address), {})[key] = None

    def drop(self, broker: BrokerKey) -> None:
        """Remove a broker, if present."""
        live = self._brokers.pop(broker, None)
        if live is not None:
            _drop(self._by_connection, live.info.connection, broker)
            _drop(self._by_name, broker.name, broker)
            _drop(self._by_address, (broker.cluster, broker.address), broker)

    def of_connection(self, connection: int) -> list[BrokerKey]:
        """Entries of this connection, oldest first."""
        return list(self._by_connection.get(connection, ()))

    def of_name(self, name: str) -> list[BrokerLiveInfo]:
        """Entries of one name, oldest first."""
        return [self._brokers[key] for key in self._by_name.get(name, ())]

    def of_address(self, cluster: str, address: str) -> list[BrokerLiveInfo]:
        """Entries of one address in a cluster, oldest first."""
        return [self._brokers[key] for key in self._by_address.get((cluster, address), ())]


def _drop(index: dict[K, dict[BrokerKey, None]], entry: K, broker: BrokerKey) -> None:
    found = index[entry]
    del found[broker]
    if not found:
        del index[entry]
