"""Entries of a table by name, in two states: as its file has them, and as the next write will make it.

Values only, on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Entries(Generic[T]):
    """One write at a time takes a `snapshot`; then follows `commit` when it is on the disk, or `take_back`."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        #: As in the file.
        self.saved = dict(entries)
        #: The same with all changes.
        self.wanted = dict(entries)
        #: Names whose entry in the file is another: in the write under way, and since; in the order of changes.
        self._in_write: dict[str, T | None] = {}
        self._since: dict[str, T | None] = {}

    def load(self, entries: Mapping[str, T]) -> None:
        """Add what was found in the file."""
        self.saved |= entries
        self.wanted |= entries

    def put(self, name: str, entry: T) -> None:
        """Create or replace an entry."""
        self.wanted[name] = self._since[name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry."""
        self.wanted.pop(name, None)
        self._since[name] = None

    def is_unsaved(self, name: str) -> bool:
        """Whether a change of this entry is not in the file yet."""
        return name in self._since or name in self._in_write

    def snapshot(self) -> dict[str, T]:
        """All entries, for the write that begins."""
        self._in_write, self._since = self._since, {}
        return dict(self.wanted)

    def commit(self) -> list[str]:
        """The write has succeeded: the names of its changes."""
        changed, self._in_write = self._in_write, {}
        for name, entry in changed.items():
            if entry is None:
                self.saved.pop(name, None)
            else:
                self.saved[name] = entry
        return list(changed)

    def take_back(self) -> None:
        """The write has failed: every change that is not in the file goes, also those that came since."""
        self._in_write, self._since = {}, {}
        self.wanted = dict(self.saved)
