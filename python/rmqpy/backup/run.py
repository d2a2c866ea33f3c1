"""Run of a backup: a temporary follower of the master writes the store, then the manifest completes it.

The follower is an observer: the master sends it the log, and nothing waits for it. The log is copied at least up to the
end that the master's had when the run began; tables and progress afterwards, each only when the copied log has the
messages that it refers to. Invariant: a run that ends early leaves an incomplete backup that the next run continues.
Threads: the event loop's; files are read and written in workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rmqpy import __version__
from rmqpy._native import Replication
from rmqpy.backup import manifest as manifests
from rmqpy.backup.contents import hashed
from rmqpy.backup.manifest import ACCESS, MANIFEST, Manifest, store_of
from rmqpy.backup.source import ANSWER_SECONDS, Source, connected
from rmqpy.backup.tables import Tables, copy_config
from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.client import ClientConfig
from rmqpy.control.replicas.alignment import LogAlignment
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.log_position import log_end_of
from rmqpy.control.replicas.master_search import MasterSearch
from rmqpy.control.replicas.mode_copy import ModeCopy
from rmqpy.control.replicas.offset_copy import SOON_ROUNDS_MAX, OffsetCopy
from rmqpy.control.replicas.progress_copy import ProgressCopy
from rmqpy.control.replicas.schedule_copy import ScheduleCopy
from rmqpy.control.replicas.table_copy import GroupCopy, TopicCopy
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, RocketMQError, StoreError
from rmqpy.protocol.requests.registration import Registered
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo
from rmqpy.remoting.client import LoopCaller, Peer

#: How often the follower is checked.
LOOK_SECONDS: Final = 0.05
#: The longest time without a byte of the log, and for the tables once the log is there.
SILENT_SECONDS: Final = 30.0
TABLES_SECONDS: Final = 60.0

#: Takes the phase, the bytes done and the total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class BackedUp:
    """The result of a run. Sizes are bytes."""

    manifest: Manifest
    #: Bytes of the log that this run copied, and the seconds that the log took.
    copied: int
    log_seconds: float
    seconds: float
    is_new: bool


async def back_up(
    config: ClientConfig,
    broker: str | None,
    backup: Path,
    show: Progress = lambda phase, done, total: None,
    note: Callable[[str], None] = lambda line: None,
) -> BackedUp:
    """Back up a broker into a folder, which is new, empty, or an earlier backup of it.

    `note` gets the progress of a long recovery. Raises `ConfigError` for a folder that belongs to something else,
    `RocketMQError` if the logs diverge, `ConnectError` or `RequestTimeout` if the master is lost, and `StoreError`.
    """
    began = time.monotonic()
    async with connected(config, broker) as (source, caller):
        before = await asyncio.to_thread(_earlier, backup, source)
        with manifests.locked(backup):
            run = _Run(source, caller, config, backup, before, show, note)
            return await run.run(began)


def _earlier(backup: Path, source: Source) -> Manifest | None:
    """Return the manifest of an earlier run; `None` for an unused folder."""
    if manifests.is_unused(backup):
        return None
    if not (backup / MANIFEST).exists():
        raise ConfigError(
            f"{backup} is not empty and not a backup: it has no {MANIFEST}", hint="name another folder"
        )
    found = manifests.load(backup)
    if (found.broker, found.cluster) != (source.name, source.cluster):
        raise ConfigError(
            f"{backup} is a backup of broker {found.broker} in cluster {found.cluster}, not of {source.name} in "
            f"{source.cluster}",
            hint="name another folder",
        )
    return found


class _Run:
    """One run."""

    def __init__(
        self,
        source: Source,
        caller: LoopCaller,
        config: ClientConfig,
        backup: Path,
        before: Manifest | None,
        show: Progress,
        note: Callable[[str], None],
    ) -> None:
        self._source = source
        self._caller = caller
        self._client_config = config
        self._backup = backup
        self._before = before
        self._show = show
        self._note = note
        self._cut: int | None = None
        #: Whether this run has changed the copied data.
        self._has_changed = False

    async def run(self, began: float) -> BackedUp:
        source, backup, before = self._source, self._backup, self._before
        settings = dict(source.settings)
        found = before or Manifest(
            broker=source.name,
            cluster=source.cluster,
            address="",
            version="",
            state=manifests.INCOMPLETE,
            started_at="",
        )
        config = copy_config(store_of(backup), source.name, source.cluster, settings)
        master_end = await log_end_of(source.peer)
        found = found.begun(
            address=source.peer.address,
            version=__version__,
            started_at=_now(),
            master_end=master_end,
            settings=settings,
        )
        await asyncio.to_thread(manifests.save, backup, found)
        try:
            (log_begin, log_end), copied, log_seconds = await self._follow(config, master_end)
        except RocketMQError:
            if before is not None and before.is_complete and not self._has_changed:
                await self._complete(before, before)
            raise
        access_fault, users, rules = await self._save_access()
        found = replace(
            found,
            log_begin=log_begin,
            log_end=log_end,
            users=users,
            rules=rules,
            access_fault=access_fault,
        )
        found = await self._complete(replace(found, ended_at=_now()), before or found)
        await self._report_end(log_end)
        return BackedUp(found, copied, log_seconds, time.monotonic() - began, before is None)

    @property
    def _name(self) -> str:
        """The folder, for the broker: with its machine."""
        return f"{socket.gethostname()}:{self._backup.absolute()}"

    async def _report_end(self, log_end: int) -> None:
        """Report the complete backup to the broker, which shows it in the console."""
        ask = ExchangeBrokerHaInfo(is_observer=True, observer_name=self._name, observer_end=log_end)
        try:
            await self._source.peer.call(ask, timeout=ANSWER_SECONDS)
        except RocketMQError as error:
            self._note(
                f"the backup is complete, but its end was not reported to {self._source.name}: {error}"
            )

    async def _complete(self, found: Manifest, known: Manifest) -> Manifest:
        """Flush the files and save their complete manifest. `known` has checksums of log files that were full."""
        show = partial(self._show, "checksums")
        entries = await asyncio.to_thread(hashed, self._backup, known, show)
        found = replace(found, state=manifests.COMPLETE, files=entries)
        await asyncio.to_thread(manifests.save, self._backup, found)
        return found

    async def _follow(self, config: BrokerConfig, master_end: int) -> tuple[tuple[int, int], int, float]:
        """Copy the log and the tables. Returns the copied range of the log, the bytes that were missing, and the
        seconds for the log."""
        tables, source = Tables(config), self._source
        async with contextlib.AsyncExitStack() as undo:
            await tables.open(self._note, undo)
            begin, end = tables.log_range()
            if begin < end < (source.epochs.min_offset or 0):
                raise RocketMQError(
                    f"the backup ends at {end}, and the log of {source.name} now begins at "
                    f"{source.epochs.min_offset}: the messages in between have expired",
                    hint="back up into a new folder",
                )
            tls = self._client_config.tls
            native = Replication(
                tables.store,
                config.replication,
                slaves_max=1,
                client_tls=tls.native() if tls else None,
            )
            undo.push_async_callback(asyncio.to_thread, native.stop)
            known = KnownMaster()
            known.learn(Registered(master_addr=source.peer.address, ha_server_addr=source.log_address))
            search = MasterSearch(source.name, "", known, self._caller.peer)
            native.follow()
            alignment = LogAlignment(native, search, self._on_cut, is_observer=True, observer_name=self._name)
            alignment.start()
            undo.push_async_callback(alignment.stop)
            native.set_master_address(source.log_address)
            began = time.monotonic()
            await self._catch_up(native, tables, end, master_end)
            seconds = time.monotonic() - began
            await self._copy_tables(native, tables)
            await alignment.stop()
            await asyncio.to_thread(native.stop)
            first, last = tables.log_range()
        return (first, last), last - (end if begin < end else first), seconds

    async def _catch_up(self, native: Replication, tables: Tables, begin: int, master_end: int) -> None:
        """Wait until the log was compared with the master's and has what that had when the run began."""
        end, since, is_followed = begin, time.monotonic(), False
        while True:
            self._check(native, tables)
            state, now = native.master(), native.range()[1]
            assert state is not None, "follow() makes it a slave"
            if state.is_connected and not is_followed:
                is_followed = self._has_changed = True
                # An interrupted run has them, too.
                await self._copy_settings(self._source.peer, tables)
            self._show("log", max(0, now - begin), max(0, master_end - begin))
            if now >= master_end and is_followed:
                return
            if now > end:
                end, since = now, time.monotonic()
            elif time.monotonic() - since > SILENT_SECONDS:
                if state.fault is not None:
                    raise ConnectError(state.fault, broker=self._source.name, hint="run it again to continue")
                raise RequestTimeout(
                    f"the master sent nothing of its log for {SILENT_SECONDS:.0f} s, with {master_end - now} bytes "
                    "missing",
                    broker=self._source.name,
                    hint="run it again to continue",
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _copy_tables(self, native: Replication, tables: Tables) -> None:
        """Copy tables and progress until each fits the log."""
        master = self._source.peer
        offsets = OffsetCopy(tables.offsets, tables.durable_end)
        lag = Lag(time.monotonic, lambda: tables.log_range()[1])
        progress = ProgressCopy(tables.delay_file, tables.timer_file, tables.durable_end, lag)
        schedules = ScheduleCopy(tables.schedules, tables.schedule_progress, tables.durable_end)
        until = time.monotonic() + TABLES_SECONDS
        while True:
            self._check(native, tables)
            # Again, because offsets of a topic that was created meanwhile wait for it.
            await self._copy_settings(master, tables)
            await offsets.copy(master)
            await progress.copy(master)
            # The master may keep offsets of topics that it has lost.
            is_settled = offsets.is_whole or offsets.taken >= SOON_ROUNDS_MAX
            if offsets.taken and is_settled and progress.taken:
                break
            if time.monotonic() > until:
                raise RequestTimeout(
                    "the copied log did not reach the master's for its offsets", broker=self._source.name
                )
            await asyncio.sleep(LOOK_SECONDS)
        await schedules.copy(master)
        await tables.save()

    async def _copy_settings(self, master: Peer, tables: Tables) -> None:
        # New copies do not wait for a change.
        for copy in (
            TopicCopy(tables.topics, tables.static_topics, tables.delete),
            GroupCopy(tables.groups),
            ModeCopy(tables.request_modes),
        ):
            await copy.copy(master)

    def _on_cut(self, at: int) -> None:
        self._cut = at

    def _check(self, native: Replication, tables: Tables) -> None:
        """Raise the reason why this backup cannot follow the master."""
        if (failure := tables.store.failure) is not None:
            raise StoreError(failure)
        reason = None
        if self._cut is not None:
            reason = f"the backup has messages from {self._cut} on that the present master never had"
        elif (state := native.master()) is not None and state.is_diverged:
            reason = state.fault
        if reason is not None:
            raise RocketMQError(
                f"the log of {self._backup} diverges from that of {self._source.name}: {reason}",
                broker=self._source.name,
                hint="keep this backup, and back up into a new folder",
            )

    async def _save_access(self) -> tuple[str | None, int, int]:
        """Write users and rules; return the reason if they could not be read, and their numbers."""
        try:
            found = await self._source.access()
        except RocketMQError as error:
            return str(error.args[0] if error.args else error), 0, 0
        text = json.dumps(found, indent=1, ensure_ascii=False)
        await asyncio.to_thread(files.save_bytes, self._backup / ACCESS, f"{text}\n".encode())
        return None, len(found["users"]), len(found["rules"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
