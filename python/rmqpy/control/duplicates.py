"""Duplicate brokers: a broker does not start in the place of another one that lives.

Two brokers of one name and id would take each other's place at the name servers in turns, and clients would see the
messages of one or the other. A broker that has moved, or whose former address another one has, starts.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from rmqpy.config import properties
from rmqpy.control.identity import Identity
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, RocketMQError
from rmqpy.findings import duplicate
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: How long a start waits for name servers, and then for brokers that they name.
ANSWER_SECONDS: Final = 3.0


async def refuse_duplicate(
    identity: Identity,
    name_servers: Iterable[Peer],
    peer: Callable[[str], Peer],
    ended: Collection[str] = (),
) -> None:
    """Raises `ConfigError` when a broker of this name and id answers at another address; `peer` connects to one.

    Those at `ended` know that they lead no more.
    """
    told = await asyncio.gather(*(_addresses(identity, server) for server in name_servers))
    others = set().union(*told) - {identity.address, *ended}
    for address in sorted(others):
        if await _answers(identity, peer(address)):
            finding = duplicate(identity.broker, (identity.address, address), identity.broker_id)
            raise ConfigError(finding.found, hint=finding.advice)
        log.info("broker %s was at %s before, where it does not answer", identity.broker, address)


async def _addresses(identity: Identity, name_server: Peer) -> set[str]:
    """Where a name server knows brokers of this name and id; one that does not answer knows none."""
    try:
        known = await name_server.call(GetClusterInfo(), timeout=ANSWER_SECONDS)
    except RocketMQError:
        return set()
    # Of any id.
    addresses = set((known.duplicate_broker_addrs or {}).get(identity.broker, ()))
    group = known.broker_addr_table.get(identity.broker)
    if group is not None and identity.broker_id in group.broker_addrs:
        addresses.add(group.broker_addrs[identity.broker_id])
    return addresses


async def _answers(identity: Identity, peer: Peer) -> bool:
    """Whether a broker of this name and id answers. One that refuses the question may be one."""
    try:
        answer = await peer.call(GetBrokerConfig(), timeout=ANSWER_SECONDS)
    except (ConnectError, RequestTimeout):
        return False
    except RocketMQError:
        return True
    try:
        settings = properties.parse(answer.body)
    except properties.PropertiesError:
        return True
    is_named = settings.get("brokerName", identity.broker) == identity.broker
    return is_named and settings.get("brokerId", str(identity.broker_id)) == str(identity.broker_id)
