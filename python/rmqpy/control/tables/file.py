"""Table file: a table as JSON on the disk, written without stopping the event loop, and no more often than needed.

Owns the order of writes of one file: one at a time, each with everything that had changed when it began. Callers that
come while a write is under way share the next one: a hundred topics created at once cost two or three writes. Owns the
version of the table, which moves with each change, and its unknown fields, which go back as they were.

Threads: the event loop's; encoding and writing happen in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.errors import StoreError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.topics import DataVersion


class Versioned(Protocol):
    """The declared content of a file."""

    @property
    def data_version(self) -> DataVersion: ...


C = TypeVar("C", bound=Versioned)


class TableFile(Generic[C]):
    """One file. `snapshot` is called on the event loop; what it returns makes the content in the worker."""

    def __init__(
        self, path: Path, kind: type[C], snapshot: Callable[[], Callable[[DataVersion], C]], clock: Clock
    ) -> None:
        self._path = path
        self._kind = kind
        self._snapshot = snapshot
        self._clock = clock
        self._version = DataVersion(timestamp=clock.wall_ms())
        self._unknown = UnknownFields()
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._version

    def touch(self) -> None:
        """Move the version."""
        self._version = self._version.next(self._clock.wall_ms())

    def load(self, check: Callable[[C], None] = lambda content: None) -> C | None:
        """The content of the file; None where there is none. Blocks.

        Raises `ConfigError` naming the file when it cannot be read, or `check` raises `DecodeError`.
        """

        def parse(text: str) -> tuple[C, UnknownFields]:
            content, unknown = unknown_fields.read(self._kind, text)
            check(content)
            return content, unknown

        loaded = files.load(self._path, parse)
        if loaded is None:
            return None
        content, self._unknown = loaded
        self._version = content.data_version
        return content

    def forget(self, member: str, *path: str) -> None:
        """Drop the unknown fields of a member that is removed."""
        self._unknown = self._unknown.without(member, *path)

    async def save(self) -> None:
        """Move the version, and return when the table as it is now is on the disk. Cancelling leaves the write be.

        Raises `StoreError` when the file cannot be written; the old one is then still there.
        """
        self.touch()
        await self.settle()

    async def settle(self) -> None:
        """The same where the table has not changed, but another caller's change may still be on its way."""
        # The write under way may have taken its snapshot before the caller's change; the next one has not.
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write_after(self._running))
        await asyncio.shield(self._next)

    def save_now(self) -> None:
        """`save`, blocking: before the event loop runs."""
        self.touch()
        self._write(self._tree())

    async def _write_after(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        self._running, self._next = self._next, None
        await asyncio.to_thread(self._write, self._tree())

    def _tree(self) -> Callable[[], object]:
        version, unknown, content = self._version, self._unknown, self._snapshot()
        return lambda: unknown.put_back(json_tree(content(version)))

    def _write(self, tree: Callable[[], object]) -> None:
        try:
            files.save(self._path, fastjson.pretty(tree()))
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(self._path)
            ) from error
