"""Promotion: a slave takes over from its master, by hand.

A master that answers is told first: it takes no more messages, the slave copies the rest of its log, and nothing is
lost. One that does not answer is told by the new master when it comes back. Invariant: a slave that lacks what another
replica has is not promoted unless the caller insists.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.admin.connection import Part
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

#: A slave that lacks more than this of a master that answers is not promoted: messages would be refused for too long.
BEHIND_BYTES_MAX = 16 << 20
LOOK_SECONDS = 0.05


class Promoted(NamedTuple):
    """Who leads now."""

    broker: str
    address: str
    epoch: int
    #: End of its log when it began to lead.
    log_end: int
    #: The master that it has replaced, None where none is known, and whether that has been told.
    replaced: str | None
    is_told: bool
    #: Seconds in which nobody took messages, as far as it could be seen.
    seconds: float
    #: Its role, and how many copies its answers promise; None where it did not say.
    role: str | None = None
    copies: int | None = None
    #: What is not as it was, and what to do next.
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
        """Let the slave `broker_id` lead, in a `role` or in that of its master. `wait`: seconds for it to copy the rest
        of the log, and then to begin.

        `force` promotes one that lacks what others have, or that is far behind: what it lacks is lost. Raises
        `ConfigError` for what is no slave of this name, `RocketMQError` where it may not lead.
        """
        addresses = await self._addresses(broker)
        slave = addresses.get(broker_id)
        if broker_id == MASTER_ID or slave is None:
            slaves = sorted(set(addresses) - {MASTER_ID})
            raise ConfigError(
                f"{broker} has no slave {broker_id}",
                hint=f"its slaves are {', '.join(map(str, slaves))}"
                if slaves
                else "see rmqpy cluster replicas",
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
        # It starts again, and may do so before its answer is there.
        with contextlib.suppress(ConnectError, RequestTimeout):
            log_end = (await self._cluster.ask(slave, news)).log_end or log_end
        deadline = time.monotonic() + wait
        await self._leads(slave, epoch, deadline)
        await self._is_known(broker, slave, deadline)
        seconds = time.monotonic() - began
        promoted = Promoted(broker, slave, epoch, log_end, master, is_told, seconds)
        return await self._with_promise(promoted)

    async def _with_promise(self, promoted: Promoted) -> Promoted:
        """With what it promises now, and what is left to do. It leads whether it says or not."""
        try:
            settings = properties.parse((await self._cluster.ask(promoted.address, GetBrokerConfig())).body)
            told = await self._cluster.ask(promoted.address, GetBrokerHaStatus())
        except (RocketMQError, properties.PropertiesError):
            return promoted
        steps = [each.finding for each in of_master(promoted.broker, told)]
        return promoted._replace(
            replaced=promoted.replaced or told.replaced,
            role=settings.get("brokerRole"),
            copies=told.copies_wanted,
            next_steps=tuple(steps),
        )

    async def _addresses(self, broker: str) -> Mapping[int, str]:
        known = (await self._cluster.cluster_info()).broker_addr_table
        if broker not in known:
            raise ConfigError(f"no broker is called {broker!r}", hint="see rmqpy cluster info")
        return known[broker].broker_addrs

    async def _log(self, address: str) -> EpochCache | None:
        """What a replica says of its log; None where it does not answer."""
        try:
            return (await self._cluster.ask(address, GetBrokerEpochCache())).body
        except (ConnectError, RequestTimeout):
            return None

    async def _end(self, master: str, news: NotifyBrokerRoleChanged, deadline: float) -> int:
        """Tell the master, which does the same when it is told again, until it has answered; the end of its log."""
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
                    f"the slave at {slave} {lacks}, and the master takes no messages any more",
                    hint="run it again, or with force: what the slave lacks is lost then",
                )
            await self._cluster.caller.sleep(LOOK_SECONDS)

    async def _leads(self, address: str, epoch: int, deadline: float) -> None:
        while True:
            log = await self._log(address)
            if log is not None and log.broker_id == MASTER_ID and log.epoch >= epoch:
                return
            if time.monotonic() > deadline:
                raise RocketMQError(f"{address} was told to lead and does not yet", hint="see its log")
            await self._cluster.caller.sleep(LOOK_SECONDS)

    async def _is_known(self, broker: str, address: str, deadline: float) -> None:
        """Wait until name servers tell clients of it; it leads whether they do or not."""
        while time.monotonic() < deadline:
            known = (await self._cluster.cluster_info()).broker_addr_table.get(broker)
            if known is not None and known.broker_addrs.get(MASTER_ID) == address:
                return
            await self._cluster.caller.sleep(LOOK_SECONDS)


def _refuse_loss(broker: str, broker_id: int, logs: Mapping[int, EpochCache]) -> None:
    """Raises `RocketMQError` where another replica has what this one lacks."""
    own = logs[broker_id]
    master = logs.get(MASTER_ID)
    if master is not None and master.max_offset - own.max_offset > BEHIND_BYTES_MAX:
        raise RocketMQError(
            f"slave {broker_id} of {broker} is {master.max_offset - own.max_offset} bytes behind its master",
            hint="wait until it has caught up: rmqpy cluster replicas",
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
