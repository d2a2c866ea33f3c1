"""Catalog of the tiered storage: its files, and the places of the messages of a queue in them.

Owns the list of files, the runs of some of them, and the topics that were deleted: their messages stay in the files and
must not appear in a later topic of that name. Invariant: files are in the order of the log and do not overlap.
Calls that need runs may read an object, so they block and raise `ObjectError`; any thread.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from rmqpy.control.tiered.claim import Claim
from rmqpy.control.tiered.described import DESCRIPTION, Run, Runs, TieredFile, decode, encode
from rmqpy.control.tiered.objects import ObjectError, Objects

#: The files whose runs are in memory.
RUNS_MAX: Final = 64
#: The object with deleted topics, and the most of them: the oldest are dropped with the files before them.
DELETED: Final = "deleted-topics.list"


class Catalog:
    """The files of one broker."""

    def __init__(self, objects: Objects, claim: Claim) -> None:
        self._objects = objects
        self._claim = claim
        self._lock = threading.Lock()
        self._files: tuple[TieredFile, ...] = ()
        #: False until the storage was read: its messages must not be taken for lost.
        self._is_known = False
        self._runs: OrderedDict[int, Runs] = OrderedDict()
        #: Topic → the end of the log when it was deleted.
        self._deleted: dict[str, int] = {}

    @property
    def files(self) -> Sequence[TieredFile]:
        """All files, oldest first."""
        return self._files

    @property
    def end(self) -> int | None:
        """The position after the newest file; `None` without one."""
        files = self._files
        return files[-1].end if files else None

    def load(self, *, may_write: bool) -> None:
        """Read what the storage has; known files are not read again. A new storage is claimed if this broker may write.
        Raises `ObjectError`, also for an empty storage that was in use."""
        names = self._objects.names()
        self._claim.check(names, may_write=may_write)
        known = {file.begin: file for file in self._files}
        found = []
        for name in sorted(name for name in names if name.endswith(DESCRIPTION)):
            begin = name.removesuffix(DESCRIPTION)
            if begin.isdecimal() and (file := known.get(int(begin)) or self._read(name)[0]):
                found.append(file)
        if DELETED in names and (content := self._objects.get(DELETED)) is not None:
            try:
                self.restore_deleted(content)
            except ValueError as error:
                raise ObjectError(f"{self._objects.place}/{DELETED} is damaged: {error}") from None
        with self._lock:
            self._files = tuple(found)
            self._is_known = True

    def add(self, file: TieredFile, runs: Runs) -> None:
        """Add a file whose objects are written, with its description. An earlier one of this range is replaced."""
        self._objects.put(file.description, encode(file, runs))
        with self._lock:
            kept = [each for each in self._files if each.end <= file.begin or each.begin >= file.end]
            self._files = tuple(sorted([*kept, file]))
            self._keep(file.begin, runs)

    def remove(self, file: TieredFile) -> None:
        """Remove a file: first from the catalog, then its objects."""
        with self._lock:
            self._files = tuple(each for each in self._files if each.begin != file.begin)
            self._runs.pop(file.begin, None)
        for name in (file.description, file.units, file.log):
            self._objects.delete(name)

    # ---- deleted topics ----

    def forget(self, topics: Iterable[str], end: int) -> None:
        """Hide the messages that these topics had before this position. `save_deleted` makes it durable."""
        with self._lock:
            self._deleted |= dict.fromkeys(topics, end)

    def restore_deleted(self, content: bytes) -> None:
        """Add what the storage, or a file of the broker, remembers. Raises `ValueError` for damaged content."""
        try:
            deleted = {str(topic): int(end) for topic, end in json.loads(content).items()}
        except (AttributeError, TypeError) as error:
            raise ValueError(str(error)) from None
        with self._lock:
            for topic, end in deleted.items():
                self._deleted[topic] = max(end, self._deleted.get(topic, 0))

    def deleted(self) -> dict[str, int]:
        """Return the deleted topics that files still have, with the end of the log at their deletion."""
        with self._lock:
            oldest = self._files[0].begin if self._files else None
            if oldest is not None:
                self._deleted = {topic: end for topic, end in self._deleted.items() if end > oldest}
            return dict(self._deleted)

    def save_deleted(self) -> None:
        """Write the deleted topics, for a successor of this broker."""
        self._objects.put(DELETED, json.dumps(self.deleted(), separators=(",", ":")).encode())

    # ---- messages of a queue ----

    def find(self, topic: str, queue_id: int, offset: int) -> tuple[TieredFile, Run] | None:
        """Return the first file with a message of the queue at this offset or later."""
        files = self._files_of(topic)
        while True:
            index = bisect_left(files, True, key=lambda file: self._end(file, topic, queue_id) > offset)
            if index == len(files):
                return None
            run = self._run(files[index], topic, queue_id)
            if run is None or run.begin < run.end:
                return None if run is None else (files[index], run)
            # Files before this one were removed, or are missing.
            offset = run.end

    def find_time(self, topic: str, queue_id: int, timestamp_ms: int) -> tuple[TieredFile, Run] | None:
        """Return the first file with a message of the queue that may have been stored at this time or later."""
        files = self._files_of(topic)
        index = bisect_left(files, timestamp_ms, key=lambda file: file.end_ms)
        if index == len(files):
            return None
        run = self._run(files[index], topic, queue_id)
        return self.find(topic, queue_id, -1 if run is None else run.begin)

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the offset of the oldest message of the queue; `None` if the files have none."""
        found = self.find(topic, queue_id, -1)
        return None if found is None else found[1].begin

    def _files_of(self, topic: str) -> Sequence[TieredFile]:
        """The files that may have messages of the present topic of this name."""
        if not self._is_known:
            raise ObjectError(f"{self._objects.place} could not be read since the start")
        deleted = self._deleted.get(topic)
        if deleted is None:
            return self._files
        return self._files[bisect_left(self._files, True, key=lambda file: file.end > deleted) :]

    def _end(self, file: TieredFile, topic: str, queue_id: int) -> int:
        run = self._run(file, topic, queue_id)
        return -1 if run is None else run.end

    def _run(self, file: TieredFile, topic: str, queue_id: int) -> Run | None:
        return self._runs_of(file).get(topic, {}).get(queue_id)

    def _runs_of(self, file: TieredFile) -> Runs:
        with self._lock:
            runs = self._runs.get(file.begin)
            if runs is not None:
                self._runs.move_to_end(file.begin)
                return runs
        _, runs = self._read(file.description)
        with self._lock:
            self._keep(file.begin, runs)
        return runs

    def _keep(self, begin: int, runs: Runs) -> None:
        self._runs[begin] = runs
        self._runs.move_to_end(begin)
        while len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)

    def _read(self, name: str) -> tuple[TieredFile, Runs]:
        content = self._objects.get(name)
        if content is None:
            raise ObjectError(f"{self._objects.place}/{name} is missing")
        try:
            return decode(content)
        except ValueError as error:
            raise ObjectError(f"{self._objects.place}/{name} is damaged: {error}") from None
