"""Leadership: whether this broker leads, whatever its configuration says, since another one was promoted, or itself.

Owns `rmqpy/leadership.json` in the store: the epoch since which a configured slave leads, the epoch that ended the time
of a master, the master that was replaced and has not heard of it, and what the answers of the master promise.
Invariants: nothing is answered before it is on the disk; a master whose time has ended never leads again under the same
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
    """What the answers of a master promise: `brokerRole`, `inSyncReplicas` and `minInSyncReplicas`."""

    role: str = ASYNC_MASTER
    copies_wanted: int = 0
    copies_min: int = 1

    def in_force(self, given: ReplicationConfig, role: str) -> ReplicationConfig:
        """The settings of a slave that leads in this role. Raises `ConfigError`."""
        leading = dataclasses.replace(given, role=role, broker_id=MASTER_ID)
        if role != self.role or role != SYNC_MASTER:
            return leading
        return dataclasses.replace(leading, copies_wanted=self.copies_wanted, copies_min=self.copies_min)


@record
class _Record:
    """The content of the file."""

    #: A configured slave leads since this epoch, in this role.
    led_since: int | None = None
    role: str = ASYNC_MASTER
    #: This master was replaced by the one at this address.
    ended_by: int | None = None
    successor: str | None = None
    #: Address of the master that this one has replaced, until that knows.
    untold: str | None = None
    #: This broker follows a master, or did when it ran last.
    follows: bool = False
    #: Of a slave: where its master is, and what that promises. Of one that leads: what its former master promised.
    master: str | None = None
    promise: MasterPromise | None = None
    #: The master that this one has replaced.
    replaced: str | None = None


class Leadership:
    """What was decided about this broker."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` as it was given."""
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
        """The configuration this broker starts with. Raises `ConfigError` for a master whose time has ended."""
        given, decided = self._given, self._record
        if given.replication.is_slave:
            if decided.led_since is None:
                return given
            log.info(
                "this slave was promoted: it leads %s since epoch %s as %s; brokerRole and brokerId of its "
                "configuration may say so",
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
        """The configuration of this slave once it leads in a role. Raises `ConfigError`."""
        promise = self._record.promise or MasterPromise()
        return dataclasses.replace(self._given, replication=promise.in_force(self._given.replication, role))

    @property
    def role(self) -> str:
        """The role of the master that this slave follows, which it takes when it is promoted."""
        return self._record.promise.role if self._record.promise else ASYNC_MASTER

    @property
    def master(self) -> str | None:
        """Where the master of this slave was when it answered last."""
        return self._record.master

    def copies_before(self, now: ReplicationConfig) -> int | None:
        """Copies that the former master promised, where answers promise fewer now. A master whose file says how many
        means that."""
        own, before = self._given.replication, self._record.promise
        if before is None or (not own.is_slave and own.copies_wanted):
            return None
        copies = before.in_force(own, before.role).copies
        return copies if copies > now.copies else None

    @property
    def replaced(self) -> str | None:
        """The master in whose place this configured slave leads."""
        return self._record.replaced if self._given.replication.is_slave else None

    @property
    def epoch(self) -> int | None:
        """The epoch that this broker was promoted to lead; None where it was not."""
        return self._record.led_since

    @property
    def last_epoch(self) -> int:
        """The youngest epoch of its log at the start, or the one that it was promoted to lead; 0 without a log."""
        return max(self._log_epoch, self.epoch or 0)

    @property
    def ended_by(self) -> int | None:
        """The epoch that ended the time of this master."""
        return self._record.ended_by

    @property
    def successor(self) -> str | None:
        """Where the broker is that leads in the place of this one."""
        return self._record.successor

    @property
    def returns_as_slave(self) -> bool:
        """Whether a start would make a slave of it, once its time as a master has ended."""
        return self._given.replication.is_slave

    @property
    def untold(self) -> str | None:
        """Where the master is that was replaced and does not know it yet."""
        return self._record.untold

    async def begin(self, epoch: int, role: str, replaced: str | None) -> None:
        """This slave leads from the next start on. Raises `StoreError`."""
        before = self._record
        replaced = replaced or before.master
        await self._save(
            _Record(led_since=epoch, role=role, untold=replaced, replaced=replaced, promise=before.promise)
        )

    async def end(self, epoch: int, successor: str | None) -> None:
        """This master leads no more. Raises `StoreError`."""
        await self._save(_Record(ended_by=epoch, successor=successor))

    async def told(self) -> None:
        """The master that was replaced knows. Raises `StoreError`."""
        await self._save(dataclasses.replace(self._record, untold=None))

    @property
    def has_followed(self) -> bool:
        """Whether it was a slave when it ran last: where it leads by its configuration now, it begins an epoch."""
        return self._record.follows

    async def follow(self) -> None:
        """This broker follows a master: what ended is over. Raises `StoreError`."""
        known = _Record(follows=True, master=self._record.master, promise=self._record.promise)
        if self._record != known:
            await self._save(known)

    async def note_master(self, address: str, promise: MasterPromise) -> None:
        """What the master says that this slave follows. Raises `StoreError`."""
        known = dataclasses.replace(self._record, master=address, promise=promise)
        if self._record != known:
            await self._save(known)

    async def lead(self) -> None:
        """This broker leads by its configuration, and its epoch has begun. Raises `StoreError`."""
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
    """The youngest epoch in the native half's file, read before the store is open: a broker that may not lead touches
    nothing. What is wrong with the file is said when the store is opened."""
    try:
        return max((int(line.split()[0]) for line in path.read_text("ascii").splitlines()), default=0)
    except (OSError, ValueError, IndexError):
        return 0
