"""Duplicates: live brokers that take each other's place at the name servers, because name and id are equal. Pure."""

from collections.abc import Iterator

from rmqpy.findings import Finding, duplicate
from rmqpy.protocol.requests.routes import MASTER_ID, ClusterInfo


def duplicates_of(info: ClusterInfo, name: str) -> Iterator[tuple[int, str, Finding]]:
    """Yield id, address and problem of each broker that has the name of another one; the name server lists one of them
    as registered."""
    addresses = (info.duplicate_broker_addrs or {}).get(name, ())
    registered = info.broker_addr_table[name].broker_addrs if name in info.broker_addr_table else {}
    broker_id = next((each for each, address in registered.items() if address in addresses), MASTER_ID)
    for address in sorted(addresses):
        yield broker_id, address, duplicate(name, addresses, broker_id)
