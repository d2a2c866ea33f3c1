"""Configuration of the message store: the keys of `broker.conf` that decide what lies on the disk.

Sizes of files are part of a folder: they must equal those it was created with.
"""

from __future__ import annotations

import dataclasses
import os

from rmqpy.config.keys import Settings, key

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig(Settings):
    """Where messages are kept, in files of what size, and when they count as stored."""

    root: str = key("storePathRootDir", "~/store", "Folder of everything the broker keeps.")
    flush: str = key(
        "flushDiskType",
        ASYNC_FLUSH,
        "Whether a send is answered when the bytes are in the page cache or when they are on the disk.",
        choices=(ASYNC_FLUSH, SYNC_FLUSH),
    )
    flush_interval_ms: int = key(
        "flushIntervalCommitLog",
        50,
        "Longest time ASYNC_FLUSH leaves bytes off the disk; Apache's default is 500.",
        unit="ms",
        low=1,
        high=60_000,
    )
    segment_bytes: int = key(
        "mappedFileSizeCommitLog",
        1 << 30,
        "Size of one commit log file; small ones are for tests.",
        unit="bytes",
        low=1 << 16,
        high=1 << 31,
    )
    queue_file_bytes: int = key(
        "mappedFileSizeConsumeQueue",
        300_000 * 20,
        "Size of one consume queue file, rounded up to whole entries of 20 bytes.",
        unit="bytes",
        low=20,
        high=1 << 30,
    )
    is_indexed: bool = key("messageIndexEnable", True, "Whether messages can be found by key.")
    index_slots: int = key(
        "maxHashSlotNum", 5_000_000, "Hash slots of one index file.", unit="slots", low=1, high=1 << 28
    )
    index_entries: int = key(
        "maxIndexNum", 20_000_000, "Keys one index file holds.", unit="entries", low=2, high=1 << 28
    )
    message_bytes_max: int = key(
        "maxMessageSize", 4 << 20, "Largest body of a message.", unit="bytes", low=1, high=15 << 20
    )

    @property
    def is_sync(self) -> bool:
        """Whether an answer promises the disk."""
        return self.flush == SYNC_FLUSH

    @property
    def folder(self) -> str:
        """The root with `~` replaced."""
        return os.path.abspath(os.path.expanduser(self.root))
