"""Succession: one master takes over from another. What a broker does that is told so, and how the one that was replaced
hears of it.

Invariants: who leads no more says so after its log has stopped growing; a broker believes a younger epoch alone.
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

#: How often the master that was replaced is told, until it has heard, and how often one that was replaced looks for the
#: next one.
TELL_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 3.0


class Succession:
    """This broker's part when the leadership changes."""

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
    ) -> None:
        """`broker_id` as it was given, `config` as it is in force. `restart` begins to start the broker again."""
        self._config = config
        self._broker_id = broker_id
        self._leadership = leadership
        self._role = role
        self._master = master
        self._store = store
        self._peer = peer
        self._restart = restart
        self._task: asyncio.Task[None] | None = None
        #: The youngest epoch of the own log.
        self.epoch: Callable[[], int] = lambda: 0
        #: Called when this master leads no more.
        self.on_end: Callable[[], None] = lambda: None
        #: Ends the registrations, so that the next master's stay.
        self.leave: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        #: Brings what a slave copies beside the log up to date.
        self.finish_copies: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)

    async def change(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        """Lead from an epoch on, or lead no more. Raises `Refused`."""
        if ask.broker_name not in (None, self._config.name):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this broker is called {self._config.name}")
        known = max(self.epoch(), self._leadership.epoch or 0, self._leadership.ended_by or 0)
        if ask.master_epoch < known or (ask.master_epoch == known and self._leadership.ended_by != known):
            raise Refused(
                ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                f"epoch {ask.master_epoch} is not younger than {known}, which is known here",
            )
        if ask.master_broker_id == self._broker_id and self._broker_id != MASTER_ID:
            return await self._lead(ask)
        if self._role.is_slave:
            return RoleChanged()
        await self._leadership.end(ask.master_epoch, ask.master_address)
        self._role.lead_no_more(ask.master_address)
        log_end = self._store.fence()
        self.on_end()
        await self.leave()
        self._begin(self._look_for_successor(ask.master_address, ask.master_epoch))
        return RoleChanged(log_end=log_end)

    async def _lead(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        if not self._role.is_slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker leads already")
        role = ask.broker_role or self._leadership.role
        if role not in (ASYNC_MASTER, SYNC_MASTER):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{role} is no role of a master")
        try:
            self._leadership.leading(role)
        except ConfigError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"it cannot lead as {role}: {error}") from None
        await self.finish_copies()
        await self._leadership.begin(ask.master_epoch, role, self._master.address)
        log.warning(
            "this broker was promoted to lead %s as %s, epoch %d", self._config.name, role, ask.master_epoch
        )
        self._restart()
        return RoleChanged(log_end=self._store.statistics()["max_physical"])

    def start(self, own_address: str) -> None:
        """Begin to tell a master that was replaced, where there is one that does not know."""
        if not self._role.is_slave and self._leadership.untold is not None:
            self._begin(self._tell(own_address))

    async def stop(self) -> None:
        """Tell and look no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _begin(self, work: Awaitable[None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(work)

    async def _tell(self, own_address: str) -> None:
        known = (self._leadership, self._config.name, self._broker_id, own_address, self._peer)
        while not await tell(*known):  # noqa: ASYNC110 - the other one is on another machine
            await asyncio.sleep(TELL_SECONDS)

    async def _look_for_successor(self, address: str | None, epoch: int) -> None:
        """Wait until another one leads; where this broker may be its slave, it becomes that."""
        if address is None or not self._leadership.returns_as_slave:
            return
        while True:
            with contextlib.suppress(RocketMQError):
                told = (await self._peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
                if told.broker_id == MASTER_ID and told.epoch >= epoch:
                    self._restart()
                    return
            await asyncio.sleep(LOOK_SECONDS)


async def tell(
    leadership: Leadership, name: str, broker_id: int, own_address: str, peer: Callable[[str], Peer]
) -> bool:
    """Tell the master that this broker has replaced, if it answers; whether there is nothing left to tell."""
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
    log.info("the broker at %s knows that it does not lead %s any more", address, name)
    with contextlib.suppress(RocketMQError):
        await leadership.told()
    return True


async def give_way(
    leadership: Leadership,
    name: str,
    own_address: str,
    name_servers: Iterable[Peer],
    peer: Callable[[str], Peer],
) -> bool:
    """Whether this broker, which was promoted once, was replaced while it was away: then it is a slave again, as its
    configuration says. Raises `StoreError`.
    """
    epoch = leadership.epoch
    if epoch is None:
        return False
    younger = await _younger_epoch(name, own_address, epoch, name_servers, peer)
    if younger is None:
        return False
    address, ended_by = younger
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
    """Find out whether this master may lead, before it serves: the addresses of masters whose time it has ended.

    `broker_id` as it was given. Raises `ConfigError` where a broker of this name answers whose log is of a younger
    epoch, or a slave has a log and this broker has none.
    """
    epoch = leadership.last_epoch
    ended: set[str] = set()
    others = await _others(own.broker, own.address, name_servers, peer)
    if not epoch and any(told.broker_id == MASTER_ID for _, told in others):
        # An empty folder, and a master that lives: nothing says that they are of one pair.
        return ended
    for address, told in others:
        leads = told.broker_id == MASTER_ID
        if told.epoch > epoch:
            finding = (
                replaced(own.broker, address if leads else None, told.epoch)
                if epoch
                else empty_master(own.broker, told.broker_id, address)
            )
            raise ConfigError(finding.found, hint=finding.advice)
        # It came back while this broker was away, at an address where it was not told.
        is_stale = leads and leadership.epoch is not None and told.epoch < leadership.epoch
        if is_stale and await _end_time(leadership.epoch, own, broker_id, peer(address)):
            ended.add(address)
    return ended


async def _end_time(epoch: int | None, own: Identity, broker_id: int, stale: Peer) -> bool:
    """Tell a master that it was replaced; whether it knows."""
    assert epoch is not None, "this broker was promoted"
    news = NotifyBrokerRoleChanged(
        master_broker_id=broker_id, master_epoch=epoch, master_address=own.address, broker_name=own.broker
    )
    try:
        await stale.call(news, timeout=ANSWER_SECONDS)
    except RocketMQError as error:
        return error.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    return True


async def _younger_epoch(
    name: str, own_address: str, epoch: int, name_servers: Iterable[Peer], peer: Callable[[str], Peer]
) -> tuple[str, int] | None:
    """A broker of this name that answers and whose log is of a younger epoch, and that epoch."""
    others = await _others(name, own_address, name_servers, peer)
    return next(((address, told.epoch) for address, told in others if told.epoch > epoch), None)


async def _others(
    name: str, own_address: str, name_servers: Iterable[Peer], peer: Callable[[str], Peer]
) -> list[tuple[str, EpochCache]]:
    """The other brokers of this name that answer, with the epochs of their logs."""
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
            told = (await peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
            if told.broker_name == name:
                found.append((address, told))
    return found
