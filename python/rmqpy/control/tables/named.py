"""Named table: entries by name, in a file and at the data plane.

Owns the order of a change. Invariant: an entry is in the file before anything sees it, including the data plane and the
name servers, so that nothing acknowledged depends on an entry that a crash loses. If the file cannot be written, the
change does not happen. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from rmqpy.control.tables.electable import ElectableReplicas
from rmqpy.control.tables.entries import Entries
from rmqpy.control.tables.file import TableFile, Versioned
from rmqpy.control.tables.readers import TableReaders
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

T = TypeVar("T")
C = TypeVar("C", bound=Versioned)


class NamedTable(ABC, Generic[T, C]):
    """A table and its file, which calls `_ended`."""

    #: The file's member with the entries.
    member: ClassVar[str]

    def __init__(self, file: TableFile[C], entries: Iterable[T], *, is_copy: bool = False) -> None:
        """`is_copy`: a copy of another broker's table, which only that broker may change."""
        self._file = file
        self.is_copy = is_copy
        self.readers = TableReaders()
        #: Set on a master that a controller elected.
        self.electable: ElectableReplicas | None = None
        self._entries = Entries({self._name(entry): entry for entry in entries})

    @property
    def table(self) -> Mapping[str, T]:
        """The entries by name, as in the file."""
        return MappingProxyType(self._entries.saved)

    @property
    def next_table(self) -> Mapping[str, T]:
        """The entries with pending changes, on which further changes are based."""
        return MappingProxyType(self._entries.wanted)

    @property
    def version(self) -> DataVersion:
        """The version, which grows with every change."""
        return self._file.version

    async def put(self, *entries: T) -> list[T]:
        """Create or replace entries; return the changed ones. On return they are durable and in use.

        Raises `StoreError` if the file cannot be written, and `Refused` if the table is a copy; the table is
        unchanged then.
        """
        wanted = self._entries.wanted
        if any(wanted.get(self._name(entry)) != entry for entry in entries):
            self._expect_own()
        return await self._put(*entries)

    async def _put(self, *entries: T) -> list[T]:
        """Likewise, also in a copy, which the master's entries replace when it answers. Raises `StoreError`."""
        named = {self._name(entry): entry for entry in entries}
        changed = {name: entry for name, entry in named.items() if self._entries.wanted.get(name) != entry}
        for name, entry in changed.items():
            self._entries.put(name, entry)
        # Another caller's equal change may be in flight to the disk.
        if any(self._entries.is_unsaved(name) for name in named):
            await self._file.save()
            await self.reached()
        return list(changed.values())

    async def remove(self, *names: str) -> list[T]:
        """Remove entries; return those that existed. Raises like `put`."""
        removed = [entry for name in names if (entry := self._entries.wanted.get(name)) is not None]
        if removed:
            self._expect_own()
        for entry in removed:
            self._file.forget(self.member, self._name(entry))
            self._entries.remove(self._name(entry))
        if removed:
            await self._file.save()
            await self.reached()
        return removed

    async def reached(self) -> None:
        """Wait until the slaves have the changes so far, without late ones."""
        await self.readers.reached(self.version)
        if self.electable is not None:
            await self.electable.reached()

    async def confirm(self) -> None:
        """Before an acknowledgement: wait until each replica that a controller may elect has the changes so far.

        Raises `Refused` if one is late. The changes remain, and repeating them confirms them.
        """
        if self.electable is not None:
            await self.electable.confirm()

    def has(self, reader: int, replica: int | None, version: DataVersion) -> None:
        """Note that the connection of a slave waits with this version; `replica` is its id from a controller."""
        if self.electable is not None and replica is not None:
            self.electable.has(replica, reader, version)
        else:
            self.readers.has(reader, version, is_newest=version == self.version)

    def forget(self, reader: int) -> None:
        """Forget a closed connection."""
        self.readers.forget(reader)
        if self.electable is not None:
            self.electable.forget(reader)

    async def copy(self, entries: Mapping[str, T], version: DataVersion) -> list[T]:
        """Replace the table by another broker's; return the removed entries. Raises like `put`."""
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
        """Wait until the version differs from this one, for at most `seconds` or until `end_waits`."""
        await self._file.changed(version, seconds)

    def end_waits(self) -> None:
        """End all waits for changes, because the broker stops."""
        self._file.end_waits()

    def _ended(self, is_saved: bool) -> None:
        """Publish the changes of a successful write, or drop those that are not in the file."""
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
        """Handle changed entries, which the data plane uses now."""

    @staticmethod
    @abstractmethod
    def _name(entry: T) -> str: ...

    @abstractmethod
    def _publish(self, entry: T) -> None:
        """Publish an entry to the data plane."""

    @abstractmethod
    def _retract(self, name: str) -> None:
        """Remove an entry from the data plane."""
