"""Failover on request: controllers move the leadership of a broker set, for instance before maintenance.

Invariant: only replicas in sync are elected, so no acknowledged message is lost.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from rmqpy.admin.connection import Part, master
from rmqpy.admin.elections import Elected, ElectedReplica, Elections
from rmqpy.errors import ConfigError, RequestTimeout, RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import ElectMaster


class FailedOver(NamedTuple):
    """A broker set with its new master."""

    broker: str
    broker_id: int
    address: str
    #: The address of the earlier master; None if there was none.
    replaced: str | None
    epoch: int
    #: Seconds until name servers had the new master.
    seconds: float


class _Move(NamedTuple):
    """An intended change of a master."""

    controller: str
    to: ElectedReplica
    master: ElectedReplica | None


class Failover(Part):
    """Changes of masters by controllers."""

    async def failover(self, broker: str, *, to: int | None = None, wait: float = 30.0) -> FailedOver:
        """Make a replica in sync the master of a broker set: the one with the id `to`, or else the one with the lowest
        id. `wait`: seconds until name servers have it.

        Raises `ConfigError` for a set without a controller and for an unknown replica, `RocketMQError` if none may
        be elected.
        """
        elected = await Elections(self._cluster).states()
        return await self._move(_move(elected, broker, to), wait)

    async def drain(self, server: str, *, wait: float = 30.0) -> list[FailedOver]:
        """Move the leadership of every broker set away from a server, `host` or `host:port`. Nothing is moved if one of
        them cannot be. Returns the sets with their new masters.

        Raises `ConfigError` for a server without brokers, `RocketMQError` if a set has no other replica in sync, or
        no controller.
        """
        brokers = (await self._cluster.cluster_info()).broker_addr_table
        elected = await Elections(self._cluster).states()
        addresses = {each.address for each in elected.replicas} | {
            address for data in brokers.values() for address in data.broker_addrs.values()
        }
        if not any(_is_at(address, server) for address in addresses):
            raise ConfigError(
                f"no broker runs at {server!r}", hint="list the addresses of brokers with rmqpy cluster info"
            )
        led = {each.broker for each in elected.replicas if each.is_master and _is_at(each.address, server)}
        # A name server may not have the latest master of the others.
        known = {each.broker for each in elected.replicas}
        led |= {
            name for name, data in brokers.items() if name not in known and _is_at(master(data) or "", server)
        }
        moves = [_move(elected, name, None, away_from=server) for name in sorted(led)]
        return [await self._move(each, wait) for each in moves]

    async def _move(self, move: _Move, wait: float) -> FailedOver:
        began = time.monotonic()
        epoch = await self._elect(move, began + wait)
        if not await self._cluster.await_master(move.to.broker, move.to.address, began + wait):
            raise RocketMQError(
                f"{move.to.address} was elected master of {move.to.broker}, but name servers do not have it yet",
                hint="check its log",
            )
        replaced = move.master.address if move.master is not None else None
        seconds = round(time.monotonic() - began, 3)
        return FailedOver(move.to.broker, move.to.broker_id, move.to.address, replaced, epoch, seconds)

    async def _elect(self, move: _Move, deadline: float) -> int:
        """Ask for the election, which may wait for the end of the master's lease; return the epoch."""
        ask = ElectMaster(broker_name=move.to.broker, broker_id=move.to.broker_id, designate_elect=True)
        while True:
            try:
                return (await self._cluster.ask(move.controller, ask)).master_epoch or 0
            except RequestTimeout:
                if time.monotonic() > deadline:
                    raise
            except RocketMQError as error:
                # The first request was carried out after its time.
                if error.code != ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
                    raise
                found = await Elections(self._cluster).states()
                return max(each.epoch for each in found.replicas if each.broker == move.to.broker)


def _move(elected: Elected, broker: str, to: int | None, away_from: str | None = None) -> _Move:
    """The change of the master of `broker`, to the replica `to`, or to any that is not at a server."""
    replicas = [each for each in elected.replicas if each.broker == broker]
    if not replicas:
        if broker in elected.unknown:
            raise RocketMQError(
                f"no controller leads that knows {broker!r}",
                hint="start the controllers of its controllerAddr",
            )
        raise ConfigError(
            f"{broker!r} has no controller, or is unknown",
            hint=f"promote a slave with rmqpy cluster promote {broker} --id ID; list brokers with rmqpy cluster info",
        )
    controller = next(each.address for each in elected.controllers if each.is_leader)
    present = next((each for each in replicas if each.is_master), None)
    if to is not None and to not in {each.broker_id for each in replicas}:
        ids = ", ".join(str(each.broker_id) for each in replicas)
        raise ConfigError(f"{broker} has no replica {to}", hint=f"its replicas are {ids}")
    if present is not None and present.broker_id == to:
        raise ConfigError(f"replica {to} is the master of {broker} already")
    fit = [
        each
        for each in replicas
        if each.in_sync
        and each.is_alive is not False
        and not each.is_master
        and to in (None, each.broker_id)
        and (away_from is None or not _is_at(each.address, away_from))
    ]
    if not fit:
        reason = (
            "no other replica is in sync and alive" if to is None else f"replica {to} is out of sync or gone"
        )
        raise RocketMQError(
            f"{broker} keeps its master: {reason}", hint="list replicas with rmqpy cluster replicas"
        )
    return _Move(controller, fit[0], present)


def _is_at(address: str, server: str) -> bool:
    """Whether a `host:port` is at a host, or is the given one."""
    return address == server or address.startswith(f"{server}:")
