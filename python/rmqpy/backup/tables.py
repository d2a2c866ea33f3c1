"""Tables of a copied broker: its store and the files that follow a master, without any server.

Owns the order of opening: the store, then the tables, then the offsets, which are limited to the store. Threads: the
event loop's; files are read in workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rmqpy._native import Metadata, Offsets, Store
from rmqpy.clock import SystemClock
from rmqpy.config import broker as broker_config
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.order_file import OrderFile
from rmqpy.control.groups.request_modes import RequestModes
from rmqpy.control.groups.table import Groups
from rmqpy.control.schedules.table import ProgressFile, Schedules
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.recovery_progress import open_store
from rmqpy.control.store.retention import retain
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics

#: Settings of the broker that its files depend on.
COPIED_SETTINGS: Final[tuple[str, ...]] = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeTimerLog",
    "messageIndexEnable",
    "maxHashSlotNum",
    "maxIndexNum",
    "maxMessageSize",
    "commitLogRingBytes",
    "messageDelayLevel",
    "timerPrecisionMs",
    "timerMaxDelaySec",
    "timerRollWindowSlot",
)
#: A copy keeps everything, and reports to its master often.
_COPY: Final = {
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "fileReservedTime": "1000000",
    "cleanFileForciblyEnable": "false",
    "diskSpaceWarningLevelRatio": "100",
    "flushIntervalCommitLog": "100",
    "haSendHeartbeatInterval": "1000",
}
_HOST: Final = "127.0.0.1:10911"


def copy_config(root: Path, name: str, cluster: str, settings: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration of a copy of this broker in a folder. Raises `ConfigError`."""
    given = {**settings, **_COPY, "brokerName": name, "brokerClusterName": cluster}
    return broker_config.load(None, {**given, "storePathRootDir": str(root.absolute())}).config


class Tables:
    """The data of a copied broker."""

    def __init__(self, config: BrokerConfig) -> None:
        clock = SystemClock()
        folder = Path(config.store.folder) / "config"
        self._config, self._clock = config, clock
        metadata = Metadata(config, _HOST)
        has_lights = config.store.has_lights
        self.store = Store(config.store, is_replica=True)
        self.topics = Topics(
            folder / "topics.json",
            metadata,
            built_in_topics(config),
            clock,
            is_copy=True,
            has_lights=has_lights,
        )
        self.static_topics = StaticTopics(
            folder / "topicQueueMapping.json", config.name, metadata, clock, is_copy=True
        )
        self.groups = Groups(
            folder / "subscriptionGroup.json", metadata, clock, is_copy=True, has_lights=has_lights
        )
        self.request_modes = RequestModes(folder / "messageRequestMode.json", clock, is_copy=True)
        self.schedules = Schedules(folder / "schedules.json", clock, is_copy=True)
        self.schedule_progress = ProgressFile(folder / "scheduleProgress.json", clock, self._is_flushed)
        self.offsets = Offsets(metadata)
        self.offset_file = OffsetFile(
            folder / "consumerOffset.json", self.offsets, clock, has_lights=has_lights
        )
        self.order_file = OrderFile(folder / "consumerOrderInfo.json", self.offsets, clock)
        self.delay_file = DelayFile(folder / "delayOffset.json", clock)
        self.timer_file = folder / "timercheck"

    async def open(self, progress: Callable[[str], None], undo: contextlib.AsyncExitStack) -> None:
        """Recover the store and read the tables; `undo` closes the store. Raises `StoreError` or `ConfigError` naming
        the unusable file."""
        undo.push_async_callback(asyncio.to_thread, self.store.close)
        await open_store(self.store, progress)
        retain(self.store, self._config.store, self._clock)
        for table in (self.topics, self.groups, self.request_modes, self.schedules, self.schedule_progress):
            await asyncio.to_thread(table.load)
        await asyncio.to_thread(self.static_topics.load, self.topics.table)
        await asyncio.to_thread(self.offset_file.load, self.topics.has_queue, self.store.max_offset)
        for file in (self.order_file, self.delay_file):
            await asyncio.to_thread(file.load)

    async def save(self) -> None:
        """Write the offsets. The other tables are written as they change. Raises `StoreError`."""
        await self.offset_file.save()
        await self.order_file.save()

    async def delete(self, topics: Sequence[str]) -> None:
        """Delete the offsets and queues of topics that the master no longer has. Raises `StoreError`."""
        for name in topics:
            self.offsets.remove_topic(name)
        if topics:
            await self.offset_file.save()
        for name in topics:
            await asyncio.to_thread(self.store.delete_topic, name)

    def log_range(self) -> tuple[int, int]:
        """Return begin and end of the log."""
        found = self.store.statistics()
        return found["min_physical"], found["max_physical"]

    def durable_end(self) -> int:
        """Return the durable end of the log."""
        return self.store.statistics()["durable"]

    async def _is_flushed(self) -> bool:
        return self.durable_end() >= self.log_range()[1]
