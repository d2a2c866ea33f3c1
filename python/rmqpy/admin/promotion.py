"""Manual promotion of a slave to master.

A reachable master first stops accepting messages and the slave copies the rest of its log, so nothing is lost. An
unreachable master is notified by the new one when it comes back. Invariant: a slave that lacks what another replica has
is promoted only if the caller forces it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.admin.connection import LOOK_SECONDS, Part
from rmqpy.config import properties
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, RocketMQError
from rmqpy.findings import Finding
from rmqpy.protocol.replica_findings import of_master
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.leadership import (
    EpochCache,
    GetBrokerEpochCache,
    NotifyBrokerRoleChanged,
    next_epoch,
)
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from rmqpy.protocol.requests.routes import MASTER_ID

#: The largest lag of a slave of a reachable master: catching up refuses messages meanwhile.
BEHIND_BYTES_MAX = 16 << 20


class Promoted(NamedTuple):
    """The new master."""

    broker: str
    address: str
    epoch: int
    #: The end of its log when it became master.
    log_end: int
    #: The replaced master, None if unknown, and whether it was notified.
    replaced: str | None
    is_told: bool
    #: Seconds without a broker that accepts messages, as far as observed.
    seconds: float
    #: Its role, and the copies that its replies promise; None if it did not report them.
    role: str | None = None
    copies: int | None = None
    #: Differences to before, and next steps.
    next_steps: tuple[Finding, ...] = ()


class Promotion(Part):
    """The change of a master."""

    async def promote(
        self,
        broker: str,
        broker_id: int,
        *,
        role: str | None = None,
        wait: float = 30.0,
        force: bool = False,
    ) -> Promoted:
        """Promote slave `broker_id`, in a `role` or in that of its master. `wait`: seconds for copying the rest of
        the log, and then for the start.

        `force` promotes a slave that lags far behind or lacks data that others have; that data is lost. Raises
        `ConfigError` for an unknown slave, `RocketMQError` if it may not lead.
        """
        addresses = await self._addresses(broker)
        slave = addresses.get(broker_id)
        if broker_id == MASTER_ID or slave is None:
            slaves = sorted(set(addresses) - {MASTER_ID})
            raise ConfigError(
                f"{broker} has no slave {broker_id}",
                hint=f"its slaves are {', '.join(map(str, slaves))}"
                if slaves
                else "list replicas with rmqpy cluster replicas",
            )
        logs = {known: await self._log(address) for known, address in sorted(addresses.items())}
        own, master = logs[broker_id], addresses.get(MASTER_ID)
        if own is None:
            raise RocketMQError(f"the slave {broker_id} of {broker} at {slave} does not answer")
        others = {known: log for known, log in logs.items() if log is not None}
        if not force:
            _refuse_loss(broker, broker_id, others)
        highest = max(log.epoch for log in others.values())
        epoch = next_epoch(highest, broker_id)
        news = NotifyBrokerRoleChanged(
            master_broker_id=broker_id,
            master_epoch=epoch,
            master_address=slave,
            broker_name=broker,
            broker_role=role,
        )
        began = time.monotonic()
        is_told = False
        if master is not None and logs[MASTER_ID] is not None:
            ended = await self._end(master, news, time.monotonic() + wait)
            is_told = True
            await self._caught_up(slave, ended, time.monotonic() + wait)
        log_end = own.max_offset
        # It restarts, possibly before its response arrives.
        with contextlib.suppress(ConnectError, RequestTimeout):
            log_end = (await self._cluster.ask(slave, news)).log_end or log_end
        deadline = time.monotonic() + wait
        await self._leads(slave, epoch, deadline)
        # It leads, whether name servers have it or not.
        await self._cluster.await_master(broker, slave, deadline)
        seconds = time.monotonic() - began
        promoted = Promoted(broker, slave, epoch, log_end, master, is_told, seconds)
        return await self._with_promise(promoted)

    async def _with_promise(self, promoted: Promoted) -> Promoted:
        """Add its current role and the remaining steps. It leads, whether it answers or not."""
        try:
            settings = properties.parse((await self._cluster.ask(promoted.address, GetBrokerConfig())).body)
            status = await self._cluster.ask(promoted.address, GetBrokerHaStatus())
        except (RocketMQError, properties.PropertiesError):
            return promoted
        steps = [each.finding for each in of_master(promoted.broker, status)]
        return promoted._replace(
            replaced=promoted.replaced or status.replaced,
            role=settings.get("brokerRole"),
            copies=status.copies_wanted,
            next_steps=tuple(steps),
        )

    async def _addresses(self, broker: str) -> Mapping[int, str]:
        known = (await self._cluster.cluster_info()).broker_addr_table
        if broker not in known:
            raise ConfigError(f"no broker is called {broker!r}", hint="list brokers with rmqpy cluster info")
        return known[broker].broker_addrs

    async def _log(self, address: str) -> EpochCache | None:
        """A replica's report of its log, or None if it does not answer."""
        try:
            return (await self._cluster.ask(address, GetBrokerEpochCache())).body
        except (ConnectError, RequestTimeout):
            return None

    async def _end(self, master: str, news: NotifyBrokerRoleChanged, deadline: float) -> int:
        """Notify the master until it has answered; repeated requests are harmless. Returns the end of its log."""
        while True:
            try:
                return (await self._cluster.ask(master, news)).log_end or 0
            except (ConnectError, RequestTimeout):
                if time.monotonic() > deadline:
                    raise
            await self._cluster.caller.sleep(LOOK_SECONDS)

    async def _caught_up(self, slave: str, end: int, deadline: float) -> None:
        while (log := await self._log(slave)) is None or log.max_offset < end:
            if time.monotonic() > deadline:
                lacks = "does not answer" if log is None else f"lacks {end - log.max_offset} bytes"
                raise RocketMQError(
                    f"the slave at {slave} {lacks}, and the master no longer accepts messages",
                    hint="run it again, or with force to lose what the slave lacks",
                )
            await self._cluster.caller.sleep(LOOK_SECONDS)

    async def _leads(self, address: str, epoch: int, deadline: float) -> None:
        while True:
            log = await self._log(address)
            if log is not None and log.broker_id == MASTER_ID and log.epoch >= epoch:
                return
            if time.monotonic() > deadline:
                raise RocketMQError(f"{address} was promoted but is not master yet", hint="check its log")
            await self._cluster.caller.sleep(LOOK_SECONDS)


def _refuse_loss(broker: str, broker_id: int, logs: Mapping[int, EpochCache]) -> None:
    """Raises `RocketMQError` if another replica has what this one lacks."""
    own = logs[broker_id]
    master = logs.get(MASTER_ID)
    if master is not None and master.max_offset - own.max_offset > BEHIND_BYTES_MAX:
        raise RocketMQError(
            f"slave {broker_id} of {broker} is {master.max_offset - own.max_offset} bytes behind its master",
            hint="wait until it is in sync: rmqpy cluster replicas",
        )
    longer = [
        (log.epoch, log.max_offset, known)
        for known, log in logs.items()
        if known not in (MASTER_ID, broker_id) and (log.epoch, log.max_offset) > (own.epoch, own.max_offset)
    ]
    if longer and master is None:
        _, end, best = max(longer)
        raise RocketMQError(
            f"slave {best} of {broker} has {end - own.max_offset} bytes of the log that slave {broker_id} lacks",
            hint=f"promote that one: rmqpy cluster promote {broker} --id {best}",
        )
