"""Storage: the store, the tables, and the progress of delivery and consumers, in the folder of a broker.

Owns the order of recovery: the store, then the tables, then the offsets, which are limited to those in the store.
Threads: the event loop's; files are read in workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from rmqpy._native import Offsets, Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.folders import check_root
from rmqpy.control.access.audit import AUDIT_SECONDS
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.clients.filter_file import FilterFile
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.order_file import ORDERS_SECONDS, OrderFile
from rmqpy.control.groups.queues import Queues
from rmqpy.control.groups.request_modes import RequestModes
from rmqpy.control.groups.steps_back import STEPS_BACK_SECONDS, log_steps_back
from rmqpy.control.groups.table import Groups
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.registration import Registration
from rmqpy.control.schedules.table import ProgressFile, Schedules
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.store.backups import Backups
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.events import EVENTS_SECONDS, log_events
from rmqpy.control.store.recovery_progress import open_store
from rmqpy.control.store.retention import RETENTION_SECONDS, retain
from rmqpy.control.store.transaction_checks import CheckFile
from rmqpy.control.tables.electable import ElectableReplicas
from rmqpy.control.tables.full_disk import unless_full
from rmqpy.control.tiered.storage import QueuesWithTier, TieredStorage
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names

#: How often and at which interval a save checks whether the log was flushed.
FLUSH_LOOKS: Final = 40
FLUSH_LOOK_SECONDS: Final = 0.05


class BrokerStorage:
    """The data of a broker on disk."""

    def __init__(self, local: LocalBroker, registration: Registration) -> None:
        """`registration` learns of changed topics. Raises `ConfigError` for a folder that cannot be used."""
        self._local = local
        self._registration = registration
        config, clock, folder, metadata = local.config, local.clock, local.folder, local.metadata
        role, is_copy = local.role, local.is_slave
        check_root(config.store)
        self.store = Store(config.store, clock=local.hand_clock, is_replica=is_copy)
        self.topics = Topics(
            folder / "topics.json",
            metadata,
            built_in_topics(config),
            clock,
            is_copy=is_copy,
            has_lights=config.store.has_lights,
            on_change=registration.changed,
            on_remove=registration.removed,
            set_compacted=self.store.set_compacted,
            admit=local.plugins.policies.topic,
        )
        self.static_topics = StaticTopics(
            folder / "topicQueueMapping.json",
            config.name,
            metadata,
            clock,
            is_copy=is_copy,
            on_change=self._mappings_changed,
        )
        self.groups = Groups(
            folder / "subscriptionGroup.json",
            metadata,
            clock,
            is_copy=is_copy,
            has_lights=config.store.has_lights,
            has_no_master=lambda: role.is_slave and not role.has_master,
            admit=local.plugins.policies.group,
        )
        #: The replicas that must have changed topics and groups, on a master that a controller elected.
        self.electable: tuple[ElectableReplicas, ...] = ()
        if local.election is not None and not is_copy:
            self.topics.electable = ElectableReplicas(lambda: self.topics.version)
            self.groups.electable = ElectableReplicas(lambda: self.groups.version)
            self.electable = (self.topics.electable, self.groups.electable)
        self.request_modes = RequestModes(folder / "messageRequestMode.json", clock, is_copy=is_copy)
        self.schedules = Schedules(folder / "schedules.json", clock, is_copy=is_copy)
        self.schedule_progress = ProgressFile(folder / "scheduleProgress.json", clock, self._flushed)
        self.offsets = Offsets(metadata)
        self.offset_file = OffsetFile(
            folder / "consumerOffset.json", self.offsets, clock, has_lights=config.store.has_lights
        )
        self.order_file = OrderFile(folder / "consumerOrderInfo.json", self.offsets, clock)
        self.delay_file = DelayFile(folder / "delayOffset.json", clock)
        self.check_file = CheckFile(folder / "transactionChecks.json", clock)
        self.filter_file = FilterFile(folder / "consumerFilter.json", clock)
        self.backups = Backups(folder / "backups.json", clock)
        #: The progress file of timers, which the native module reads and writes.
        self.timer_file = folder / "timercheck"
        self.access = AccessRules(config.access, config.cluster, folder, clock)
        self.tier = (
            TieredStorage(
                config, self.store, folder, is_master=lambda: not role.is_slave, wall_ms=clock.wall_ms
            )
            if config.tiered.is_on
            else None
        )
        #: With the messages that only the tiered storage has.
        self.queues: Queues = self.store if self.tier is None else QueuesWithTier(self.store, self.tier)

    async def recover(
        self, progress: Callable[[str], None], undo: contextlib.AsyncExitStack, *, is_cut: bool
    ) -> None:
        """Recover everything. `progress` gets the progress of a long store recovery. `is_cut`: the end of the log was
        dropped, perhaps with decisions about transactions.

        Raises `StoreError` or `ConfigError` naming the unusable file.
        """
        # In a thread, so that the disk does not block a name server on the same loop.
        undo.push_async_callback(asyncio.to_thread, self.store.close)
        await open_store(self.store, progress)
        log_events(self.store)
        # Once more, after the last request.
        undo.callback(log_events, self.store)
        self._retain()
        self._local.set_rules()
        for table in (self.topics, self.groups, self.request_modes, self.schedules, self.schedule_progress):
            await asyncio.to_thread(table.load)
        self.store.compacted_topics_are_known()
        await asyncio.to_thread(self.static_topics.load, self.topics.table)
        await asyncio.to_thread(self.offset_file.load, self.topics.has_queue, self.store.max_offset)
        for file in (self.order_file, self.delay_file, self.check_file, self.filter_file, self.backups):
            await asyncio.to_thread(file.load)
        await self.access.load()
        if is_cut:
            await self._forget_ended_transactions()
        undo.push_async_callback(unless_full(self.offset_file.save))
        undo.push_async_callback(unless_full(self.order_file.save))

    async def start_tier(self, safe_end: Callable[[], int], undo: contextlib.AsyncExitStack) -> None:
        """Begin to copy files to the tiered storage, if there is one. Raises `StoreError`."""
        if self.tier is not None:
            undo.push_async_callback(self.tier.stop)
            await self.tier.start(safe_end)

    def _mappings_changed(self, names: list[str]) -> None:
        """Have name servers and slaves learn of mappings, with the topics' version."""
        if not self.topics.is_copy:
            self.topics.touch()
        known = (self.topics.table.get(name) for name in names)
        self._registration.changed([topic for topic in known if topic is not None])

    async def _forget_ended_transactions(self) -> None:
        """Have half messages and their marks read from the log again, from the first one."""
        for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
            if self.offsets.query(names.TRANSACTION_GROUP, topic, 0):
                self.offsets.take_over(names.TRANSACTION_GROUP, topic, 0, 0)
        await self.offset_file.save()

    def _retain(self) -> None:
        retain(self.store, self._local.settings.now.store, self._local.clock)

    def log_end(self) -> int:
        return self.store.statistics()["max_physical"]

    def durable_end(self) -> int:
        """Return the durable end of the log."""
        return self.store.statistics()["durable"]

    async def _flushed(self) -> bool:
        """Wait until the log is durable up to its present end; return whether it is."""
        end = self.log_end()
        for _ in range(FLUSH_LOOKS):
            if self.durable_end() >= end:
                return True
            await asyncio.sleep(FLUSH_LOOK_SECONDS)
        return False

    def apply(self, before: BrokerConfig) -> None:
        """Apply changed settings to the native module and the name servers."""
        self._retain()
        self._local.set_rules()
        permission = self._local.settings.now.permission
        if before.permission != permission:
            self._local.metadata.set_permission(permission)
            self.topics.touch()
            self._registration.everything_changed()

    def repeat(self, periodic: PeriodicTasks) -> None:
        """Save progress, log events, and check files for changes."""
        access = self.access
        periodic.every(self._local.config.offsets_interval_ms / 1_000, self.offset_file.save)
        periodic.every(ORDERS_SECONDS, self.order_file.save)
        periodic.every(EVENTS_SECONDS, lambda: log_events(self.store))
        periodic.every(STEPS_BACK_SECONDS, lambda: log_steps_back(self.offsets))
        periodic.every(AUDIT_SECONDS, access.log_refusals)
        if access.plain is not None:
            periodic.every(WATCH_SECONDS, access.plain.watch)
        periodic.every(RETENTION_SECONDS, self._retain)
