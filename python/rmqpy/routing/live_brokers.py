"""Live brokers: the last sign of life of each, found by broker, by the connection it came on, by name and by address.

Owns one entry for each broker. Invariant: an entry is found in all four ways or in none.
Threads: the event loop's only.
"""

from collections.abc import Iterator
from typing import TypeVar

from rmqpy.routing.brokers import BrokerKey, BrokerLiveInfo

K = TypeVar("K", int, str, tuple[str, str])


class LiveBrokers:
    """The table. Whatever is asked about one connection, name or address costs what that has, not what there is."""

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
        """The last sign of life of one."""
        return self._brokers.get(broker)

    def put(self, live: BrokerLiveInfo) -> None:
        """A broker is there, or has registered again, perhaps on another connection."""
        key = live.info.key
        if (known := self._brokers.get(key)) is not None:
            _drop(self._by_connection, known.info.connection, key)
        self._brokers[key] = live
        self._by_connection.setdefault(live.info.connection, {})[key] = None
        self._by_name.setdefault(key.name, {})[key] = None
        self._by_address.setdefault((key.cluster, key.address), {})[key] = None

    def drop(self, broker: BrokerKey) -> None:
        """A broker is gone, if it was there."""
        live = self._brokers.pop(broker, None)
        if live is not None:
            _drop(self._by_connection, live.info.connection, broker)
            _drop(self._by_name, broker.name, broker)
            _drop(self._by_address, (broker.cluster, broker.address), broker)

    def of_connection(self, connection: int) -> list[BrokerKey]:
        """Those whose last sign of life came on this connection, oldest first."""
        return list(self._by_connection.get(connection, ()))

    def of_name(self, name: str) -> list[BrokerLiveInfo]:
        """Those of one name, oldest first."""
        return [self._brokers[key] for key in self._by_name.get(name, ())]

    def of_address(self, cluster: str, address: str) -> list[BrokerLiveInfo]:
        """Those of one address in a cluster, oldest first."""
        return [self._brokers[key] for key in self._by_address.get((cluster, address), ())]


def _drop(index: dict[K, dict[BrokerKey, None]], entry: K, broker: BrokerKey) -> None:
    found = index[entry]
    del found[broker]
    if not found:
        del index[entry]
