"""Checks of transactions on disk: the number of answered checks of each open half message, in
`transactionChecks.json`.

Owns the file, which Apache's broker does not have: it counts in the half message, and stores that again for each check.
The data plane owns the counts. Written every few seconds after changes, and at the stop: a crash adds at most the
checks in between. Threads: the event loop's; a worker queries the data plane and writes the file.
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
    """Consecutive half messages with the same number of checks, by log position."""

    first: int
    last: int
    checks: int
    #: The number of answered checks; missing in files of earlier releases.
    answers: int = 0


@record
class CheckContent:
    """The content of the file, in the order of the log."""

    data_version: DataVersion = DataVersion()
    checked: list[CheckedHalves]


class CheckFile:
    """The file, and the counts that it follows."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = TableFile(path, CheckContent, self._snapshot, clock)
        self._checked: list[tuple[int, int, int, int]] = []
        self._saved = self._checked
        self._read: Callable[[], list[tuple[int, int, int, int]]] = lambda: self._checked

    @property
    def checked(self) -> list[tuple[int, int, int, int]]:
        """The counts in the file, for `Transactions.recover`."""
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
        """Save the counts of these transactions from now on."""
        self._read = transactions.checked

    async def save(self) -> None:
        """Write the file if there were checks or decisions since the last write. Raises `StoreError`."""
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


#: The data plane's maximum, which a file may exceed.
_POSITION_MAX = (1 << 63) - 1
_CHECKS_MAX = (1 << 31) - 1
