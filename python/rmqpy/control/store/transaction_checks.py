"""Checks of transactions on disk: how often producers were asked about open half messages and answered, in
`transactionChecks.json`.

Owns the file, which the original does not have: it counts in the half message, and stores it again for each check. The
counts themselves belong to the data plane. Written every few seconds where they moved, and at stop: after a crash
producers are asked about a half at most so much more often. Threads: the event loop's; the data plane is asked and the
file written in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rmqpy._native import Transactions
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion


@record
class CheckedHalves:
    """Half messages one behind the other, from one position of the log to another, and the checks of each."""

    first: int
    last: int
    checks: int
    #: How many of the checks were answered; files of earlier releases say nothing of it.
    answers: int = 0


@record
class CheckContent:
    """The content of the file, in the order of the log."""

    data_version: DataVersion = DataVersion()
    checked: list[CheckedHalves]


class CheckFile:
    """The file, and the counts it follows."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = TableFile(path, CheckContent, self._snapshot, clock)
        self._checked: list[tuple[int, int, int, int]] = []
        self._saved = self._checked
        self._read: Callable[[], list[tuple[int, int, int, int]]] = lambda: self._checked

    @property
    def checked(self) -> list[tuple[int, int, int, int]]:
        """The counts in the file, as `Transactions.recover` takes them."""
        return self._saved

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        found = self._file.load()
        if found is not None:
            self._checked = self._saved = sorted(
                (one.first, one.last, min(one.checks, _CHECKS_MAX), min(max(one.answers, 0), _CHECKS_MAX))
                for one in found.checked
                if 0 <= one.first <= one.last <= _POSITION_MAX and one.checks > 0
            )

    def follow(self, transactions: Transactions) -> None:
        """Save the counts of these from now on."""
        self._read = transactions.checked

    async def save(self) -> None:
        """Write the file if somebody was asked, or has decided, since the last time. Raises `StoreError`."""
        checked = await asyncio.to_thread(self._read)
        if checked != self._saved:
            self._checked = checked
            await self._file.save()
            self._saved = checked

    def _snapshot(self) -> Callable[[DataVersion], CheckContent]:
        checked = self._checked
        return lambda version: CheckContent(
            data_version=version,
            checked=[
                CheckedHalves(first=first, last=last, checks=checks, answers=answers)
                for first, last, checks, answers in checked
            ],
        )


#: Of what the data plane takes; a file may say anything.
_POSITION_MAX = (1 << 63) - 1
_CHECKS_MAX = (1 << 31) - 1
