"""Entries of a table by name, in two states: as in the file, and as the next write will store them.

Values only, on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Entries(Generic[T]):
    """Entries with pending changes. One write at a time takes a `snapshot`, then calls `commit` or `take_back`."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        #: The entries in the file.
        self.saved = dict(entries)
        #: The entries with all changes.
        self.wanted = dict(entries)
        #: Changed names that are not in the file, in order of their changes: in the write in progress, and later ones.
        self._in_write: dict[str, T | None] = {}
        self._since: dict[str, T | None] = {}

    def load(self, entries: Mapping[str, T]) -> None:
        """Add the entries of the file."""
        self.saved |= entries
        self.wanted |= entries

    def put(self, name: str, entry: T) -> None:
        """Create or replace an entry."""
        self.wanted[name] = self._since[name] = entry

    def remove(self, name: str) -> None:
        """Remove an entry."""
        self.wanted.pop(name, None)
        self._since[name] = None

    def is_unsaved(self, name: str) -> bool:
        """Return whether a change of this entry is not in the file yet."""
        return name in self._since or name in self._in_write

    def snapshot(self) -> dict[str, T]:
        """Return all entries, for a write that begins."""
        self._in_write, self._since = self._since, {}
        return dict(self.wanted)

    def commit(self) -> list[str]:
        """Note that the write succeeded; return the names of its changes."""
        changed, self._in_write = self._in_write, {}
        for name, entry in changed.items():
            if entry is None:
                self.saved.pop(name, None)
            else:
                self.saved[name] = entry
        return list(changed)

    def take_back(self) -> None:
        """Note that the write failed: drop all changes that are not in the file, including later ones."""
        self._in_write, self._since = {}, {}
        self.wanted = dict(self.saved)
