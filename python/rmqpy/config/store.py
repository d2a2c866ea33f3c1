"""Configuration of the message store: the keys of `broker.conf` that decide what lies on the disk.

Sizes of files are part of a folder: it remembers those of the log and of the queues, those of the index must equal the
ones it was created with. Default and bounds of a number that the native store checks are taken from there.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, Final, Literal

from rmqpy._native import store_settings
from rmqpy.config import home
from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
MAPPING = "mapping"
SPOOL = "spool"

#: A frame has 16 MiB at most; header and properties lie beside the body.
BODY_BYTES_MAX: Final = 15 << 20
_NUMBERS: Final = store_settings()
_DELAY_LEVELS: Final = "messageDelayLevel"
#: What a record has beside its body, and parts of a spool, each of which takes the largest record.
_RECORD_HEAD_BYTES: Final = 64 << 10
_SPOOL_PARTS: Final = 4
#: Delay levels at least and at most; each is a queue.
DELAY_LEVELS_MIN, DELAY_LEVELS_MAX = _NUMBERS[_DELAY_LEVELS][1:3]
_HOURS: Final = 24
_DEFAULT_ROOT: Final = "~/store"
#: Folders of log, queues and index below the root, where no others are named.
FOLDERS: Final = ("commitlog", "consumequeue", "index")
#: The keys that name others.
FOLDER_KEYS: Final = ("storePathCommitLog", "storePathConsumeQueue", "storePathIndex")
_DELAY: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _number(wire: str, doc: str) -> Any:
    """Declare a number that the native store checks."""
    default, low, high, unit = _NUMBERS[wire]
    return key(wire, default, doc, unit=unit, low=low, high=high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig(Settings):
    """Folder and sizes of the files, how durable an answered message is, and how long messages are kept."""

    root: str = key("storePathRootDir", _DEFAULT_ROOT, "Folder of everything the broker keeps.")
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
        "Whether a send is answered when the bytes are in the page cache or when they are on the disk.",
        choices=(ASYNC_FLUSH, SYNC_FLUSH),
    )
    flush_interval_ms: int = _number(
        "flushIntervalCommitLog",
        "How often ASYNC_FLUSH writes to the disk; nothing stays off it for longer than twice that. Apache's default "
        "is 500.",
    )
    has_transient_pool: bool = key(
        "transientStorePoolEnable",
        False,
        "ASYNC_FLUSH appends to a write buffer in the broker's memory; consumers see a message when it is on the disk. "
        "SYNC_FLUSH does so without this key, unless syncFlushMapped is set; both keys together are refused.",
    )
    is_sync_mapped: bool = key(
        "syncFlushMapped",
        False,
        "SYNC_FLUSH appends to a memory mapping of the file, as Apache's broker does, which takes longer.",
    )
    log_write_path: str = key(
        "commitLogWritePath",
        MAPPING,
        "How ASYNC_FLUSH without transientStorePoolEnable writes the commit log: into a memory mapping of the file, or "
        "into a spool, from which the flush writes it without the page cache.",
        choices=(MAPPING, SPOOL),
    )
    spool_bytes: int = _number(
        "commitLogSpoolBytes",
        "Size of the spool. Messages in it are read from memory; a batch may take a quarter of it. Small ones are for "
        "tests.",
    )
    segment_bytes: int = _number(
        "mappedFileSizeCommitLog", "Size of one commit log file; small ones are for tests."
    )
    queue_file_bytes: int = _number(
        "mappedFileSizeConsumeQueue",
        "Size of one consume queue file, rounded up to whole entries of 20 bytes.",
    )
    is_indexed: bool = key("messageIndexEnable", True, "Whether messages can be found by key.")
    index_slots: int = _number("maxHashSlotNum", "Hash slots of one index file.")
    index_entries: int = _number("maxIndexNum", "Keys one index file holds.")
    in_memory_percent: int = _number(
        "accessMessageInMemoryMaxRatio",
        "Share of the memory that is assumed to cache the newest messages. A new group starts at offset 0 of a queue "
        "that lies completely within it; reads within the newest quarter of it do not go through the thread for cold "
        "reads.",
    )
    message_bytes_max: int = key(
        "maxMessageSize", 4 << 20, "Largest body of a message.", unit="bytes", low=1, high=BODY_BYTES_MAX
    )

    reserved_hours: int = key(
        "fileReservedTime",
        72,
        "How long a file of the commit log is kept after its newest message was stored.",
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
        "Share of the disk in use from which on expired files are deleted at any hour.",
        unit="percent",
        low=10,
        high=95,
        changeable=True,
    )
    deletes_by_force: bool = key(
        "cleanFileForciblyEnable",
        False,
        "On a disk that is too full the oldest messages are deleted before they expire; Apache's default is true.",
        changeable=True,
    )
    deletes_waiting: bool = key(
        "deleteWaitingEnable",
        False,
        "Expired files are deleted although delayed, timed or half messages in them still wait; those are counted in "
        "rmqpy_undelivered_total. Otherwise such a file stays until they have been delivered.",
        changeable=True,
    )
    force_percent: int = key(
        "diskSpaceCleanForciblyRatio",
        85,
        "Share of the disk in use from which on cleanFileForciblyEnable takes effect.",
        unit="percent",
        low=30,
        high=100,
        changeable=True,
    )
    full_percent: int = key(
        "diskSpaceWarningLevelRatio",
        90,
        "Share of the disk in use from which on sends are refused; 100 turns this limit off. With any value, sends are "
        "refused while less than 64 MiB are free. `rmqpy standalone` uses 100.",
        unit="percent",
        low=35,
        high=100,
        changeable=True,
    )

    delay_levels: str = key(
        _DELAY_LEVELS,
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "The delays that a message may ask for by number, from 1 on, in s, m, h or d; also ms, which Apache's broker "
        "does not know.",
    )
    delay_offsets_interval_ms: int = key(
        "flushDelayOffsetInterval",
        10_000,
        "How often the progress of delayed delivery is saved; delayed messages delivered since then are delivered "
        "again after a crash.",
        unit="ms",
        low=100,
    )
    has_timers: bool = key(
        "timerWheelEnable",
        True,
        "Whether messages may name a time of delivery; without it such sends are refused, and what waits goes on "
        "waiting.",
    )
    timer_precision_ms: int = _number(
        "timerPrecisionMs",
        "Width of a slot of the timer wheel. Messages are delivered at the millisecond they name; Apache's broker "
        "delivers up to a slot later.",
    )
    timer_delay_sec_max: int = _number("timerMaxDelaySec", "The longest wait that is accepted.")
    timer_roll_window_slots: int = _number(
        "timerRollWindowSlot",
        "A message that waits for longer than so many slots is stored again on the way; a window shorter than "
        "fileReservedTime keeps it from expiring.",
    )
    timer_log_file_bytes: int = _number(
        "mappedFileSizeTimerLog", "Size of one timer log file; small ones are for tests."
    )
    timer_save_interval_ms: int = key(
        "timerFlushIntervalMs",
        1_000,
        "How often the progress of timed delivery is saved; timed messages delivered since then are delivered again "
        "after a crash.",
        unit="ms",
        low=100,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (DELAY_LEVELS_MIN <= len(self.delays_ms) <= DELAY_LEVELS_MAX):
            bounds = f"from {DELAY_LEVELS_MIN} to {DELAY_LEVELS_MAX}"
            raise ConfigError(f"{_DELAY_LEVELS}: there must be {bounds} levels")
        if not self.delete_hours:
            raise ConfigError("deleteWhen: there must be an hour")
        if self.has_transient_pool and self.is_sync_mapped:
            raise ConfigError(
                "transientStorePoolEnable and syncFlushMapped exclude each other: the log is appended to a write "
                "buffer or to a memory mapping of the file"
            )
        self._check_spool()
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
    def durability(self) -> Literal["memory", "page_cache", "page_cache_spooled", "disk", "disk_mapped"]:
        """Durability of an answered message, as the native store names it."""
        if self.flush == SYNC_FLUSH:
            return "disk_mapped" if self.is_sync_mapped else "disk"
        if self.has_transient_pool:
            return "memory"
        return "page_cache_spooled" if self.log_write_path == SPOOL else "page_cache"

    @property
    def folder(self) -> str:
        """The root with `~` replaced. Raises `ConfigError` where the user has no home folder."""
        return _absolute(self.root)

    @property
    def named_folders(self) -> tuple[str | None, str | None, str | None]:
        """Folders of log, queues and index that are named; None for those below the root."""
        log, queues, index = (
            None if not path or _absolute(path) == os.path.join(self.folder, name) else _absolute(path)
            for path, name in zip((self.log_path, self.queue_path, self.index_path), FOLDERS, strict=True)
        )
        return log, queues, index

    @property
    def folders(self) -> tuple[str, str, str]:
        """Folders of log, queues and index, wherever they lie."""
        log, queues, index = (
            named or os.path.join(self.folder, name)
            for named, name in zip(self.named_folders, FOLDERS, strict=True)
        )
        return log, queues, index

    def _check_spool(self) -> None:
        if self.log_write_path != SPOOL:
            return
        if self.flush == SYNC_FLUSH or self.has_transient_pool:
            raise ConfigError(
                "commitLogWritePath=spool is for flushDiskType=ASYNC_FLUSH without transientStorePoolEnable, which "
                "have a write path of their own"
            )
        needed = _SPOOL_PARTS * (self.message_bytes_max + _RECORD_HEAD_BYTES)
        if self.spool_bytes < needed:
            raise ConfigError(
                f"commitLogSpoolBytes={self.spool_bytes}: messages of maxMessageSize={self.message_bytes_max} "
                f"need {needed}"
            )

    def _check_folders(self) -> None:
        """Each has files that the others would take for theirs."""
        if self.root == _DEFAULT_ROOT and home.find() is None:
            # Refused by `folder` where it is used: a default that is replaced later harms nothing.
            return
        if "," in self.log_path:
            raise ConfigError(
                f"storePathCommitLog={self.log_path}: the commit log lies in one folder, not in several"
            )
        # What else there is in the root, an ancestor of which is none of ours.
        taken = {name: os.path.join(self.folder, name) for name in ("config", "rmqpy")}
        for wire, folder in zip(FOLDER_KEYS, self.folders, strict=True):
            if "\n" in folder:
                raise ConfigError(f"{wire}: the name of a folder has no line feed")
            if _is_within(self.folder, folder):
                raise ConfigError(f"{wire}={folder}: the root {self.folder} is not to lie in it")
            for other, path in taken.items():
                if _is_within(folder, path) or _is_within(path, folder):
                    raise ConfigError(
                        f"{wire}={folder}: {other} is at {path}, and each needs a folder of its own"
                    )
            taken[wire] = folder


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
