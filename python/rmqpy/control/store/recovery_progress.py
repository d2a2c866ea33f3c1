"""Recovery progress: one line about a store that is being opened.

Pure; the broker asks every few seconds while a thread of its own recovers the store.
"""

from __future__ import annotations


def opening_line(phase: str, done: int, total: int, seconds: float) -> str:
    """The line after `seconds` in this phase, of whose `total` bytes `done` are read.

    >>> opening_line("scanning", 1 << 30, 4 << 30, 2.0)
    'opening the store: scanning, 25 % of 4096 MiB, 512 MiB/s, 6 s left'
    >>> opening_line("syncing", 0, 0, 2.0)
    'opening the store: syncing'
    """
    line = f"opening the store: {phase}"
    if total <= 0:
        return line
    line += f", {done * 100 // total} % of {total >> 20} MiB"
    if done <= 0 or seconds <= 0:
        return line
    left = (total - done) * seconds / done
    return f"{line}, {int(done / seconds) >> 20} MiB/s, {left:.0f} s left"
