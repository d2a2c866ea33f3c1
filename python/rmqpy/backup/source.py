"""Source of a backup: the master of one broker, found through the name servers.

Owns the connections of a run. Invariant: names are those of the broker, not translated by a namespace. Threads: the
event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqpy._native import Client
from rmqpy.admin.access import AccessRule, rules_of
from rmqpy.admin.connection import AdminConnection, master
from rmqpy.backup.tables import COPIED_SETTINGS
from rmqpy.config import properties
from rmqpy.config.client import ClientConfig
from rmqpy.errors import ConfigError, DecodeError, RocketMQError, Unsupported
from rmqpy.protocol.requests.access import ListAcls, ListUsers
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.leadership import EpochCache, GetBrokerEpochCache
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo
from rmqpy.remoting.client import LoopCaller, Peer

ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """The master to copy."""

    peer: Peer
    name: str
    cluster: str
    #: The address of its port for slaves.
    log_address: str
    #: Its epochs, and the begin of its log.
    epochs: EpochCache
    #: Settings that its files depend on.
    settings: Mapping[str, str]

    async def access(self) -> dict[str, Any]:
        """Return users, without secrets, and rules. Raises `RocketMQError`."""
        users = (await self.peer.call(ListUsers(), timeout=ANSWER_SECONDS)).body or ()
        acls = (await self.peer.call(ListAcls(), timeout=ANSWER_SECONDS)).body or ()
        return {
            "users": [
                {
                    "name": user.username,
                    "super": user.user_type == "Super",
                    "enabled": user.user_status == "enable",
                }
                for user in users
            ],
            "rules": [_row(rule) for acl in acls for rule in rules_of(self.name, acl)],
        }


def _row(rule: AccessRule) -> dict[str, Any]:
    return {name: value for name, value in rule._asdict().items() if name != "broker"}


@contextlib.asynccontextmanager
async def connected(config: ClientConfig, broker: str | None) -> AsyncIterator[tuple[Source, LoopCaller]]:
    """Connect to the master of a broker, which may be omitted if there is only one.

    Raises `ConfigError` for an unknown broker, `AuthError` without the permission to read its log, and `Unsupported`
    for a master that would count the backup as a slave.
    """
    client = Client(
        connect_timeout_ms=round(config.connect_timeout * 1_000),
        binary=config.header == "binary",
        credentials=config.signing,
        tls=config.tls.native() if config.tls else None,
    )
    try:
        with contextlib.closing(LoopCaller(client)) as caller:
            connection = AdminConnection(caller, config)
            await connection.name_servers.ready(caller)
            yield await _found(connection, caller, broker), caller
    finally:
        await asyncio.to_thread(client.close)


async def _found(connection: AdminConnection, caller: LoopCaller, broker: str | None) -> Source:
    info = await connection.cluster_info()
    known = {
        name: (cluster, address)
        for cluster, members in info.cluster_addr_table.items()
        for name in members
        if name in info.broker_addr_table and (address := master(info.broker_addr_table[name])) is not None
    }
    if broker is None and len(known) == 1:
        broker = next(iter(known))
    names = ", ".join(sorted(known))
    if broker is None:
        if known:
            raise ConfigError(f"choose one of the brokers {names}", hint="name it with --broker")
        raise RocketMQError("no broker with a master is registered", hint="start one: rmqpy broker")
    if broker not in known:
        raise ConfigError(f"no broker {broker!r} has a master", hint=f"known brokers: {names}")
    cluster, address = known[broker]
    peer = caller.peer(connection.reachable(address), timeout=connection.timeout)
    # Requested first, because only super users may copy the log.
    ask = ExchangeBrokerHaInfo(wants_ticket=True, is_observer=True)
    reply = await peer.call(ask, timeout=ANSWER_SECONDS)
    if not (reply.is_observer and reply.ticket and reply.master_ha_address):
        raise Unsupported(
            f"broker {broker} at {address} cannot be backed up while it runs: it is Apache's, or an older release "
            "of rmqpy, and would count the backup as a slave",
            hint="copy a stopped slave: docs/backup.md",
        )
    epochs = (await peer.call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
    try:
        settings = properties.parse((await peer.call(GetBrokerConfig(), timeout=ANSWER_SECONDS)).body)
    except properties.PropertiesError as error:
        raise DecodeError(f"{address} did not return its settings: {error}") from None
    wanted = {name: settings[name] for name in COPIED_SETTINGS if name in settings}
    return Source(peer, broker, cluster, reply.master_ha_address, epochs, wanted)
