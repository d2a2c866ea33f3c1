"""Backups: the folders of `rmqpy backup` and their last runs, as these report them, in `backups.json`.

Owns the file, which Apache's broker does not have. A file that cannot be written is logged, and refuses no backup.
Threads: the event loop's; a worker writes the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.errors import StoreError
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: The most folders, those with the latest runs, and the most characters of a name.
FOLDERS_MAX: Final = 16
NAME_CHARS_MAX: Final = 400


@record
class KnownBackup:
    """A folder. Times are milliseconds since the epoch on this broker's clock."""

    #: Machine and path, as the run reports them.
    name: str
    #: The address of the last run.
    addr: str
    #: The begin of the last run; the end of the last complete one, or 0, and the end of the log in it.
    began_millis: int
    ended_millis: int = 0
    log_end: int = 0


@record
class BackupContent:
    """The content of the file."""

    data_version: DataVersion = DataVersion()
    backups: list[KnownBackup]


class Backups:
    """The known backups of this broker."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._file = TableFile(path, BackupContent, self._snapshot, clock)
        #: By name, the latest run last.
        self._known: dict[str, KnownBackup] = {}

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        if (found := self._file.load()) is not None:
            self._known = {each.name: each for each in found.backups[-FOLDERS_MAX:]}

    def known(self) -> list[KnownBackup]:
        """Return all folders, that with the latest run first."""
        return list(self._known.values())[::-1]

    async def began(self, name: str, address: str) -> None:
        """Note the begin of a run."""
        name, now_ms = name[:NAME_CHARS_MAX], self._clock.wall_ms()
        before = self._known.pop(name, None)
        self._known[name] = (
            KnownBackup(name=name, addr=address, began_millis=now_ms)
            if before is None
            else replace(before, addr=address, began_millis=now_ms)
        )
        while len(self._known) > FOLDERS_MAX:
            del self._known[next(iter(self._known))]
        await self._save()

    async def ended(self, name: str, log_end: int) -> None:
        """Note the end of a run, whose backup has the log up to `log_end`. Its begin must be known."""
        name = name[:NAME_CHARS_MAX]
        if (before := self._known.get(name)) is not None:
            self._known[name] = replace(before, ended_millis=self._clock.wall_ms(), log_end=log_end)
            await self._save()

    async def _save(self) -> None:
        try:
            await self._file.save()
        except StoreError as error:
            log.warning("%s; backups are known until the next restart", error)

    def _snapshot(self) -> Callable[[DataVersion], BackupContent]:
        backups = list(self._known.values())
        return lambda version: BackupContent(data_version=version, backups=backups)
