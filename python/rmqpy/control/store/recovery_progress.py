"""Recovery progress: one log line every few seconds while another thread opens the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmqpy._native import Store

_INTERVAL_SECONDS: Final = 2.0


async def open_store(store: Store, report: Callable[[str], None]) -> None:
    """Lock and recover the store in a thread, and report the progress of a long recovery."""
    loop = asyncio.get_running_loop()
    opened = loop.run_in_executor(None, store.open)
    known, since = "", loop.time()
    while not (await asyncio.wait({opened}, timeout=_INTERVAL_SECONDS))[0]:
        phase, done, total = store.progress()
        if phase != known:
            # The phase began at an unknown time within the pause.
            known, since = phase, loop.time() - _INTERVAL_SECONDS
        report(opening_line(phase, done, total, loop.time() - since))
    await opened


def opening_line(phase: str, done: int, total: int, seconds: float) -> str:
    """Return the line after `seconds` in this phase, with `done` of `total` bytes read.

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
