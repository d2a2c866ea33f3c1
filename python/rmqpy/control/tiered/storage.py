"""Tiered storage of one broker: its parts, and the queues of the broker with what it holds of them.

Without the setting there is none: no thread, no file, no metric. Calls may wait for the storage; any thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rmqpy import findings
from rmqpy._native import Store
from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tiered.blocks import Blocks
from rmqpy.control.tiered.catalog import Catalog
from rmqpy.control.tiered.claim import Claim
from rmqpy.control.tiered.copying import Copies
from rmqpy.control.tiered.described import TieredFile
from rmqpy.control.tiered.objects import Objects
from rmqpy.control.tiered.reading import TieredReader
from rmqpy.errors import StoreError
from rmqpy.findings import Trouble
from rmqpy.protocol import tiered_report

log = logging.getLogger(__name__)

#: The file with deleted topics of which the storage may not know yet.
DELETED_TOPICS: Final = "tieredDeletedTopics.json"


class TieredStorage:
    """The tiered storage of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        folder: Path,
        *,
        is_master: Callable[[], bool],
        wall_ms: Callable[[], int],
    ) -> None:
        """`folder` is that of the tables. Raises `ConfigError` if the storage cannot be used."""
        self._name = config.name
        self._store = store
        self._path = folder / DELETED_TOPICS
        objects = Objects(config.tiered, f"{config.cluster}/{config.name}")
        self.place = objects.place
        self._catalog = Catalog(objects, Claim(objects, folder))
        self.blocks = Blocks(objects, config.tiered.cache_bytes)
        self.reader = TieredReader(self._catalog, self.blocks)
        self.copies = Copies(
            config.tiered,
            self._catalog,
            objects,
            store,
            Path(config.store.folders[0]),
            is_master=is_master,
            wall_ms=wall_ms,
            dropped=self._dropped,
            each_second=self.blocks.cool_down,
        )

    @property
    def files(self) -> Sequence[TieredFile]:
        """The files it has, oldest first."""
        return self._catalog.files

    async def start(self, safe_end: Callable[[], int]) -> None:
        """Begin to copy; `safe_end` returns the position before which the log is durable and confirmed. Raises
        `StoreError` for a damaged list of deleted topics."""
        await asyncio.to_thread(self._load_deleted)
        self.copies.start(safe_end)

    async def stop(self) -> None:
        """End the copies and reads."""
        await asyncio.to_thread(self.copies.stop)
        self.blocks.close()

    # ---- deleted topics ----

    def forget(self, topics: Iterable[str]) -> None:
        """Hide the messages of deleted topics, durably. Blocks; raises `StoreError`."""
        self._catalog.forget(topics, self._store.statistics()["max_physical"])
        try:
            files.save(self._path, json.dumps(self._catalog.deleted()))
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error}", path=str(self._path)) from error
        self.copies.save_deleted()

    def _load_deleted(self) -> None:
        try:
            self._catalog.restore_deleted(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self._path} is damaged: {error}",
                path=str(self._path),
                hint="delete it, if no topic was deleted while the tiered storage was away",
            ) from error
        self.copies.save_deleted()

    def _dropped(self, file: TieredFile) -> None:
        for name in (file.log, file.units):
            self.blocks.forget(name)

    # ---- reads ----

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the offset of the oldest message of a queue; `None` if it has none of them."""
        return self._catalog.min_offset(topic, queue_id)

    # ---- reports ----

    def report(self) -> dict[str, str]:
        """Return what tools show of it."""
        files = self.files
        return tiered_report.write(
            self.place, len(files), sum(file.size for file in files), self.copies.behind_bytes()
        )

    def troubles(self) -> Iterator[Trouble]:
        """Yield the current problem."""
        if (fault := self.copies.fault) is not None:
            finding = findings.tiered_storage(fault, self.copies.behind_bytes())
            yield Trouble(f"tiered storage of {self._name}", "warn", finding)


class QueuesWithTier:
    """The queues of a broker, with the messages that only the tiered storage has."""

    def __init__(self, store: Store, tier: TieredStorage) -> None:
        self._store = store
        self._tier = tier
        self.max_offset = store.max_offset
        self.store_time = store.store_time

    def min_offset(self, topic: str, queue_id: int) -> int:
        """See `Store.min_offset`."""
        local, older = self._store.min_offset(topic, queue_id), self._tier.min_offset(topic, queue_id)
        return local if older is None else min(local, older)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """See `Store.offset_by_time`."""
        earliest_ms = self._store.earliest_store_time(topic, queue_id)
        if 0 <= earliest_ms <= timestamp_ms:
            return self._store.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)
        # The last one at or before a time is the one before the first one after it.
        found = self._tier.reader.offset_by_time(topic, queue_id, timestamp_ms + upper)
        if found is None:
            found = self._store.min_offset(topic, queue_id)
        return max(self.min_offset(topic, queue_id), found - 1) if upper else found

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """See `Store.earliest_store_time`."""
        older = self._tier.reader.earliest_time(topic, queue_id)
        return self._store.earliest_store_time(topic, queue_id) if older is None else older
