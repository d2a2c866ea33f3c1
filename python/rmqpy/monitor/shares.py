"""Shares of a bounded resource: items by owner, and the choice of one to drop.

Invariant: an owner's items are ordered by when they were added or last used. Pure; one thread.
"""

from collections import Counter
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

#: The network bits of an IPv6 address: its hosts count as one client, as on the ports of RocketMQ.
_NETWORK_BITS: Final = 64


class Shares(Generic[Item]):
    """Items by owner. Few enough to count each time."""

    def __init__(self) -> None:
        self._owners: dict[Item, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def of(self, owner: Hashable) -> int:
        """The number of items of an owner."""
        return sum(each == owner for each in self._owners.values())

    def add(self, item: Item, owner: Hashable) -> None:
        """Add an item as the newest of its owner; an existing item becomes the newest."""
        self._owners.pop(item, None)
        self._owners[item] = owner

    def discard(self, item: Item) -> None:
        """Remove an item, if present."""
        self._owners.pop(item, None)

    def largest(self) -> Hashable:
        """The owner of the most items; of several, the one with the oldest item."""
        [(owner, _)] = Counter(self._owners.values()).most_common(1)
        return owner

    def oldest(self, owner: Hashable) -> Item:
        """The oldest item of an owner that has some."""
        return next(item for item, each in self._owners.items() if each == owner)


def peer_name(host: str) -> str:
    """The client a host counts for: itself, or its network of 64 bits."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(ip_network((address, _NETWORK_BITS), strict=False))
    return host
