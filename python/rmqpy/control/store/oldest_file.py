"""Oldest file of the log: the age of its newest message, on which the remedy of a full disk depends. Any thread."""

from __future__ import annotations

import os
from typing import Final

from rmqpy._native import Store, record_stored_at_ms
from rmqpy.config.store import StoreConfig
from rmqpy.findings import OldestFile

#: Names of log files are the positions of their first bytes, in decimal digits.
_NAME_DIGITS: Final = 20


def oldest_file(config: StoreConfig, store: Store, end: int, now_ms: int) -> OldestFile | None:
    """Return the oldest file of a log that ends at `end`; `None` if its age is unknown. Reads one record."""
    try:
        names = [
            name for name in os.listdir(config.folders[0]) if name.isdecimal() and len(name) == _NAME_DIGITS
        ]
    except OSError:
        return None
    begins = sorted(map(int, names))
    written = OldestFile(
        None,
        config.reserved_hours,
        config.expire_percent,
        config.force_percent,
        config.full_percent,
        config.segment_bytes,
    )
    # The next file may be made early: a file is written until the log goes beyond it.
    if len(begins) < 2 or begins[1] >= end:
        return written
    # No message of the oldest file was stored later than the first message behind it.
    record = store.message(begins[1])
    if record is None:
        return None
    return written._replace(age_s=max(0.0, (now_ms - record_stored_at_ms(record)) / 1_000))
