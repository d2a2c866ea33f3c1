"""Named table: entries by name, in a file and at the data plane.

Owns the order of a change. Invariant: an entry is in the file before anybody sees it, the data plane and the name
servers included, so that nothing which was acknowledged depends on an entry that a crash forgets; where the file cannot
be written, the change never was. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from rmqpy.control.tables.entries import Entries
from rmqpy.control.tables.file import TableFile, Versioned
from rmqpy.control.tables.readers import TableReaders
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

T = TypeVar("T")
C = TypeVar("C", bound=Versioned)


class NamedTable(ABC, Generic[T, C]):
    """The entries and their file, which tells `_ended`."""

    #: The member of the file that holds the entries.
    member: ClassVar[str]

    def __init__(self, file: TableFile[C], entries: Iterable[T]) -> None:
        self._file = file
        #: Whether it is a copy of another broker's table, which administrators change there.
        self.is_copy = False
        self.readers = TableReaders()
        self._entries = Entries({self._name(entry): entry for entry in entries})

    @property
    def table(self) -> Mapping[str, T]:
        """Every entry by name, as it is in the file."""
        return MappingProxyType(self._entries.saved)

    @property
    def next_table(self) -> Mapping[str, T]:
        """The same with the changes on their way to the file: what another change starts from."""
        return MappingProxyType(self._entries.wanted)

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._file.version

    async def put(self, *entries: T) -> list[T]:
        """Create entries or replace them; those that are new or different. On return they are durable and usable.

        Raises `StoreError` when the file cannot be written, and `Refused` where the table is a copy; the table is then
        as before.
        """
        wanted = self._entries.wanted
        if any(wanted.get(self._name(entry)) != entry for entry in entries):
            self._expect_own()
        return await self._put(*entries)

    async def _put(self, *entries: T) -> list[T]:
        """The same, also in a copy, which has its master's entries again once that answers. Raises `StoreError`."""
        named = {self._name(entry): entry for entry in entries}
        changed = {name: entry for name, entry in named.items() if self._entries.wanted.get(name) != entry}
        for name, entry in changed.items():
            self._entries.put(name, entry)
        # Another caller's equal change may be on its way to the disk.
        if any(self._entries.is_unsaved(name) for name in named):
            await self._file.save()
            await self.readers.reached(self.version)
        return list(changed.values())

    async def remove(self, *names: str) -> list[T]:
        """Forget entries; those there were. Raises as `put` does."""
        removed = [entry for name in names if (entry := self._entries.wanted.get(name)) is not None]
        if removed:
            self._expect_own()
        for entry in removed:
            self._file.forget(self.member, self._name(entry))
            self._entries.remove(self._name(entry))
        if removed:
            await self._file.save()
            await self.readers.reached(self.version)
        return removed

    async def copy(self, entries: Mapping[str, T], version: DataVersion) -> list[T]:
        """Become a copy of another broker's table: those that went. Raises as `put` does."""
        wanted = self._entries.wanted
        removed = [entry for name, entry in wanted.items() if name not in entries]
        for name in [self._name(entry) for entry in removed]:
            self._file.forget(self.member, name)
            self._entries.remove(name)
        for name, entry in entries.items():
            if wanted.get(name) != entry:
                self._entries.put(name, entry)
        self._file.copied(version)
        await self._file.save()
        return removed

    async def changed(self, version: DataVersion, seconds: float) -> None:
        """Until the version is another than this one, or time is up, or `end_waits`."""
        await self._file.changed(version, seconds)

    def end_waits(self) -> None:
        """Wait for no change any more: the broker stops."""
        self._file.end_waits()

    def _ended(self, is_saved: bool) -> None:
        """A write has ended: what it held is seen from now on, or what is not in the file never was."""
        if not is_saved:
            self._entries.take_back()
            return
        changed = self._entries.commit()
        for name in changed:
            entry = self._entries.saved.get(name)
            if entry is None:
                self._retract(name)
            else:
                self._publish(entry)
        self._saved([entry for name in changed if (entry := self._entries.saved.get(name)) is not None])

    def _expect_own(self) -> None:
        """Raise `Refused` for a change of a copy."""
        if self.is_copy:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave; ask its master for changes")

    def _saved(self, entries: list[T]) -> None:
        """These are new or different, and the data plane uses them."""

    @staticmethod
    @abstractmethod
    def _name(entry: T) -> str: ...

    @abstractmethod
    def _publish(self, entry: T) -> None:
        """Let the data plane use an entry."""

    @abstractmethod
    def _retract(self, name: str) -> None:
        """Let the data plane forget an entry."""
