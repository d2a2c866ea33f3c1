"""Copies of full log files to the tiered storage, oldest first, and the deletion of expired ones there.

A file is copied once the log is durable beyond its end, and the slaves in sync have it. Its description is written
last, so a killed copy does not count, and the next attempt writes the file again. Until then it stays on the disk. A
slave copies nothing, but keeps its files as long. Threads: one, `tiered-copy`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from rmqpy._native import Store, record_stored_at_ms
from rmqpy.config.tiered import TieredConfig
from rmqpy.control.tiered.catalog import Catalog
from rmqpy.control.tiered.described import UNIT_BYTES, Run, Runs, TieredFile
from rmqpy.control.tiered.objects import ObjectError, Objects
from rmqpy.errors import StoreError

log = logging.getLogger(__name__)

#: The interval of looking for a full file, of looking what the storage has, and the pause after a failure.
LOOK_SECONDS: Final = 1.0
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0
#: Entries of a queue that are copied together.
_UNITS: Final = 65_536
_HOUR_MS: Final = 3_600_000
#: The niceness of the thread: on a busy machine messages go first.
_NICENESS: Final = 10


class Counts(NamedTuple):
    """What was copied and deleted since the start."""

    files: int = 0
    bytes: int = 0
    deleted: int = 0
    failures: int = 0


class _StopError(Exception):
    """The broker stops."""


class Copies:
    """Copies the log of one broker."""

    def __init__(
        self,
        config: TieredConfig,
        catalog: Catalog,
        objects: Objects,
        store: Store,
        folder: Path,
        *,
        is_master: Callable[[], bool],
        wall_ms: Callable[[], int],
        dropped: Callable[[TieredFile], None],
        each_second: Callable[[], None],
    ) -> None:
        """`folder` has the log. `dropped` learns of removed files; `each_second` is called on the thread."""
        self._config = config
        self._catalog = catalog
        self._objects = objects
        self._store = store
        self._folder = folder
        self._is_master, self._wall_ms = is_master, wall_ms
        self._safe_end: Callable[[], int] = lambda: 0
        self._dropped, self._each_second = dropped, each_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tiered-copy", daemon=True)
        self._refreshed: float | None = None
        self._is_compared = False
        self._saves_deleted = False
        self.counts = Counts()
        #: The reason why the last round failed, or `None`.
        self.fault: str | None = None

    def start(self, safe_end: Callable[[], int]) -> None:
        """Keep all files until it is known which ones the storage has, and begin. `safe_end` returns the position
        before which the log is durable and confirmed."""
        self._safe_end = safe_end
        self._store.keep_from(0)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a copy, too. Blocks."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def save_deleted(self) -> None:
        """Have the deleted topics written."""
        self._saves_deleted = True

    def behind_bytes(self) -> int:
        """Return the bytes of the log that are not copied, those of the file being written included."""
        return max(0, self._safe_end() - self._next())

    def _next(self) -> int:
        """The position of the file to copy next."""
        return max(self._catalog.end or 0, self._store.statistics()["min_physical"])

    def _run(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while not self._stopping.is_set():
            pause = LOOK_SECONDS
            try:
                self._each_second()
                self._round()
                if self.fault is not None:
                    log.info("the tiered storage at %s works again", self._objects.place)
                self.fault = None
            except _StopError:
                return
            except (StoreError, OSError) as error:
                self._failed(error)
                pause = RETRY_SECONDS
            except Exception as error:
                log.exception("a round of the tiered storage failed")
                self._failed(error)
                pause = RETRY_SECONDS
            self._stopping.wait(pause)

    def _failed(self, error: Exception) -> None:
        if self.fault is None:
            log.warning("the tiered storage fails, and files of the log wait on the disk: %s", error)
        self.fault = str(error)
        self.counts = self.counts._replace(failures=self.counts.failures + 1)
        # Another broker may have changed it.
        self._refreshed = None

    def _round(self) -> None:
        now = time.monotonic()
        is_master = self._is_master()
        if self._refreshed is None or now - self._refreshed >= REFRESH_SECONDS:
            self._catalog.load(may_write=is_master)
            self._refreshed = now
        if not is_master:
            self._is_compared = False
            self._store.keep_from(self._next())
            return
        if not self._is_compared:
            self._compare()
            self._is_compared = True
        if self._saves_deleted:
            self._saves_deleted = False
            try:
                self._catalog.save_deleted()
            except ObjectError:
                self._saves_deleted = True
                raise
        self._store.keep_from(self._next())
        while self._copy_next():
            self._store.keep_from(self._next())
        self._remove_expired()

    # ---- copying ----

    def _copy_next(self) -> bool:
        """Copy the next file if it is full; return whether another one may be."""
        begin = self._next()
        path = self._folder / f"{begin:020}"
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        end = begin + size
        if not size or self._safe_end() < end:
            return False
        with path.open("rb") as file, tempfile.TemporaryFile(dir=self._folder.parent) as units:
            # Before the log's file expires: its entries are removed soon after it.
            runs = self._write_units(begin, end, units)
            first_ms, end_ms = self._stored_at_ms(begin), self._stored_at_ms(end)
            digest = hashlib.sha256()
            self._put(TieredFile(begin, size, "", 0, 0, 0).log, self._parts(file, size, digest.update))
            units_size = units.seek(0, os.SEEK_END)
            units.seek(0)
            copied = TieredFile(begin, size, digest.hexdigest(), units_size, first_ms, end_ms)
            self._put(copied.units, self._parts(units, units_size, lambda _: None))
        for name, wanted in ((copied.log, size), (copied.units, units_size)):
            if (found := self._objects.size(name)) != wanted:
                raise ObjectError(
                    f"{self._objects.place}/{name} has {found} bytes after {wanted} were written"
                )
        self._catalog.add(copied, runs)
        counts = self.counts
        self.counts = counts._replace(files=counts.files + 1, bytes=counts.bytes + size + units_size)
        log.info("copied %s to the tiered storage: %d bytes", path, size)
        return True

    def _put(self, name: str, parts: Iterator[bytes]) -> None:
        try:
            self._objects.put_parts(name, parts)
        except ObjectError:
            # The library reports the end of its iterator as its own failure.
            if self._stopping.is_set():
                raise _StopError from None
            raise

    def _parts(self, file: IO[bytes], size: int, seen: Callable[[bytes], None]) -> Iterator[bytes]:
        """Yield the parts of a file, no faster than the configured rate."""
        began, done = time.monotonic(), 0
        if not size:
            yield b""
        while done < size:
            part = file.read(min(self._objects.part_bytes, size - done))
            if not part:
                raise OSError(f"a file of the log ended after {done} of {size} bytes")
            seen(part)
            yield part
            done += len(part)
            # The log's own reads and writes need the cache.
            os.posix_fadvise(file.fileno(), 0, done, os.POSIX_FADV_DONTNEED)
            ahead_s = done / self._config.upload_rate - (time.monotonic() - began)
            if self._stopping.wait(max(0.0, ahead_s)):
                raise _StopError

    def _write_units(self, begin: int, end: int, into: IO[bytes]) -> Runs:
        """Write the entries of all queues that point into this range of the log."""
        runs: dict[str, dict[int, Run]] = {}
        for topic, queue_ids in self._store.queues():
            of_topic = {}
            for queue_id in queue_ids:
                first = self._store.first_from(topic, queue_id, begin)
                last = self._store.first_from(topic, queue_id, end)
                run = Run(first, last, into.tell())
                for offset in range(first, last, _UNITS):
                    into.write(self._store.encoded_units(topic, queue_id, offset, min(last, offset + _UNITS)))
                if into.tell() - run.at == (last - first) * UNIT_BYTES:
                    of_topic[queue_id] = run
                else:
                    # The topic was deleted meanwhile.
                    into.seek(run.at)
                    into.truncate()
            if of_topic:
                runs[topic] = of_topic
        return runs

    def _stored_at_ms(self, position: int) -> int:
        """The store time of the record at a position; now at the end of the log."""
        record = self._store.message(position)
        return self._wall_ms() if record is None else record_stored_at_ms(record)

    # ---- removal ----

    def _compare(self) -> None:
        """Remove the newest files if an earlier master wrote them and this log does not have their messages. Raises
        `ObjectError` if no file is of this log: the storage belongs to another broker, or this one lost its disk."""
        end = self._store.statistics()["max_physical"]
        others: list[TieredFile] = []
        for file in reversed(self._catalog.files):
            path = self._folder / f"{file.begin:020}"
            if file.end <= end and (not path.exists() or self._digest(path) == file.sha256):
                break
            others.append(file)
        else:
            if others:
                raise ObjectError(
                    f"{self._objects.place} has files of another log: use another folder or prefix for this broker, or "
                    "restore its log"
                )
        for file in others:
            log.warning("%s/%s is not of this log, and is removed", self._objects.place, file.log)
            self._remove(file)

    def _digest(self, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for part in self._parts(file, path.stat().st_size, digest.update):
                del part
        return digest.hexdigest()

    def _remove_expired(self) -> None:
        if not self._config.reserved_hours:
            return
        before = self._wall_ms() - self._config.reserved_hours * _HOUR_MS
        while (files := self._catalog.files) and files[0].end_ms < before:
            self._remove(files[0])
            self.counts = self.counts._replace(deleted=self.counts.deleted + 1)

    def _remove(self, file: TieredFile) -> None:
        self._catalog.remove(file)
        self._dropped(file)
