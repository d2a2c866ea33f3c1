"""Standard error for reports of programs that have not configured logging.

Without it, messages of a failing handler would become dead letters unnoticed. Any thread.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

#: The minimum time between records; the dropped ones are counted.
STDERR_S: Final = 1.0


class Stderr(logging.Handler):
    """Writes records that no other handler gets, at most one each `STDERR_S`."""

    def __init__(self, log: logging.Logger) -> None:
        """`log`: the logger it is added to."""
        super().__init__()
        self._log = log
        self._next_at = 0.0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        stderr = logging.lastResort
        if stderr is None or self._is_heard():
            return
        if monotonic() < self._next_at:
            self._left_out += 1
            return
        self._next_at = monotonic() + STDERR_S
        if self._left_out:
            text = f"{self._left_out} more reports of {self._log.name} were left out; configure logging to see all"
            self._left_out = 0
            stderr.handle(
                self._log.makeRecord(self._log.name, record.levelno, record.pathname, 0, text, (), None)
            )
        stderr.handle(record)

    def _is_heard(self) -> bool:
        """True if a configured handler gets these records."""
        logger: logging.Logger | None = self._log
        while logger is not None:
            if any(not isinstance(one, logging.NullHandler | Stderr) for one in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False
