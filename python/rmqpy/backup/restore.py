"""Restore: verifies a backup, and makes a data folder of it, on request with the log cut at a time.

Invariant: the backup is only read; a folder that is in use is refused; the store appears under its name after all of it
is on disk, so an interrupted restore leaves nothing that a broker would start with. Threads: the caller's; one event
loop opens the cut store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from rmqpy._native import StoppedStore
from rmqpy.backup import contents
from rmqpy.backup import manifest as manifests
from rmqpy.backup.manifest import Manifest, store_of
from rmqpy.backup.tables import Tables, copy_config
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.folders import STORE
from rmqpy.control.store.cut import cut_log
from rmqpy.control.store.timer_progress import delivered_ms, read_progress, write_progress
from rmqpy.control.topics.existing import existing_topics
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.protocol import names

T = TypeVar("T")

#: Takes the phase, the bytes done and the total.
Progress = Callable[[str, int, int], None]


class Runner(Protocol):
    """Runs long work on a store, and shows its progress."""

    def __call__(self, store: StoppedStore, work: Callable[[], T], /) -> T: ...


def unwatched(store: StoppedStore, work: Callable[[], T], /) -> T:
    """Run the work and show nothing."""
    return work()


#: The name of the store until it is complete.
_PARTIAL: Final = "restoring"
_NEVER_MS: Final = 1 << 62
#: Sentences that an error quotes.
_QUOTED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification."""

    manifest: Manifest
    #: A sentence for each file that differs from the manifest.
    damage: list[str]
    #: The report of `StoppedStore.verify`; `None` if files differ.
    report: Mapping[str, Any] | None

    @property
    def is_sound(self) -> bool:
        return not self.damage and self.report is not None and not self.report["damage"]


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. Positions are bytes of the log."""

    manifest: Manifest
    #: The end of the restored log, and the bytes that were cut off.
    log_end: int
    cut: int


def complete(backup: Path) -> Manifest:
    """Return the manifest of a complete backup. Raises `ConfigError` for another folder."""
    found = manifests.load(backup)
    if not found.is_complete:
        raise ConfigError(
            f"{backup} is incomplete: its last run did not end",
            hint="run rmqpy backup again to complete it, or restore what it has with rmqpy restore --incomplete",
        )
    return found


def verify(backup: Path, show: Progress, watch: Runner = unwatched) -> Verified:
    """Compare the files with the manifest, then the store with its log.

    Raises `ConfigError` if the folder is not a complete backup, and `OSError`.
    """
    found = complete(backup)
    damage = contents.damage(backup, found, partial(show, "checksums"))
    if damage:
        return Verified(found, damage, None)
    store = StoppedStore(_config(store_of(backup), found).store)
    try:
        topics = existing_topics(store_of(backup))
        return Verified(found, [], watch(store, lambda: store.verify(topics)))
    finally:
        store.release()


def restore(
    backup: Path,
    folder: Path,
    show: Progress,
    *,
    until_ms: int | None = None,
    allows_incomplete: bool = False,
    watch: Runner = unwatched,
    note: Callable[[str], None] = lambda line: None,
) -> Restored:
    """Restore a backup into a new or empty folder, up to messages stored at `until_ms`, a time since the epoch.

    `allows_incomplete` restores the log of a backup whose last run did not end, without checksums. `note` gets the
    progress of a long recovery. Raises `ConfigError` for a folder in use, and `RocketMQError` if a file is damaged.
    """
    found = manifests.load(backup) if allows_incomplete else complete(backup)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name an empty folder, or a new one")
    if folder.is_dir() and (inside := next(folder.iterdir(), None)) is not None:
        left = inside.name == _PARTIAL
        hint = (
            "remove it: an earlier restore was interrupted" if left else "name an empty folder, or a new one"
        )
        raise ConfigError(f"{folder} is not empty: it contains {inside.name}", hint=hint)
    partial_root = folder / _PARTIAL
    folder.mkdir(parents=True, exist_ok=True)
    partial_root.mkdir(mode=0o700)
    with manifests.locked(backup):
        _copy(backup, found, partial_root, show)
    config = _config(partial_root, found)
    end, cut = found.log_end, 0
    if until_ms is not None or not found.is_complete:
        end, cut = _recover(config, until_ms, watch, note)
    partial_root.rename(folder / STORE)
    contents.flush_folder(folder)
    return Restored(found, end, cut)


def _copy(backup: Path, found: Manifest, target: Path, show: Progress) -> None:
    if found.is_complete:
        listed: list[tuple[str, str | None]] = [
            (entry.path, entry.sha256) for entry in found.files if entry.path.startswith(f"{STORE}/")
        ]
        if missing := [name for name, _ in listed if not (backup / name).is_file()]:
            raise RocketMQError(f"the backup is damaged: {missing[0]} is missing", hint="use another backup")
    else:
        paths = (path.relative_to(backup).as_posix() for path in contents.listed(backup))
        listed = [(name, None) for name in paths if name.startswith(f"{STORE}/")]
    if damage := contents.copied(backup, listed, target, partial(show, "copy")):
        quoted = "; ".join(damage[:_QUOTED_MAX])
        raise RocketMQError(
            f"the backup is damaged: {quoted}", hint=f"use another backup, and remove {target}"
        )


def _config(root: Path, found: Manifest) -> BrokerConfig:
    return copy_config(root, found.broker, found.cluster, found.settings)


def _recover(
    config: BrokerConfig, until_ms: int | None, watch: Runner, note: Callable[[str], None]
) -> tuple[int, int]:
    """Cut the log, and bring queues, offsets and progress in line with it. Returns the end of the log and the bytes cut
    off."""
    store = StoppedStore(config.store, exclusive=True)
    try:
        store.drain()
        later_ms = _NEVER_MS if until_ms is None else until_ms + 1
        at, end = watch(store, lambda: store.end_before(later_ms))
    finally:
        store.release()
    if at < end:
        cut_log(config.store, at)
    asyncio.run(_settle(config, until_ms if at < end else None, note))
    return at, end - at


async def _settle(config: BrokerConfig, until_ms: int | None, note: Callable[[str], None]) -> None:
    """Open the store once, which cuts queues and offsets, and return progress to `until_ms` if the log was cut there:
    the log no longer has what was delivered later."""
    tables = Tables(config)
    async with contextlib.AsyncExitStack() as undo:
        await tables.open(note, undo)
        if until_ms is not None:
            for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
                if tables.offsets.query(names.TRANSACTION_GROUP, topic, 0):
                    tables.offsets.take_over(names.TRANSACTION_GROUP, topic, 0, 0)
            await tables.delay_file.end(_delays(config, tables, until_ms))
            await asyncio.to_thread(_return_timers, tables, until_ms)
            await _return_schedules(tables, until_ms)
        await tables.save()


def _delays(config: BrokerConfig, tables: Tables, until_ms: int) -> dict[int, int]:
    """Return the offset of each delay level before the first message that was due after `until_ms`."""
    found = {}
    for level, offset in tables.delay_file.offsets.items():
        if level <= len(config.store.delays_ms):
            since_ms = until_ms - config.store.delays_ms[level - 1]
            due = tables.store.offset_by_time(names.SCHEDULE_TOPIC, level - 1, since_ms)
            found[level] = min(offset, due)
    return found


def _return_timers(tables: Tables, until_ms: int) -> None:
    before = read_progress(tables.timer_file)
    if delivered_ms(before) > until_ms:
        write_progress(tables.timer_file, until_ms.to_bytes(8, "big", signed=True) + before[8:])


async def _return_schedules(tables: Tables, until_ms: int) -> None:
    """Take occurrences after `until_ms` for uncertain: the index has them if the log still does."""
    known = tables.schedule_progress.armed_ms
    await tables.schedule_progress.copy({name: min(at, until_ms) for name, at in known.items()})
