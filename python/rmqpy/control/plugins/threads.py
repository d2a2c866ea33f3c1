"""Threads of plug-ins: daemons that a blocked plug-in cannot keep from ending with the process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

#: How long a stop waits for a plug-in that does not return.
STOP_SECONDS: Final = 3.0


class PluginThread:
    """One thread, and the signal to end it."""

    def __init__(self, plugin: str, role: str, run: Callable[[threading.Event], None]) -> None:
        """`run` returns soon after its event is set, unless the plug-in blocks."""
        self.stopping = threading.Event()
        self._plugin = plugin
        self._run = run
        self._thread = threading.Thread(
            target=self._guarded, name=f"plugin-{plugin}-{role}"[:40], daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run(self.stopping)
        except Exception:
            log.exception(
                "the thread of plug-in %s ended; it gets no more calls until the next start", self._plugin
            )

    async def stop(self, until: float | None = None) -> bool:
        """End the thread, but wait no longer than `until`, a time of `time.monotonic`. Returns whether it ended."""
        self.stopping.set()
        if not self._thread.is_alive():
            return True
        seconds = STOP_SECONDS if until is None else max(0.0, until - time.monotonic())
        await asyncio.to_thread(self._thread.join, seconds)
        if self._thread.is_alive():
            log.warning("plug-in %s does not return, and is left behind", self._plugin)
            return False
        return True
