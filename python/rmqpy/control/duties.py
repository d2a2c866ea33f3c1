"""Duties of a master: delivers delayed, timed and popped messages, checks open transactions, and saves progress.

Threads: the event loop's; the data plane delivers in its own threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from rmqpy._native import DueMessages, Transactions
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.transaction_checks import CHECKS_SECONDS, TransactionChecks
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.schedules.scheduler import LOOK_SECONDS as SCHEDULE_SECONDS
from rmqpy.control.schedules.scheduler import Scheduler
from rmqpy.control.schedules.table import ProgressFile
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.transaction_checks import CheckFile
from rmqpy.control.tables.full_disk import unless_full

#: Interval between checks for deleted retry topics that messages wait for.
MISSING_SECONDS: Final = 1.0


class MasterDuties:
    """The periodic work of a leading broker."""

    def __init__(
        self,
        due: DueMessages,
        transactions: Transactions,
        delay_file: DelayFile,
        check_file: CheckFile,
        checks: TransactionChecks,
        ensure_topic: Callable[[str, int], Awaitable[object]],
    ) -> None:
        """`ensure_topic` makes a group's retry or dead-letter topic with this number of queues."""
        self._due = due
        self._transactions = transactions
        self._delay_file = delay_file
        self._check_file = check_file
        self._checks = checks
        self._ensure_topic = ensure_topic
        self._scheduler: Scheduler | None = None
        self._schedule_progress: ProgressFile | None = None

    def schedule(self, scheduler: Scheduler, progress: ProgressFile) -> None:
        """Send the messages of schedules once delivery has begun."""
        self._scheduler, self._schedule_progress = scheduler, progress

    async def recover(self) -> None:
        """Find open transactions, before messages are accepted. Raises `StoreError`."""
        await asyncio.to_thread(self._transactions.recover, self._check_file.checked)
        self._check_file.follow(self._transactions)

    async def deliver(self) -> None:
        """Start delivery. Raises `StoreError`."""
        await asyncio.to_thread(self._due.begin, self._delay_file.offsets)
        self._delay_file.follow(self._due)

    def repeat(self, config: BrokerConfig, periodic: PeriodicTasks) -> None:
        """Start the periodic tasks."""
        saving = partial(asyncio.to_thread, self._transactions.save)
        periodic.every(config.offsets_interval_ms / 1_000, saving)
        periodic.every(CHECKS_SECONDS, self._checks.round)
        periodic.every(MISSING_SECONDS, self._make_missing_topics)
        periodic.every(config.offsets_interval_ms / 1_000, self._check_file.save)
        periodic.every(config.store.delay_offsets_interval_ms / 1_000, self._delay_file.save)
        periodic.every(config.store.timer_save_interval_ms / 1_000, lambda: asyncio.to_thread(self._due.save))
        if self._scheduler is not None and self._schedule_progress is not None:
            self._scheduler.start()
            periodic.every(SCHEDULE_SECONDS, self._scheduler.look)
            periodic.every(config.offsets_interval_ms / 1_000, self._schedule_progress.save)

    async def _make_missing_topics(self) -> None:
        for name in self._due.take_missing_topics():
            await self._ensure_topic(name, 1)

    async def save(self) -> None:
        """Save progress a last time, after the server has stopped and before the store has.

        Raises `StoreError`, but not for a full disk.
        """
        try:
            await unless_full(lambda: asyncio.to_thread(self._due.save))()
        finally:
            try:
                await unless_full(self._check_file.save)()
            finally:
                await unless_full(self._delay_file.save)()
        if self._schedule_progress is not None and self._scheduler is not None and self._scheduler.is_started:
            await unless_full(self._schedule_progress.save)()
