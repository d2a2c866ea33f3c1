"""Succession: one master replaces another. Handles the notification, and informs the replaced master.

Invariants: a replaced master answers after its log has stopped growing; a broker accepts only a newer epoch.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from rmqpy._native import Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import ASYNC_MASTER, SYNC_MASTER
from rmqpy.control.identity import Identity
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.findings import empty_master, replaced
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.leadership import (
    EpochCache,
    GetBrokerEpochCache,
    NotifyBrokerRoleChanged,
    RoleChanged,
)
from rmqpy.protocol.requests.routes import MASTER_ID, GetClusterInfo
from rmqpy.remoting.client import Peer
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: The interval at which a replaced master is notified until it acknowledges. A replaced master looks for its successor
#: at the next one.
NOTIFY_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 3.0


class Succession:
    """This broker's part in a change of leadership."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        leadership: Leadership,
        role: BrokerRole,
        master: KnownMaster,
        store: Store,
        peer: Callable[[str], Peer],
        restart: Callable[[], None],
        *,
        epoch: Callable[[], int],
        on_end: Callable[[], None],
        leave: Callable[[], Awaitable[None]],
        finish_copies: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`broker_id` is the configured one, `config` is the one in force. `restart` restarts the broker. `epoch`
        returns the newest epoch of the own log. `on_end` is called when this master ceases to lead. `leave` ends the
        registrations without unregistering, so that the next master's stay. `finish_copies` copies a slave's progress
        once more."""
        self._config = config
        self._broker_id = broker_id
        self._leadership = leadership
        self._role = role
        self._master = master
        self._store = store
        self._peer = peer
        self._restart = restart
        self._task: asyncio.Task[None] | None = None
        self._epoch = epoch
        self._on_end = on_end
        self._leave = leave
        self._finish_copies = finish_copies

    async def change(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        """Lead from an epoch on, or stop leading. Raises `Refused`."""
        if ask.broker_name not in (None, self._config.name):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the name of this broker is {self._config.name}")
        known = max(self._epoch(), self._leadership.epoch or 0, self._leadership.ended_by or 0)
        if ask.master_epoch < known or (ask.master_epoch == known and self._leadership.ended_by != known):
            raise Refused(
                ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                f"epoch {ask.master_epoch} is not newer than the known epoch {known}",
            )
        if ask.master_broker_id == self._broker_id and self._broker_id != MASTER_ID:
            return await self._lead(ask)
        if self._role.is_slave:
            return RoleChanged()
        await self._leadership.end(ask.master_epoch, ask.master_address)
        self._role.lead_no_more(ask.master_address)
        log_end = self._store.fence()
        self._on_end()
        await self._leave()
        self._begin(self._look_for_successor(ask.master_address, ask.master_epoch))
        return RoleChanged(log_end=log_end)

    async def _lead(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        if not self._role.is_slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker already leads")
        role = ask.broker_role or self._leadership.role
        if role not in (ASYNC_MASTER, SYNC_MASTER):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{role} is not a master role")
        try:
            self._leadership.leading(role)
        except ConfigError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"cannot lead as {role}: {error}") from None
        if self._finish_copies is not None:
            await self._finish_copies()
        await self._leadership.begin(ask.master_epoch, role, self._master.address)
        log.warning("promoted: leading %s as %s, epoch=%d", self._config.name, role, ask.master_epoch)
        self._restart()
        return RoleChanged(log_end=self._store.statistics()["max_physical"])

    def start(self, own_address: str) -> None:
        """Start notifying a replaced master that does not know yet, if there is one."""
        if not self._role.is_slave and self._leadership.untold is not None:
            self._begin(self._notify(own_address))

    async def stop(self) -> None:
        """Stop the task that notifies a replaced master or looks for a successor. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _begin(self, work: Awaitable[None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(work)

    async def _notify(self, own_address: str) -> None:
        known = (self._leadership, self._config.name, self._broker_id, own_address, self._peer)
        while not await notify_replaced(*known):  # noqa: ASYNC110 - the other one is on another machine
            await asyncio.sleep(NOTIFY_SECONDS)

    async def _look_for_successor(self, address: str | None, epoch: int) -> None:
        """Wait until the successor leads, then restart as its slave if the configuration allows it."""
        if address is None or not self._leadership.returns_as_slave:
            return
        while True:
            with contextlib.suppress(RocketMQError):
                state = (await self._peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
                if state.broker_id == MASTER_ID and state.epoch >= epoch:
                    self._restart()
                    return
            await asyncio.sleep(LOOK_SECONDS)


async def notify_replaced(
    leadership: Leadership, name: str, broker_id: int, own_address: str, peer: Callable[[str], Peer]
) -> bool:
    """Notify the replaced master; return whether nothing is left to do."""
    address, epoch = leadership.untold, leadership.epoch
    if address is None or epoch is None:
        return True
    news = NotifyBrokerRoleChanged(
        master_broker_id=broker_id, master_epoch=epoch, master_address=own_address, broker_name=name
    )
    try:
        await peer(address).call(news, timeout=ANSWER_SECONDS)
    except RocketMQError as error:
        if error.code != ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH:
            return False
    log.info("the broker at %s knows that it no longer leads %s", address, name)
    with contextlib.suppress(RocketMQError):
        await leadership.notified()
    return True


async def give_way(
    leadership: Leadership,
    name: str,
    own_address: str,
    name_servers: Iterable[Peer],
    peer: Callable[[str], Peer],
) -> bool:
    """Return whether this promoted broker was replaced while it was away; it is a slave again then, as configured.
    Raises `StoreError`.
    """
    epoch = leadership.epoch
    if epoch is None:
        return False
    newer = await _newer_epoch(name, own_address, epoch, name_servers, peer)
    if newer is None:
        return False
    address, ended_by = newer
    await leadership.end(ended_by, address)
    log.warning(
        "the broker of %s at %s is of epoch %d: this one, which was promoted to lead since epoch %d, is a slave again",
        *(name, address, ended_by, epoch),
    )
    return True


async def settle(
    leadership: Leadership,
    own: Identity,
    broker_id: int,
    name_servers: Collection[Peer],
    peer: Callable[[str], Peer],
) -> set[str]:
    """Check before serving that this master may lead; return the addresses of masters whose leadership it has ended.

    `broker_id` as given. Raises `ConfigError` if a broker of this name answers with a newer
    epoch, or if a slave has a log and this broker has none.
    """
    epoch = leadership.last_epoch
    ended: set[str] = set()
    others = await _others(own.broker, own.address, name_servers, peer)
    if not epoch and any(state.broker_id == MASTER_ID for _, state in others):
        # An empty folder and a live master: they may not belong together.
        return ended
    for address, state in others:
        leads = state.broker_id == MASTER_ID
        if state.epoch > epoch:
            finding = (
                replaced(own.broker, address if leads else None, state.epoch)
                if epoch
                else empty_master(own.broker, state.broker_id, address)
            )
            raise ConfigError(finding.found, hint=finding.advice)
        # It returned while this broker was away, at an address that was not notified.
        is_stale = leads and leadership.epoch is not None and state.epoch < leadership.epoch
        if is_stale and await _end_time(leadership.epoch, own, broker_id, peer(address)):
            ended.add(address)
    return ended


async def _end_time(epoch: int | None, own: Identity, broker_id: int, stale: Peer) -> bool:
    """Notify a replaced master; return whether it knows."""
    assert epoch is not None, "this broker was promoted"
    news = NotifyBrokerRoleChanged(
        master_broker_id=broker_id, master_epoch=epoch, master_address=own.address, broker_name=own.broker
    )
    try:
        await stale.call(news, timeout=ANSWER_SECONDS)
    except RocketMQError as error:
        return error.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    return True


async def _newer_epoch(
    name: str, own_address: str, epoch: int, name_servers: Iterable[Peer], peer: Callable[[str], Peer]
) -> tuple[str, int] | None:
    """Return another broker of this name with a newer epoch, and that epoch."""
    others = await _others(name, own_address, name_servers, peer)
    return next(((address, state.epoch) for address, state in others if state.epoch > epoch), None)


async def _others(
    name: str, own_address: str, name_servers: Iterable[Peer], peer: Callable[[str], Peer]
) -> list[tuple[str, EpochCache]]:
    """Return the other brokers of this name that answer, with the epochs of their logs."""
    addresses: set[str] = set()
    for server in name_servers:
        with contextlib.suppress(RocketMQError):
            known = await server.call(GetClusterInfo(), timeout=ANSWER_SECONDS)
            addresses.update((known.duplicate_broker_addrs or {}).get(name, ()))
            if name in known.broker_addr_table:
                addresses.update(known.broker_addr_table[name].broker_addrs.values())
    found = []
    for address in sorted(addresses - {own_address}):
        with contextlib.suppress(RocketMQError):
            state = (await peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
            if state.broker_name == name:
                found.append((address, state))
    return found
