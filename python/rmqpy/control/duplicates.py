"""Duplicate brokers: refuses to start while another live broker has the same name and id.

Two such brokers would replace each other at the name servers in turns, and clients would see the messages of one or
the other. A broker starts if it has moved, or if another broker has taken its former address.
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

#: Timeout of the name servers, and then of the brokers that they name.
ANSWER_SECONDS: Final = 3.0


async def refuse_duplicate(
    identity: Identity,
    name_servers: Iterable[Peer],
    peer: Callable[[str], Peer],
    ended: Collection[str] = (),
) -> None:
    """Raise `ConfigError` if another address answers as a broker of this name and id. `peer` connects to one.

    The addresses in `ended` are former masters that know it.
    """
    found = await asyncio.gather(*(_addresses(identity, server) for server in name_servers))
    others = set().union(*found) - {identity.address, *ended}
    for address in sorted(others):
        if await _answers(identity, peer(address)):
            finding = duplicate(identity.broker, (identity.address, address), identity.broker_id)
            raise ConfigError(finding.found, hint=finding.advice)
        log.info("broker %s was registered at %s, where it does not answer", identity.broker, address)


async def _addresses(identity: Identity, name_server: Peer) -> set[str]:
    """Return the addresses of brokers with this name and id at a name server; empty if it does not answer."""
    try:
        known = await name_server.call(GetClusterInfo(), timeout=ANSWER_SECONDS)
    except RocketMQError:
        return set()
    # Any id.
    addresses = set((known.duplicate_broker_addrs or {}).get(identity.broker, ()))
    group = known.broker_addr_table.get(identity.broker)
    if group is not None and identity.broker_id in group.broker_addrs:
        addresses.add(group.broker_addrs[identity.broker_id])
    return addresses


async def _answers(identity: Identity, peer: Peer) -> bool:
    """Return whether a broker of this name and id answers. A broker that refuses the query counts."""
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
