"""Bounded places that several owners share: who holds how many, and who gives one up.

Invariant: an owner's items stand in the order in which they were added or last used. Pure; one thread.
"""

from collections import Counter
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

#: Bits of an IPv6 address that name a network: its hosts count as one peer, as at the ports of RocketMQ.
_NETWORK_BITS: Final = 64


class Shares(Generic[Item]):
    """Items by owner. Few enough to be counted each time."""

    def __init__(self) -> None:
        self._owners: dict[Item, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def of(self, owner: Hashable) -> int:
        """The number of items of an owner."""
        return sum(each == owner for each in self._owners.values())

    def add(self, item: Item, owner: Hashable) -> None:
        """Add an item as the newest of its owner; an item that is held becomes the newest."""
        self._owners.pop(item, None)
        self._owners[item] = owner

    def discard(self, item: Item) -> None:
        """Remove an item, if it is held."""
        self._owners.pop(item, None)

    def largest(self) -> Hashable:
        """The owner of most items. Of several the one whose oldest item is the oldest."""
        [(owner, _)] = Counter(self._owners.values()).most_common(1)
        return owner

    def oldest(self, owner: Hashable) -> Item:
        """The oldest item of an owner that has some."""
        return next(item for item, each in self._owners.items() if each == owner)


def peer_name(host: str) -> str:
    """The peer for which a host counts: itself, or its network of 64 bits."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(ip_network((address, _NETWORK_BITS), strict=False))
    return host
