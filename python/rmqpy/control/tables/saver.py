"""Writes a table to its file without stopping the event loop, and no more often than needed.

Owns the order of writes of one file: one at a time, each with everything that had changed when it began. Those
who ask while a write is under way share the next one: a hundred topics created at once cost two or three writes.

Threads: the event loop's; encoding and writing happen in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rmqpy.config import files
from rmqpy.errors import StoreError
from rmqpy.protocol import fastjson


class Saver:
    """One file. `snapshot` is called on the event loop; what it returns makes the JSON tree in the worker."""

    def __init__(self, path: Path, snapshot: Callable[[], Callable[[], object]]) -> None:
        self._path = path
        self._snapshot = snapshot
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def save(self) -> None:
        """Return when the table as it is now is on the disk. Cancelling the wait leaves the write be.

        Raises `StoreError` when the file cannot be written; the old one is then still there.
        """
        # The write under way may have taken its snapshot before the caller's change; the next one has not.
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write_after(self._running))
        await asyncio.shield(self._next)

    def save_now(self) -> None:
        """The same, blocking: before the event loop runs."""
        self._write(self._snapshot())

    async def _write_after(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        self._running, self._next = self._next, None
        await asyncio.to_thread(self._write, self._snapshot())

    def _write(self, tree: Callable[[], object]) -> None:
        try:
            files.save(self._path, fastjson.pretty(tree()))
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error}", code=1, path=str(self._path)) from error
