"""Leadership: a promotion overrides the configured role of this broker, until another promotion.

Owns `rmqpy/leadership.json` in the store: the epoch since which a configured slave leads, the epoch that ended a
master's leadership, a replaced master that was not notified yet, and the promises of the master's acknowledgements.
Invariants: a decision is durable before it is acknowledged; a replaced master never leads again under the same
configuration. Threads: the event loop's; the file is read and written in a worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import Final

from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import ASYNC_MASTER, SYNC_MASTER, ReplicationConfig
from rmqpy.errors import ConfigError, StoreError
from rmqpy.findings import replaced
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree, read_json, record
from rmqpy.protocol.requests.routes import MASTER_ID

log = logging.getLogger(__name__)

NAME: Final = "leadership.json"


@record
class MasterPromise:
    """The promise of a master's replies: `brokerRole`, `inSyncReplicas` and `minInSyncReplicas`."""

    role: str = ASYNC_MASTER
    copies_wanted: int = 0
    copies_min: int = 1

    def in_force(self, given: ReplicationConfig, role: str) -> ReplicationConfig:
        """Return the settings of a slave that leads in this role. Raises `ConfigError`."""
        leading = dataclasses.replace(given, role=role, broker_id=MASTER_ID)
        if role != self.role or role != SYNC_MASTER:
            return leading
        return dataclasses.replace(
            leading, copies_wanted=self.copies_wanted, copies_min_wanted=self.copies_min
        )


@record
class _Record:
    """The content of the file."""

    #: The epoch since which a configured slave leads, and its role.
    led_since: int | None = None
    role: str = ASYNC_MASTER
    #: The epoch that ended this master, and the address of its successor.
    ended_by: int | None = None
    successor: str | None = None
    #: The address of the replaced master, until it was notified.
    untold: str | None = None
    #: True if this broker follows a master, or did at its last run.
    follows: bool = False
    #: For a slave, the master's address and promise; for a promoted one, the former master's.
    master: str | None = None
    promise: MasterPromise | None = None
    #: The address of the master that this broker replaced.
    replaced: str | None = None


class Leadership:
    """The decisions about this broker's leadership."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` is the configuration as given."""
        self._given = config
        self._path = Path(config.store.folder) / "rmqpy" / NAME
        self._record = _Record()
        self._log_epoch = 0

    async def load(self) -> None:
        """Read the file. Raises `ConfigError` naming it."""
        found = await asyncio.to_thread(files.load, self._path, _parse)
        self._record = found or _Record()
        self._log_epoch = await asyncio.to_thread(_log_epoch, self._path.with_name("epochs"))

    def config(self) -> BrokerConfig:
        """Return the configuration to start with. Raises `ConfigError` for a replaced master."""
        given, decided = self._given, self._record
        if given.replication.is_slave:
            if decided.led_since is None:
                return given
            log.info(
                "this slave was promoted: it has led %s since epoch %s as %s; update brokerRole and brokerId "
                "of its configuration",
                given.name,
                decided.led_since,
                decided.role,
            )
            return self.leading(decided.role)
        if decided.ended_by is not None:
            finding = replaced(given.name, decided.successor, decided.ended_by)
            raise ConfigError(finding.found, hint=finding.advice)
        return given

    def leading(self, role: str) -> BrokerConfig:
        """Return the configuration of this slave when it leads in a role. Raises `ConfigError`."""
        promise = self._record.promise or MasterPromise()
        return dataclasses.replace(self._given, replication=promise.in_force(self._given.replication, role))

    @property
    def role(self) -> str:
        """The role of the followed master, which this slave takes when promoted."""
        return self._record.promise.role if self._record.promise else ASYNC_MASTER

    @property
    def master(self) -> str | None:
        """The address of this slave's master at its last answer."""
        return self._record.master

    def copies_before(self, now: ReplicationConfig) -> int | None:
        """Return the copies that the former master promised, if replies promise fewer now. An explicit setting in a
        master's file is intended, so it returns `None`."""
        own, before = self._given.replication, self._record.promise
        if before is None or (not own.is_slave and own.copies_wanted):
            return None
        copies = before.in_force(own, before.role).copies
        return copies if copies > now.copies else None

    @property
    def replaced(self) -> str | None:
        """The address of the master that this configured slave replaced."""
        return self._record.replaced if self._given.replication.is_slave else None

    @property
    def epoch(self) -> int | None:
        """The epoch that this broker was promoted to lead; `None` without a promotion."""
        return self._record.led_since

    @property
    def slaves_in_sync(self) -> list[int] | None:
        """For a master, the other replicas in sync, if a controller knows them."""
        return None

    @property
    def confirmed(self) -> int:
        """The position below which this broker never cuts its log; 0 if none is known."""
        return 0

    @property
    def state_version(self) -> int:
        """The version with which this broker registers: a name server ignores a registration with a smaller one."""
        return 0

    @property
    def last_epoch(self) -> int:
        """The newest epoch of the log at the start, or of a promotion; 0 without a log."""
        return max(self._log_epoch, self.epoch or 0)

    @property
    def ended_by(self) -> int | None:
        """The epoch that ended this master's leadership."""
        return self._record.ended_by

    @property
    def successor(self) -> str | None:
        """The address of the broker that replaced this one."""
        return self._record.successor

    @property
    def returns_as_slave(self) -> bool:
        """True if the next start makes this replaced master a slave."""
        return self._given.replication.is_slave

    @property
    def untold(self) -> str | None:
        """The address of a replaced master that was not notified yet."""
        return self._record.untold

    async def begin(self, epoch: int, role: str, replaced: str | None) -> None:
        """Note that this slave leads from its next start. Raises `StoreError`."""
        before = self._record
        replaced = replaced or before.master
        await self._save(
            _Record(led_since=epoch, role=role, untold=replaced, replaced=replaced, promise=before.promise)
        )

    async def end(self, epoch: int, successor: str | None) -> None:
        """Note that this master has been replaced. Raises `StoreError`."""
        await self._save(_Record(ended_by=epoch, successor=successor))

    async def notified(self) -> None:
        """Note that the replaced master was notified. Raises `StoreError`."""
        await self._save(dataclasses.replace(self._record, untold=None))

    @property
    def has_followed(self) -> bool:
        """True if the last run was as a slave: leading by configuration then starts a new epoch."""
        return self._record.follows

    async def follow(self) -> None:
        """Note that this broker follows a master, which clears earlier decisions. Raises `StoreError`."""
        known = _Record(follows=True, master=self._record.master, promise=self._record.promise)
        if self._record != known:
            await self._save(known)

    async def note_master(self, address: str, promise: MasterPromise) -> None:
        """Note the address and promise of this slave's master. Raises `StoreError`."""
        known = dataclasses.replace(self._record, master=address, promise=promise)
        if self._record != known:
            await self._save(known)

    async def lead(self) -> None:
        """Note that this broker leads by configuration in a new epoch. Raises `StoreError`."""
        if self._record.follows:
            await self._save(_Record(promise=self._record.promise))

    async def _save(self, decided: _Record) -> None:
        text = fastjson.pretty(json_tree(decided))
        try:
            await asyncio.to_thread(files.save, self._path, text)
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(self._path)
            ) from error
        self._record = decided


def _parse(text: str) -> _Record:
    return read_json(_Record, text)


def _log_epoch(path: Path) -> int:
    """Return the newest epoch in the native module's file. Reads it before the store is open, because a broker that
    may not lead must change nothing. Opening the store reports an unreadable file."""
    try:
        return max((int(line.split()[0]) for line in path.read_text("ascii").splitlines()), default=0)
    except (OSError, ValueError, IndexError):
        return 0
