"""Reads from the tiered storage: messages of a queue, and its offsets by time.

Every record is checked against the entry of its queue before it is returned. Calls block and raise `ObjectError`; any
thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rmqpy._native import RecordFilter, record_stored_at_ms
from rmqpy.control.tiered.blocks import Blocks
from rmqpy.control.tiered.catalog import Catalog
from rmqpy.control.tiered.described import UNIT_BYTES, Run, TieredFile
from rmqpy.control.tiered.objects import ObjectError

#: The most entries that one read looks at; a selective filter continues in the next one.
SCANNED_MAX: Final = 4_096
#: Entries that are fetched together.
_TOGETHER: Final = 1_024
#: Records are read together up to this gap between two, and up to this length.
_GAP_BYTES_MAX: Final = 16 << 10
_GROUP_BYTES_MAX: Final = 1 << 20
_UNIT: Final = struct.Struct(">qiq")
#: The size of a lost message and that of an entry without a message.
_NO_RECORD: Final = frozenset({1, 0x7FFFFFFF})
#: Size and position in a record.
_SIZE: Final = struct.Struct(">i")
_POSITION: Final = struct.Struct(">q")
_POSITION_AT: Final = 28
#: Bytes that hold the store time, whatever hosts a record has.
_HEAD_BYTES: Final = 91


class Unit(NamedTuple):
    """An entry of a queue: position and size of the record, hash of its tag."""

    physical: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """The position after the record."""
        return self.physical + self.size


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
        taken = _Taken(count, bytes_max)
        units = (each for each in self._units(file, run, begin, end) if _is_wanted(each[1], accepts))
        for group in _groups(units, count, min(bytes_max, _GROUP_BYTES_MAX)):
            if not self._take(file, group, accepts, taken):
                return taken.page(taken.refused)
        return taken.page(end)

    def _take(
        self, file: TieredFile, group: list[tuple[int, Unit]], accepts: RecordFilter | None, taken: _Taken
    ) -> bool:
        """Take records that are read together; return False when the next one finds no room."""
        begin, end = group[0][1].physical, group[-1][1].end
        part = self._blocks.read(file.log, begin - file.begin, end - file.begin, size=file.size)
        size = 0
        for _, unit in group:
            at = unit.physical - begin
            is_whole = unit.size >= _HEAD_BYTES and _SIZE.unpack_from(part, at)[0] == unit.size
            if not is_whole or _POSITION.unpack_from(part, at + _POSITION_AT)[0] != unit.physical:
                raise ObjectError(f"{file.log} is damaged: no record begins at {unit.physical - file.begin}")
            size += unit.size
        if accepts is None and size == len(part) and taken.is_empty:
            # Nothing lies between them, and a group fits into a page.
            taken.add_all(part, len(group))
            return True
        for offset, unit in group:
            record = part[unit.physical - begin : unit.end - begin]
            if (accepts is None or accepts.takes(record)) and not taken.add(offset, record):
                return False
        return True

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
        _, unit = next(self._units(file, run, offset, offset + 1))
        if unit.size in _NO_RECORD:
            return 0
        at = unit.physical - file.begin
        return record_stored_at_ms(self._blocks.read(file.log, at, at + unit.size, size=file.size))

    def _units(self, file: TieredFile, run: Run, begin: int, end: int) -> Iterator[tuple[int, Unit]]:
        for first in range(begin, end, _TOGETHER):
            last = min(end, first + _TOGETHER)
            at = run.at + (first - run.begin) * UNIT_BYTES
            end_at = at + (last - first) * UNIT_BYTES
            part = self._blocks.read(file.units, at, end_at, size=file.units_size)
            for number, fields in enumerate(_UNIT.iter_unpack(part)):
                unit = Unit(*fields)
                if unit.size not in _NO_RECORD and not (
                    unit.size > 0 and file.begin <= unit.physical and unit.end <= file.end
                ):
                    raise ObjectError(
                        f"{file.units} is damaged: offset {first + number} is at {unit.physical}"
                    )
                yield first + number, unit


class _Taken:
    """The records of one reply."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_left, self._bytes_left = count_max, bytes_max
        self._count = 0
        self._records: list[bytes] = []
        #: The offset of the first record without room.
        self.refused = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taken."""
        return not self._count

    def add(self, offset: int, record: bytes) -> bool:
        """Take a record if there is room, or if it is the first."""
        if self._count and (self._count_left <= 0 or len(record) > self._bytes_left):
            self.refused = offset
            return False
        self.add_all(record, 1)
        return True

    def add_all(self, records: bytes, count: int) -> None:
        """Take records for which there is room."""
        self._records.append(records)
        self._count += count
        self._count_left -= count
        self._bytes_left -= len(records)

    def page(self, following: int) -> Page:
        """Return what was taken, and the offset to continue at."""
        return Page(self._count, b"".join(self._records), following)


def _is_wanted(unit: Unit, accepts: RecordFilter | None) -> bool:
    """Return whether an entry has a record whose tag may be taken."""
    return unit.size not in _NO_RECORD and (accepts is None or accepts.takes_tag(unit.tags_code))


def _groups(
    units: Iterable[tuple[int, Unit]], count_max: int, bytes_max: int
) -> Iterator[list[tuple[int, Unit]]]:
    """Yield entries whose records are close together in the file, in order."""
    group: list[tuple[int, Unit]] = []
    for offset, unit in units:
        if group:
            first, last = group[0][1], group[-1][1]
            is_near = 0 <= unit.physical - last.end <= _GAP_BYTES_MAX
            if not is_near or len(group) >= count_max or unit.end - first.physical > bytes_max:
                yield group
                group = []
        group.append((offset, unit))
    if group:
        yield group
