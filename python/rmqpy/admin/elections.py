"""Elections: controllers of a cluster, and the broker sets whose masters they elect."""

from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.config import properties
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.controller import GetControllerMetadata, GetSyncStateData, ReplicasInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from rmqpy.protocol.requests.routes import BrokerData


class ControllerState(NamedTuple):
    """One controller that brokers name in their settings."""

    address: str
    group: str | None
    is_leader: bool
    #: The leader, as this controller knows it.
    leader_id: str | None
    leader_address: str | None
    #: The reason for no answer.
    fault: str | None


class ElectedReplica(NamedTuple):
    """One broker of a set, as the leading controller knows it."""

    broker: str
    broker_id: int
    address: str
    is_master: bool
    #: Whether it may be elected without a loss of messages.
    in_sync: bool
    #: Whether its heartbeats arrive; None if not reported.
    is_alive: bool | None
    #: The epoch of the master, and that of the in-sync set.
    epoch: int
    in_sync_epoch: int
    #: Master: seconds for which it may acknowledge without another heartbeat. None without a lease, as of Apache's.
    lease_seconds: float | None


class Elected(NamedTuple):
    """Controllers, and the replicas of every set that they elect masters for."""

    controllers: list[ControllerState]
    replicas: list[ElectedReplica]
    #: Broker sets in controller mode that no controller reports.
    unknown: list[str]


class Elections(Part):
    """The elections of one cluster."""

    async def states(self) -> Elected:
        """Return the controllers that brokers in controller mode name, and the replicas of these brokers, by name and
        id."""
        sets = (await self._cluster.cluster_info()).broker_addr_table
        named = await self._controllers_of(sets)
        controllers = [
            await self._controller(address)
            for address in sorted({each for some in named.values() for each in some})
        ]
        found: dict[str, ReplicasInfo] = {}
        for each in controllers:
            wanted = sorted(name for name, some in named.items() if each.address in some)
            if each.is_leader:
                reply = await self._cluster.ask(each.address, GetSyncStateData(body=wanted))
                found |= reply.body.replicas_info_table if reply.body else {}
        leases = await self._leases({name: info.master_address for name, info in found.items()})
        replicas = [
            each for name, info in sorted(found.items()) for each in _replicas(name, info, leases.get(name))
        ]
        return Elected(controllers, replicas, sorted(named.keys() - found.keys()))

    async def _controllers_of(self, sets: dict[str, BrokerData]) -> dict[str, list[str]]:
        """The controllers named by each broker set in controller mode."""
        servers = [(name, address) for name, data in sets.items() for address in data.broker_addrs.values()]
        found = {}
        for name, _, reply in await self._cluster.ask_each(servers, GetBrokerConfig()):
            settings = properties.parse(reply.body)
            if settings.get("enableControllerMode") == "true":
                found[name] = [each for each in settings.get("controllerAddr", "").split(";") if each]
        return found

    async def _controller(self, address: str) -> ControllerState:
        try:
            found = await self._cluster.ask(address, GetControllerMetadata())
        except RocketMQError as error:
            return ControllerState(
                address, None, False, None, None, str(error.args[0] if error.args else error)
            )
        leader = found.controller_leader_id or None, found.controller_leader_address or None
        return ControllerState(address, found.group, found.is_leader, *leader, None)

    async def _leases(self, masters: dict[str, str | None]) -> dict[str, float]:
        """Seconds left of the lease of each master that has one."""
        servers = [(name, address) for name, address in masters.items() if address]
        found = {}
        for name, _, status in await self._cluster.outcomes(servers, GetBrokerHaStatus()):
            if not isinstance(status, ConnectError | RequestTimeout) and status.lease_left_millis is not None:
                found[name] = status.lease_left_millis / 1_000
        return found


def _replicas(name: str, info: ReplicasInfo, lease: float | None) -> list[ElectedReplica]:
    known = [(each, True) for each in info.in_sync_replicas] + [
        (each, False) for each in info.not_in_sync_replicas
    ]
    replicas = []
    for each, in_sync in sorted(known, key=lambda pair: pair[0].broker_id):
        is_master = each.broker_id == info.master_broker_id and bool(info.master_address)
        replicas.append(
            ElectedReplica(
                name,
                each.broker_id,
                each.broker_address,
                is_master,
                in_sync,
                each.alive,
                info.master_epoch,
                info.sync_state_set_epoch,
                lease if is_master else None,
            )
        )
    return replicas
