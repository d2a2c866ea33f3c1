"""Duties: what a master does by itself and a slave leaves to it. Delayed and timed messages go where they were meant
to, producers are asked about open transactions, and how far all of this has got is saved.

Threads: the event loop's; the data plane has threads of its own for the delivery.
"""

from __future__ import annotations

import asyncio
from functools import partial

from rmqpy._native import DueMessages, Transactions
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.transaction_checks import CHECKS_SECONDS, TransactionChecks
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.transaction_checks import CheckFile
from rmqpy.control.tables.full_disk import unless_full


class MasterDuties:
    """What begins when a broker begins to lead."""

    def __init__(
        self,
        due: DueMessages,
        transactions: Transactions,
        delay_file: DelayFile,
        check_file: CheckFile,
        checks: TransactionChecks,
    ) -> None:
        self._due = due
        self._transactions = transactions
        self._delay_file = delay_file
        self._check_file = check_file
        self._checks = checks

    async def recover(self) -> None:
        """Find what is open. Before messages are taken. Raises `StoreError`."""
        await asyncio.to_thread(self._transactions.recover, self._check_file.checked)
        self._check_file.follow(self._transactions)

    async def deliver(self) -> None:
        """Begin to deliver. Raises `StoreError`."""
        await asyncio.to_thread(self._due.begin, self._delay_file.offsets)
        self._delay_file.follow(self._due)

    def repeat(self, config: BrokerConfig, periodic: PeriodicTasks) -> None:
        """Begin what comes round again."""
        saving = partial(asyncio.to_thread, self._transactions.save)
        periodic.every(config.offsets_interval_ms / 1_000, saving)
        periodic.every(CHECKS_SECONDS, self._checks.round)
        periodic.every(config.offsets_interval_ms / 1_000, self._check_file.save)
        periodic.every(config.store.delay_offsets_interval_ms / 1_000, self._delay_file.save)
        periodic.every(config.store.timer_save_interval_ms / 1_000, lambda: asyncio.to_thread(self._due.save))

    async def save(self) -> None:
        """Save once more: when the server has stopped, and the store has not.

        Raises `StoreError`, but not for a full disk.
        """
        try:
            await unless_full(lambda: asyncio.to_thread(self._due.save))()
        finally:
            try:
                await unless_full(self._check_file.save)()
            finally:
                await unless_full(self._delay_file.save)()
