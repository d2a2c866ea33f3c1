"""Filters of consumer groups on disk: `consumerFilter.json`.

Owns the file, which only Apache's broker reads when it takes over the folder. It holds the filters of groups with
members at the time of writing; those of groups that left are kept for a day, marked dead. Each filter has the Bloom
bits that Apache's broker computes in advance, because it discards a file without them.
Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.clients.registry import ConsumerGroup
from rmqpy.control.tables.file import TableFile
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion

#: How long an unused filter is kept, as at Apache's broker.
KEPT_MS: Final = 24 * 3_600_000
FILTERS_SECONDS: Final = 10.0
#: The bits of Apache's broker with its defaults: an error of 20 % with 32 groups on a topic.
BLOOM_BITS: Final = 112
BLOOM_HASHES: Final = 3

_64: Final = (1 << 64) - 1


@record
class BloomFilterData:
    """The Bloom bits of a group on a topic."""

    bit_num: int = BLOOM_BITS
    bit_pos: list[int] = dataclasses.field(default_factory=list)


@record
class ConsumerFilterData:
    """The filter of one group on one topic. Times are milliseconds; a time of death of 0 means in use."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str = "SQL92"
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: BloomFilterData = dataclasses.field(default_factory=BloomFilterData)


@record
class TopicFilters:
    """The filters of one topic, by group."""

    topic: str
    group_filter_data: dict[str, ConsumerFilterData] = dataclasses.field(default_factory=dict)


@record
class FilterContent:
    """The content of the file, which has no version."""

    filter_data_by_topic: dict[str, TopicFilters] = dataclasses.field(default_factory=dict)

    @property
    def data_version(self) -> DataVersion:
        return DataVersion()


class FilterFile:
    """The file, and the filters in it, by topic and group."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = TableFile(path, FilterContent, self._snapshot, clock)
        self._clock = clock
        self._filters: dict[tuple[str, str], ConsumerFilterData] = {}

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        found = self._file.load()
        if found is not None:
            self._filters = {
                (topic, group): data
                for topic, filters in found.filter_data_by_topic.items()
                for group, data in filters.group_filter_data.items()
            }

    async def save(self, groups: Mapping[str, ConsumerGroup]) -> None:
        """Write the file if filters of groups with members have changed. Raises `StoreError`."""
        before, self._filters = self._filters, self._now(groups)
        if self._filters != before:
            try:
                await self._file.save()
            except BaseException:
                self._filters = before
                raise

    def _now(self, groups: Mapping[str, ConsumerGroup]) -> dict[tuple[str, str], ConsumerFilterData]:
        """Return the filters of these groups, and those that became unused recently."""
        now = self._clock.wall_ms()
        filters: dict[tuple[str, str], ConsumerFilterData] = {}
        for group, members in groups.items():
            for topic, data in members.subscriptions.items():
                if data.expression_type == "SQL92" and data.sub_string:
                    known = self._filters.get((topic, group))
                    is_known = known is not None and known.expression == data.sub_string
                    filters[topic, group] = ConsumerFilterData(
                        consumer_group=group,
                        topic=topic,
                        expression=data.sub_string,
                        born_time=known.born_time if known is not None and is_known else now,
                        client_version=data.sub_version,
                        bloom_filter_data=BloomFilterData(bit_pos=bloom_positions(f"{group}#{topic}")),
                    )
        for key, left in self._filters.items():
            died = left.dead_time or now
            if key not in filters and now - died < KEPT_MS:
                filters[key] = dataclasses.replace(left, dead_time=died)
        return filters

    def _snapshot(self) -> Callable[[DataVersion], FilterContent]:
        topics: dict[str, TopicFilters] = {}
        for (topic, group), data in self._filters.items():
            topics.setdefault(topic, TopicFilters(topic=topic)).group_filter_data[group] = data
        return lambda version: FilterContent(filter_data_by_topic=topics)


def bloom_positions(text: str) -> list[int]:
    """Return the bits of a group on a topic, `group#topic`, in a filter of Apache's broker.

    >>> bloom_positions("GroupA#TopicA")
    [29, 107, 11]
    """
    digest = _murmur3(text.encode())
    first, second = _signed(digest & 0xFFFFFFFF), _signed(digest >> 32)
    totals = (_signed(first + turn * second) for turn in range(1, BLOOM_HASHES + 1))
    return [(~one if one < 0 else one) % BLOOM_BITS for one in totals]


def _signed(number: int) -> int:
    """Return the number as a signed 32-bit integer."""
    return ((number + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _murmur3(data: bytes) -> int:
    """Return the first 64 bits of 128-bit MurmurHash3 (x64) with seed 0."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & _64

    def mixed(value: int, first: int, bits: int, second: int) -> int:
        return rotated(value * first & _64, bits) * second & _64

    def finished(value: int) -> int:
        value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _64
        value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _64
        return value ^ value >> 33

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= mixed(int.from_bytes(data[at : at + 8], "little"), c1, 31, c2)
        h1 = ((rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _64
        h2 ^= mixed(int.from_bytes(data[at + 8 : at + 16], "little"), c2, 33, c1)
        h2 = ((rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _64
    h2 ^= mixed(int.from_bytes(data[whole + 8 :], "little"), c2, 33, c1)
    h1 ^= mixed(int.from_bytes(data[whole : whole + 8], "little"), c1, 31, c2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _64
    h2 = (h2 + h1) & _64
    return (finished(h1) + finished(h2)) & _64
