"""Configuration of the message store: keys of `broker.conf` for its files and retention.

A folder keeps its file sizes: it remembers those of the log and the queues, and those of the index must not change.
Defaults and bounds of numbers that the native store checks come from there.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from rmqpy._native import store_settings
from rmqpy.config import home
from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
MAPPING = "mapping"
RING = "ring"
WRITE_PATH: Final = "commitLogWritePath"
RING_BYTES: Final = "commitLogRingBytes"

#: The largest body: a frame has at most 16 MiB, with header and properties next to the body.
BODY_BYTES_MAX: Final = 15 << 20
_NUMBERS: Final = store_settings()
_DELAY_LEVELS: Final = "messageDelayLevel"
#: The size of a record without its body, and the number of parts of the write ring, each of which must hold the
#: largest record.
_RECORD_HEAD_BYTES: Final = 64 << 10
_RING_PARTS: Final = 4
#: The minimum and maximum number of delay levels; each is a queue.
DELAY_LEVELS_MIN: Final = _NUMBERS[_DELAY_LEVELS].low
DELAY_LEVELS_MAX: Final = _NUMBERS[_DELAY_LEVELS].high
_HOURS: Final = 24
_DEFAULT_ROOT: Final = "~/store"
#: The default folders of log, queues and index below the root.
FOLDERS: Final = ("commitlog", "consumequeue", "index")
#: The keys for other folders.
FOLDER_KEYS: Final = ("storePathCommitLog", "storePathConsumeQueue", "storePathIndex")
#: Earlier names of a setting and of a value.
_OLD_RING_BYTES: Final = "commitLogSpoolBytes"
_OLD_RING: Final = "spool"
_OLD_MAPPING: Final = "syncFlushMapped"
_DELAY: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _number(wire: str, doc: str) -> Any:
    """Declare a number that the native store checks."""
    number = _NUMBERS[wire]
    return key(wire, number.default, doc, unit=number.unit, low=number.low, high=number.high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig(Settings):
    """Folders, file sizes, durability and retention."""

    root: str = key("storePathRootDir", _DEFAULT_ROOT, "Folder of all data of the broker.")
    log_path: str = key(
        FOLDER_KEYS[0],
        "",
        "Folder of the commit log, on any disk; empty: `commitlog` below the root. Apache's broker also takes several.",
    )
    queue_path: str = key(
        FOLDER_KEYS[1],
        "",
        "Folder of the consume queues, on any disk; empty: `consumequeue` below the root.",
    )
    index_path: str = key(
        FOLDER_KEYS[2], "", "Folder of the index, on any disk; empty: `index` below the root."
    )
    flush: str = key(
        "flushDiskType",
        ASYNC_FLUSH,
        "When a send is acknowledged: SYNC_FLUSH once it is on disk, ASYNC_FLUSH before.",
        choices=(ASYNC_FLUSH, SYNC_FLUSH),
    )
    flush_interval_ms: int = _number(
        "flushIntervalCommitLog",
        "Interval between flushes of ASYNC_FLUSH; data is on disk after at most twice this time. Apache's default "
        "is 500.",
    )
    log_write_path: str = key(
        WRITE_PATH,
        RING,
        "Write path of the commit log: the write ring, from which the flush writes the file, or a memory mapping of "
        "the file, like Apache's broker, where sends wait for new pages.",
        choices=(RING, MAPPING),
    )
    ring_bytes: int = _number(
        RING_BYTES,
        "Size of the write ring. Its messages are read from memory; a batch may take a quarter of it. Small sizes are "
        "for tests.",
    )
    segment_bytes: int = _number(
        "mappedFileSizeCommitLog", "Size of one commit log file; small sizes are for tests."
    )
    queue_file_bytes: int = _number(
        "mappedFileSizeConsumeQueue",
        "Size of one consume queue file, rounded up to whole entries of 20 bytes.",
    )
    is_indexed: bool = key("messageIndexEnable", True, "Index messages by key.")
    index_slots: int = _number("maxHashSlotNum", "Hash slots of one index file.")
    index_entries: int = _number("maxIndexNum", "Keys one index file holds.")
    in_memory_percent: int = _number(
        "accessMessageInMemoryMaxRatio",
        "Percentage of memory assumed to cache the newest messages. A new group starts at offset 0 of a queue that "
        "lies completely within it; reads within the newest quarter of it do not go through the thread for cold "
        "reads.",
    )
    message_bytes_max: int = key(
        "maxMessageSize", 4 << 20, "Largest body of a message.", unit="bytes", low=1, high=BODY_BYTES_MAX
    )

    reserved_hours: int = key(
        "fileReservedTime",
        72,
        "Time a commit log file is kept after its newest message was stored.",
        unit="hours",
        low=0,
        high=1_000_000,
        changeable=True,
    )
    delete_when: str = key(
        "deleteWhen",
        "04",
        "Hours of the day, local time, in which expired files are deleted, separated by semicolons.",
        changeable=True,
    )
    expire_percent: int = key(
        "diskMaxUsedSpaceRatio",
        75,
        "Disk usage from which expired files are deleted at any hour.",
        unit="percent",
        low=10,
        high=95,
        changeable=True,
    )
    deletes_by_force: bool = key(
        "cleanFileForciblyEnable",
        False,
        "Delete the oldest messages before they expire if the disk is too full; Apache's default is true.",
        changeable=True,
    )
    deletes_waiting: bool = key(
        "deleteWaitingEnable",
        False,
        "Delete expired files even with undelivered delayed, timed or half messages, counted in "
        "rmqpy_undelivered_total. Otherwise such files stay until these are delivered.",
        changeable=True,
    )
    force_percent: int = key(
        "diskSpaceCleanForciblyRatio",
        85,
        "Disk usage from which cleanFileForciblyEnable takes effect.",
        unit="percent",
        low=30,
        high=100,
        changeable=True,
    )
    full_percent: int = key(
        "diskSpaceWarningLevelRatio",
        90,
        "Disk usage from which sends are refused; 100 turns this limit off. Sends are always refused while less than "
        "64 MiB are free. `rmqpy standalone` uses 100.",
        unit="percent",
        low=35,
        high=100,
        changeable=True,
    )

    delay_levels: str = key(
        _DELAY_LEVELS,
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delay levels, numbered from 1, in s, m, h or d; also in ms, which Apache's broker does not support.",
    )
    delay_offsets_interval_ms: int = key(
        "flushDelayOffsetInterval",
        10_000,
        "Interval between saves of the progress of delayed delivery; after a crash, later deliveries are repeated.",
        unit="ms",
        low=100,
    )
    has_timers: bool = key(
        "timerWheelEnable",
        True,
        "Accept timed messages; otherwise such sends are refused, and stored ones keep waiting.",
    )
    timer_precision_ms: int = _number(
        "timerPrecisionMs",
        "Width of a slot of the timer wheel. Messages are delivered at the millisecond they name; Apache's broker "
        "delivers up to a slot later.",
    )
    timer_delay_sec_max: int = _number("timerMaxDelaySec", "Longest delay that is accepted.")
    timer_roll_window_slots: int = _number(
        "timerRollWindowSlot",
        "Slots after which a waiting message is stored again; a window shorter than fileReservedTime keeps it from "
        "expiring.",
    )
    timer_log_file_bytes: int = _number(
        "mappedFileSizeTimerLog", "Size of one timer log file; small sizes are for tests."
    )
    timer_save_interval_ms: int = key(
        "timerFlushIntervalMs",
        1_000,
        "How often the progress of timed delivery is saved; timed messages delivered since then are delivered again "
        "after a crash.",
        unit="ms",
        low=100,
    )

    has_compaction: bool = key(
        "enableCompaction",
        True,
        "Serve topics with cleanup.policy=COMPACTION, which keep the newest message of each key. Without it they are "
        "ordinary topics.",
    )
    compaction_threads: int = _number(
        "compactionThreadNum",
        "Threads that compact queues; at most one for each processor. They begin with the first compacted topic.",
    )
    compaction_interval_ms: int = _number(
        "compactionScheduleInternal",
        "Time between two compactions of a queue; up to the same time is added, different for each queue. A queue is "
        "skipped unless at least a third of it is new.",
    )
    compaction_map_bytes: int = _number(
        "maxOffsetMapSize",
        "Memory for the keys of all compactions. More keys take more passes over the queue, not more memory.",
    )
    compaction_bytes_per_second: int = _number(
        "compactionBytesPerSecond", "Bytes that all compactions read and write in a second; 0 for no limit."
    )
    has_lights: bool = key(
        "enableLmq",
        False,
        "Serve light queues: every topic `%LMQ%…` exists, with one queue that holds messages of other topics, and so "
        "does every group `%LMQ%…`. Offsets are in `lmqConsumerOffset.json` then.",
    )
    dispatches_to_lights: bool = key(
        "enableMultiDispatch",
        False,
        "Store a message in the light queues that its property `INNER_MULTI_DISPATCH` lists, too; needs enableLmq.",
    )
    has_light_quota: bool = key(
        "enableLmqQuota",
        False,
        "Refuse messages that would create more than maxLmqConsumeQueueNum light queues, with code 2017.",
    )
    light_queues_max: int = _number(
        "maxLmqConsumeQueueNum",
        "Maximum light queues with enableLmqQuota. Without it there are at most 1,048,576.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (DELAY_LEVELS_MIN <= len(self.delays_ms) <= DELAY_LEVELS_MAX):
            bounds = f"from {DELAY_LEVELS_MIN} to {DELAY_LEVELS_MAX}"
            raise ConfigError(f"{_DELAY_LEVELS}: must have {bounds} levels")
        if not self.delete_hours:
            raise ConfigError("deleteWhen must name an hour")
        self._check_ring()
        self._check_folders()

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delay of each level, from level 1 on."""
        return tuple(_delay_ms(level) for level in self.delay_levels.split())

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """Hours of the day, 0 to 23, in which expired files are deleted."""
        return tuple(_hour(text) for text in self.delete_when.split(";") if text.strip())

    @property
    def durability(self) -> Literal["page_cache", "page_cache_mapped", "disk", "disk_mapped"]:
        """Durability of acknowledged messages, and the write path, for the native store."""
        is_ring = self.log_write_path == RING
        if self.flush == SYNC_FLUSH:
            return "disk" if is_ring else "disk_mapped"
        return "page_cache" if is_ring else "page_cache_mapped"

    @property
    def folder(self) -> str:
        """The root with `~` expanded. Raises `ConfigError` if the user has no home folder."""
        return _absolute(self.root)

    @property
    def named_folders(self) -> tuple[str | None, str | None, str | None]:
        """Configured folders of log, queues and index; None for defaults below the root."""
        log, queues, index = (
            None if not path or _absolute(path) == os.path.join(self.folder, name) else _absolute(path)
            for path, name in zip((self.log_path, self.queue_path, self.index_path), FOLDERS, strict=True)
        )
        return log, queues, index

    @property
    def folders(self) -> tuple[str, str, str]:
        """The actual folders of log, queues and index."""
        log, queues, index = (
            named or os.path.join(self.folder, name)
            for named, name in zip(self.named_folders, FOLDERS, strict=True)
        )
        return log, queues, index

    def _check_ring(self) -> None:
        if self.log_write_path != RING:
            return
        needed = _RING_PARTS * (self.message_bytes_max + _RECORD_HEAD_BYTES)
        if self.ring_bytes < needed:
            raise ConfigError(
                f"commitLogRingBytes={self.ring_bytes}: messages of maxMessageSize={self.message_bytes_max} "
                f"need {needed}"
            )

    def _check_folders(self) -> None:
        """Refuse folders that would mix files of different kinds."""
        if self.root == _DEFAULT_ROOT and home.find() is None:
            # `folder` refuses a missing home where it is used: a default that is replaced later harms nothing.
            return
        if "," in self.log_path:
            raise ConfigError(f"storePathCommitLog={self.log_path}: the commit log must be in one folder")
        # Other folders in the root may be named, but not its ancestors.
        taken = {name: os.path.join(self.folder, name) for name in ("config", "rmqpy")}
        for wire, folder in zip(FOLDER_KEYS, self.folders, strict=True):
            if "\n" in folder:
                raise ConfigError(f"{wire}: a folder name must not contain a line feed")
            if _is_within(self.folder, folder):
                raise ConfigError(f"{wire}={folder}: must not contain the root {self.folder}")
            for other, path in taken.items():
                if _is_within(folder, path) or _is_within(path, folder):
                    raise ConfigError(f"{wire}={folder}: {other} uses {path}; use separate folders")
            taken[wire] = folder


#: Earlier names of settings.
RENAMED: Final = frozenset({_OLD_RING_BYTES, _OLD_MAPPING})


def with_new_names(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the entries of a file with today's names of settings and values, and a sentence for each replaced one.

    >>> with_new_names({"commitLogWritePath": "spool"})
    ({'commitLogWritePath': 'ring'}, ['commitLogWritePath=spool is now called commitLogWritePath=ring'])
    """
    entries, sentences = dict(given), []
    if (size := entries.pop(_OLD_RING_BYTES, None)) is not None:
        sentences.append(f"{_OLD_RING_BYTES} is now called {RING_BYTES}")
        entries.setdefault(RING_BYTES, size)
    if entries.get(WRITE_PATH) == _OLD_RING:
        sentences.append(f"{WRITE_PATH}={_OLD_RING} is now called {WRITE_PATH}={RING}")
        entries[WRITE_PATH] = RING
    if (is_mapped := entries.pop(_OLD_MAPPING, None)) is not None:
        sentences.append(f"{_OLD_MAPPING} is now {WRITE_PATH}={MAPPING}, for both flush modes")
        if is_mapped.strip().lower() == "true":
            entries.setdefault(WRITE_PATH, MAPPING)
    return entries, sentences


def _absolute(path: str) -> str:
    return os.path.abspath(home.expand(path))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _hour(text: str) -> int:
    if not (text.strip().isdecimal() and int(text) < _HOURS):
        raise ConfigError(f"deleteWhen: {text!r} is not an hour from 00 to 23")
    return int(text)


def _delay_ms(text: str) -> int:
    found = _DELAY.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigError(f"messageDelayLevel: {text!r} is not a delay such as 10s, 5m or 2h")
    return int(found[1]) * _UNIT_MS[found[2]]
