"""Table file: a table as JSON on the disk, written without blocking the event loop, and no more often than needed.

Owns the order of writes of one file: one at a time, each with every change made before it started. Callers that arrive
during a write share the next one: a hundred topics created together cost two or three writes. If a write fails, the
callers waiting for the next one fail too, because it may build on the failed one. Owns the version of the table, which
grows with each write, and its unknown fields, which are written back unchanged.

Threads: the event loop's; encoding and writing happen in a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.full_disk import lacks_space
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.errors import StoreError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)


class Versioned(Protocol):
    """The declared content of a file."""

    @property
    def data_version(self) -> DataVersion: ...


C = TypeVar("C", bound=Versioned)


class TableFile(Generic[C]):
    """One file. `snapshot` is called on the event loop; its result builds the content in the worker."""

    def __init__(
        self,
        path: Path,
        kind: type[C],
        snapshot: Callable[[], Callable[[DataVersion], C]],
        clock: Clock,
        ended: Callable[[bool], None] = lambda is_saved: None,
        *,
        is_compact: bool = False,
        is_secret: bool = False,
    ) -> None:
        """`ended` is called on the event loop after each write, with its success. `is_compact` members are on one line;
        only the owner can read a secret file."""
        self._text = partial(fastjson.dumps, strict=True) if is_compact else fastjson.pretty
        self._path = path
        self._kind = kind
        self._snapshot = snapshot
        self._ended = ended
        self._clock = clock
        self._is_secret = is_secret
        self._version = DataVersion(timestamp=clock.wall_ms())
        self._unknown = self._unknown_saved = UnknownFields()
        #: The version of a copied table, for the next write.
        self._copied: DataVersion | None = None
        self._moved = asyncio.Event()
        self._has_waits = True
        #: The result of the next write; `None` if no caller waits for one.
        self._next: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def version(self) -> DataVersion:
        """The version, which grows when a change is durable."""
        return self._version

    def touch(self) -> None:
        """Increase the version."""
        self._move(self._version.next(self._clock.wall_ms()))

    def copied(self, version: DataVersion) -> None:
        """Give the copied table's version to the next write."""
        self._copied = version

    async def changed(self, version: DataVersion, seconds: float) -> None:
        """Wait until the version differs from this one, for at most `seconds` or until `end_waits`."""
        if self._has_waits and self._version == version:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), seconds)

    def end_waits(self) -> None:
        """End all waits for changes, because the broker stops."""
        self._has_waits = False
        self._moved.set()

    def _move(self, version: DataVersion) -> None:
        self._version = version
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def load(self, check: Callable[[C], object] = lambda content: None) -> C | None:
        """Read the file; return its content, or `None` without a file. Blocks.

        Raises `ConfigError` naming the file if it cannot be read, or `check` raises `DecodeError`.
        """

        def parse(text: str) -> tuple[C, UnknownFields]:
            content, unknown = unknown_fields.read(self._kind, text)
            check(content)
            return content, unknown

        loaded = files.load(self._path, parse)
        if loaded is None:
            return None
        content, self._unknown = loaded
        self._unknown_saved = self._unknown
        self._version = content.data_version
        return content

    def forget(self, member: str, *path: str) -> None:
        """Drop the unknown fields of a removed member."""
        self._unknown = self._unknown.without(member, *path)

    async def save(self) -> None:
        """Write the current table, and return when it is durable and its version has grown. Cancelling does not stop
        the write.

        Raises `StoreError` if the file cannot be written for any reason; the old file remains then.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            # A cancelled caller does not retrieve the result.
            self._next.add_done_callback(asyncio.Future.exception)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
        await asyncio.shield(self._next)

    def save_now(self) -> None:
        """Like `save`, but blocking, for use before the event loop runs. On a full disk only the version in memory
        grows."""
        tree, version = self._content()
        try:
            self._write(tree)
        except StoreError as error:
            if not lacks_space(error):
                raise
            log.warning("%s; retrying with the next change", error)
        self._version = version

    async def _write_all(self) -> None:
        """Write until no caller waits."""
        while (current := self._next) is not None:
            self._next = None
            try:
                await self._write_next()
            except Exception as error:
                following, self._next = self._next, None
                for waiting in (current, following):
                    if waiting is not None:
                        waiting.set_exception(error)
            else:
                current.set_result(None)

    async def _write_next(self) -> None:
        before, unknown, copied = self._version, self._unknown, self._copied
        tree, version = self._content()
        try:
            await asyncio.to_thread(self._write, tree)
        except StoreError:
            self._unknown, self._copied = self._unknown_saved, None
            self._ended(False)
            raise
        self._unknown_saved = unknown
        if copied is not None and self._copied == copied:
            self._copied = None
        is_alone = self._version == before or copied is not None
        self._move(version if is_alone else self._version.next(self._clock.wall_ms()))
        self._ended(True)

    def _content(self) -> tuple[Callable[[], object], DataVersion]:
        """Return the function that builds the content in any thread, and the version."""
        version = self._copied or self._version.next(self._clock.wall_ms())
        unknown, content = self._unknown, self._snapshot()
        return lambda: unknown.put_back(json_tree(content(version))), version

    def _write(self, tree: Callable[[], object]) -> None:
        try:
            files.save(self._path, self._text(tree()), is_secret=self._is_secret)
        except Exception as error:
            raise StoreError(
                f"cannot write {self._path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(self._path)
            ) from error
