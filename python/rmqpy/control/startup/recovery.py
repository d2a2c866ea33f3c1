"""Recovery: everything that was on the disk, as far as it survived.

Owns the order in which it is read: the store first, then the tables, then the offsets, which are cut to what is there.
Threads: the event loop's; files are read in workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqpy._native import Metadata, Offsets, Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.folders import check_root
from rmqpy.control.access.rules import AccessRules
from rmqpy.control.clients.filter_file import FilterFile
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.table import Groups
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.startup.context import StartContext
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.events import log_events
from rmqpy.control.store.recovery_progress import open_store
from rmqpy.control.store.retention import retain
from rmqpy.control.store.transaction_checks import CheckFile
from rmqpy.control.tables.full_disk import unless_full
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.static_topics import warn_of_static_topics
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names


class Recovered(NamedTuple):
    """The parts that recovery has filled, on which the rest is built."""

    store: Store
    metadata: Metadata
    offsets: Offsets
    topics: Topics
    groups: Groups
    role: BrokerRole
    offset_file: OffsetFile
    delay_file: DelayFile
    check_file: CheckFile
    filter_file: FilterFile
    #: Progress of the timers, which the native half reads and writes.
    timer_file: Path
    access: AccessRules

    def log_end(self) -> int:
        """The end of the log."""
        return self.store.statistics()["max_physical"]

    def durable_end(self) -> int:
        """The same, as far as it is on the disk."""
        return self.store.statistics()["durable"]


async def recover(
    context: StartContext, progress: Callable[[str], None], *, is_cut: bool = False
) -> Recovered:
    """Read it. `progress` is called with that of a recovery of the store that takes long. With `is_cut` the end of the
    log was given up, in which decisions about transactions may have been.

    Raises `StoreError` or `ConfigError` naming the file that cannot be used.
    """
    config, clock, folder = context.config, context.clock, context.folder
    store = await _recover_store(context, progress)
    metadata = Metadata(config, context.addresses.numeric())
    set_rules(metadata, config)
    offsets = Offsets(metadata)
    topics = Topics(folder / "topics.json", metadata, built_in_topics(config), clock)
    groups = Groups(folder / "subscriptionGroup.json", metadata, clock)
    topics.is_copy = groups.is_copy = context.is_slave
    recovered = Recovered(
        store=store,
        metadata=metadata,
        offsets=offsets,
        topics=topics,
        groups=groups,
        role=BrokerRole(config.name, is_slave=context.is_slave, metadata=metadata, master=context.master),
        offset_file=OffsetFile(folder / "consumerOffset.json", offsets, clock),
        delay_file=DelayFile(folder / "delayOffset.json", clock),
        check_file=CheckFile(folder / "transactionChecks.json", clock),
        filter_file=FilterFile(folder / "consumerFilter.json", clock),
        timer_file=folder / "timercheck",
        access=AccessRules(config.access, config.cluster, folder, clock),
    )
    role = recovered.role
    groups.has_no_master = lambda: role.is_slave and not role.has_master
    await _read_files(recovered, folder)
    if is_cut:
        await _forget_ended_transactions(recovered)
    context.undo.push_async_callback(unless_full(recovered.offset_file.save))
    return recovered


async def _recover_store(context: StartContext, progress: Callable[[str], None]) -> Store:
    config = context.config
    check_root(config.store)
    store = Store(config.store, clock=context.hand_clock, is_replica=context.is_slave)
    # In a thread: the disk must not hold up a name server on the same loop.
    context.undo.push_async_callback(asyncio.to_thread, store.close)
    await open_store(store, progress)
    log_events(store)
    # Once more when nothing is served any longer.
    context.undo.callback(log_events, store)
    retain(store, config.store, context.clock)
    return store


async def _read_files(recovered: Recovered, folder: Path) -> None:
    await asyncio.to_thread(recovered.topics.load)
    await asyncio.to_thread(recovered.groups.load)
    await asyncio.to_thread(
        recovered.offset_file.load, recovered.topics.has_queue, recovered.store.max_offset
    )
    await asyncio.to_thread(recovered.delay_file.load)
    await asyncio.to_thread(recovered.check_file.load)
    await asyncio.to_thread(recovered.filter_file.load)
    await asyncio.to_thread(warn_of_static_topics, folder)
    await recovered.access.load()


async def _forget_ended_transactions(recovered: Recovered) -> None:
    """Let halves and marks be read from the log, from the first of them on."""
    offsets = recovered.offsets
    for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
        if offsets.query(names.TRANSACTION_GROUP, topic, 0):
            offsets.take_over(names.TRANSACTION_GROUP, topic, 0, 0)
    await recovered.offset_file.save()


def set_rules(metadata: Metadata, config: BrokerConfig) -> None:
    """Tell the data plane what may be sent, as it is configured now."""
    metadata.set_transactions(config.rejects_transactions, config.transaction_timeout_ms)
    metadata.set_message_type_check(config.checks_message_types)
