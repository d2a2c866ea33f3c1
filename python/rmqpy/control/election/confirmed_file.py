"""Confirmed file: the position up to which every replica in sync had the log while this broker led.

Owns `rmqpy/confirmed` in the store. Messages before that position were acknowledged, so this broker never cuts its log
below it, whatever a later master has. Invariant: the stored position is never too large; it may be too small, because
it is written every second, and not flushed. Threads: the event loop's; the file is read and written in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

NAME: Final = "confirmed"
SAVE_SECONDS: Final = 1.0


class ConfirmedFile:
    """The confirmed position of one broker."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "rmqpy" / NAME
        self._saved = 0
        self._saved_at = 0.0
        #: The known position; 0 for a broker that never led.
        self.position = 0

    async def load(self) -> None:
        """Read the file. An unreadable one protects nothing, and is reported."""
        try:
            text = await asyncio.to_thread(self._path.read_text, "ascii")
            self.position = self._saved = int(text)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("cannot read %s, so nothing keeps the log from being cut: %s", self._path, error)

    async def note(self, position: int, now: float) -> None:
        """Take a position, and write it if the last write was long ago."""
        self.position = max(self.position, position)
        if self.position > self._saved and now >= self._saved_at + SAVE_SECONDS:
            self._saved_at = now
            await self.save()

    async def save(self) -> None:
        """Write the position. A failure is reported."""
        if self.position == self._saved:
            return
        position = self.position
        try:
            await asyncio.to_thread(self._write, str(position))
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error)
        self._saved = position

    def _write(self, text: str) -> None:
        fresh = self._path.with_suffix(".tmp")
        fresh.write_text(text, "ascii")
        fresh.replace(self._path)
