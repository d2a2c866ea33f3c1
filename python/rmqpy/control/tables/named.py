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
from rmqpy.protocol.topics import DataVersion

T = TypeVar("T")
C = TypeVar("C", bound=Versioned)


class NamedTable(ABC, Generic[T, C]):
    """The entries and their file, which tells `_ended`."""

    #: The member of the file that holds the entries.
    member: ClassVar[str]

    def __init__(self, file: TableFile[C], entries: Iterable[T]) -> None:
        self._file = file
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

        Raises `StoreError` when the file cannot be written; the table is then as before.
        """
        named = {self._name(entry): entry for entry in entries}
        changed = {name: entry for name, entry in named.items() if self._entries.wanted.get(name) != entry}
        for name, entry in changed.items():
            self._entries.put(name, entry)
        # Another caller's equal change may be on its way to the disk.
        if any(self._entries.is_unsaved(name) for name in named):
            await self._file.save()
        return list(changed.values())

    async def remove(self, *names: str) -> list[T]:
        """Forget entries; those there were. Raises as `put` does."""
        removed = [entry for name in names if (entry := self._entries.wanted.get(name)) is not None]
        for entry in removed:
            self._file.forget(self.member, self._name(entry))
            self._entries.remove(self._name(entry))
        if removed:
            await self._file.save()
        return removed

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
