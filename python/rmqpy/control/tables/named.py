"""Named table: entries by name, in a file and at the data plane.

Owns the order of a change. Invariant: an entry is in the file before the data plane may use it, so that nothing which
was acknowledged depends on an entry that a crash forgets. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from rmqpy.control.tables.file import TableFile, Versioned
from rmqpy.errors import StoreError
from rmqpy.protocol.topics import DataVersion

T = TypeVar("T")
C = TypeVar("C", bound=Versioned)


class NamedTable(ABC, Generic[T, C]):
    """The entries and their file."""

    #: The member of the file that holds the entries.
    member: ClassVar[str]

    def __init__(self, file: TableFile[C], entries: Mapping[str, T]) -> None:
        self._file = file
        self._table = dict(entries)
        #: Entries in the table that are not in the file yet, and by how many callers.
        self._unsaved: Counter[str] = Counter()

    @property
    def table(self) -> Mapping[str, T]:
        """Every entry by name."""
        return MappingProxyType(self._table)

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._file.version

    async def put(self, *entries: T) -> list[T]:
        """Create entries or replace them; those that are new or different. On return they are durable and usable.

        Raises `StoreError` when the file cannot be written; the table is then as before.
        """
        named = {self._name(entry): entry for entry in entries}
        changed = {name: entry for name, entry in named.items() if self._table.get(name) != entry}
        if not changed:
            # Another caller's equal change may be on its way to the disk; that caller goes on, and publishes, first.
            if any(name in self._unsaved for name in named):
                await self._file.settle()
            return []
        before = {name: self._table.get(name) for name in changed}
        self._table |= changed
        self._unsaved.update(changed.keys())
        try:
            await self._file.save()
        except StoreError:
            for name, entry in changed.items():
                self._restore(name, entry, before[name])
            raise
        finally:
            self._unsaved -= Counter(changed.keys())
        for name, entry in changed.items():
            # A removal may have overtaken it while the file was written; a later change publishes itself, later.
            if name in self._table:
                self._publish(entry)
        return list(changed.values())

    async def remove(self, *names: str) -> list[T]:
        """Forget entries; those there were."""
        removed = {name: self._table.pop(name) for name in names if name in self._table}
        for name in removed:
            self._file.forget(self.member, name)
            self._retract(name)
        if removed:
            await self._file.save()
        return list(removed.values())

    def _restore(self, name: str, entry: T, before: T | None) -> None:
        if self._table.get(name) is not entry:
            return
        if before is None:
            del self._table[name]
        else:
            self._table[name] = before

    @staticmethod
    @abstractmethod
    def _name(entry: T) -> str: ...

    @abstractmethod
    def _publish(self, entry: T) -> None:
        """Let the data plane use an entry."""

    @abstractmethod
    def _retract(self, name: str) -> None:
        """Let the data plane forget an entry."""
