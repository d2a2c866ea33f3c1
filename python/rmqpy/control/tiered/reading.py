"""Reads from the tiered storage: messages of a queue, and its offsets by time.

Every record is checked against the entry of its queue before it is returned. Calls block and raise `ObjectError`; any
thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqpy._native import RecordFilter, RecordGroup, SelectedRecords, record_stored_at_ms
from rmqpy.control.tiered.blocks import Blocks
from rmqpy.control.tiered.catalog import Catalog
from rmqpy.control.tiered.described import UNIT_BYTES, Run, TieredFile
from rmqpy.control.tiered.objects import ObjectError

#: The most entries that one read looks at; a selective filter continues in the next one.
SCANNED_MAX: Final = 4_096
#: Entries that are fetched together.
_TOGETHER: Final = 1_024
_UNIT: Final = struct.Struct(">qiq")
#: The size of a lost message and that of an entry without a message.
_NO_RECORD: Final = frozenset({1, 0x7FFFFFFF})


class Unit(NamedTuple):
    """An entry of a queue: position and size of the record, hash of its tag."""

    physical: int
    size: int
    tags_code: int


class Page(NamedTuple):
    """Messages, as the bytes of their records, and the offset to continue at."""

    found: int
    records: bytes
    next: int


class TieredReader:
    """The messages in the tiered storage of one broker."""

    def __init__(self, catalog: Catalog, blocks: Blocks) -> None:
        self._catalog = catalog
        self._blocks = blocks

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        before: int,
        count: int,
        bytes_max: int,
        accepts: RecordFilter | None,
    ) -> Page | None:
        """Return messages with offsets from `offset` on and below `before`: at most `count`, and of `bytes_max` at most
        or one; `None` if there is none. A page without messages has an offset to continue at. Without `accepts`, all
        messages."""
        found = self._catalog.find(topic, queue_id, offset)
        if found is None:
            return None
        file, run = found
        begin, end = max(offset, run.begin), min(run.end, before)
        if begin >= end:
            return None
        end = min(end, begin + SCANNED_MAX)
        page = _Filling(count, bytes_max)
        for group in self._groups(file, run, begin, end, accepts, page):
            refused = group.first if page.is_full else self._add(file, group, accepts, page)
            if refused is not None:
                return page.ending_at(refused)
        return page.ending_at(end)

    def _add(
        self, file: TieredFile, group: RecordGroup, accepts: RecordFilter | None, page: _Filling
    ) -> int | None:
        """Add records that are read together; return the offset of the first without room."""
        part = self._blocks.read(file.log, group.begin - file.begin, group.end - file.begin, size=file.size)
        try:
            selected = group.select(
                part,
                count_left=page.count_left,
                bytes_left=page.bytes_left,
                is_empty=page.is_empty,
                accepts=accepts,
            )
        except ValueError as error:
            raise ObjectError(f"{file.log} is damaged: {error}") from None
        page.add(selected)
        return selected.refused

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first message stored at this time or later, or the one after the last message here;
        `None` if all were stored before."""
        found = self._catalog.find_time(topic, queue_id, timestamp_ms)
        if found is None:
            return None
        file, run = found
        low, high = run.begin, run.end
        while low < high:
            middle = (low + high) // 2
            if self._stored_at_ms(file, run, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """Return the store time of the oldest message; `None` without one."""
        found = self._catalog.find(topic, queue_id, -1)
        return None if found is None else self._stored_at_ms(*found, found[1].begin)

    def _stored_at_ms(self, file: TieredFile, run: Run, offset: int) -> int:
        unit = Unit(*_UNIT.unpack(self._units(file, run, offset, offset + 1)))
        if unit.size in _NO_RECORD:
            return 0
        if unit.size < 0 or not file.begin <= unit.physical <= file.end - unit.size:
            raise ObjectError(f"{file.units} is damaged: offset {offset} is at {unit.physical}")
        at = unit.physical - file.begin
        return record_stored_at_ms(self._blocks.read(file.log, at, at + unit.size, size=file.size))

    def _groups(
        self,
        file: TieredFile,
        run: Run,
        begin: int,
        end: int,
        accepts: RecordFilter | None,
        page: _Filling,
    ) -> Iterator[RecordGroup]:
        """Yield the messages that are read together, while the page has room."""
        for first in range(begin, end, _TOGETHER):
            units = self._units(file, run, first, min(end, first + _TOGETHER))
            try:
                groups = RecordGroup.of(
                    units,
                    first=first,
                    begin=file.begin,
                    end=file.end,
                    count_max=max(1, page.count_left),
                    bytes_max=page.bytes_left,
                    accepts=accepts,
                )
            except ValueError as error:
                raise ObjectError(f"{file.units} is damaged: {error}") from None
            yield from groups

    def _units(self, file: TieredFile, run: Run, begin: int, end: int) -> bytes:
        at = run.at + (begin - run.begin) * UNIT_BYTES
        return self._blocks.read(file.units, at, at + (end - begin) * UNIT_BYTES, size=file.units_size)


class _Filling:
    """A page that is filled."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_left, self.bytes_left = count_max, bytes_max
        self._count = 0
        self._records: list[bytes] = []

    @property
    def is_empty(self) -> bool:
        """Whether it has no message yet."""
        return not self._count

    @property
    def is_full(self) -> bool:
        """Whether it has as many messages as it may."""
        return self._count > 0 and self.count_left == 0

    def add(self, selected: SelectedRecords) -> None:
        """Add records for which there is room."""
        self._records.append(selected.records)
        self._count += selected.count
        self.count_left = max(0, self.count_left - selected.count)
        self.bytes_left = max(0, self.bytes_left - len(selected.records))

    def ending_at(self, following: int) -> Page:
        """Return the page; `following` is the offset to continue at."""
        return Page(self._count, b"".join(self._records), following)
