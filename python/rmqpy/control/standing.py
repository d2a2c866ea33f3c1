"""Standing of a broker: its current problems, for the log, `/readyz` and tools.

Owns what has been logged. Invariant: a lasting problem is logged once, and so is its end. Threads: the event loop's.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmqpy import findings
from rmqpy._native import Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.findings import OldestFile, Trouble
from rmqpy.protocol.topics import Permission

log = logging.getLogger(__name__)

_READ_WRITE: Final = Permission.READ | Permission.WRITE
LOOK_SECONDS: Final = 1.0
#: Checks in a row before a problem is logged; a restarting slave, for example, causes shorter ones.
LOOKS_MIN: Final = 2


class _Seen(NamedTuple):
    """A problem: the number of checks in a row, its first text, and whether it was logged."""

    looks: int
    found: str
    is_logged: bool = False


class Standing:
    """The current problems by source."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        store: Store,
        others: Callable[[], Iterable[Trouble]],
        oldest_file: Callable[[], OldestFile | None] = lambda: None,
    ) -> None:
        """`others` returns the problems of replicas and plug-ins, `oldest_file` the oldest file of the log, if its age
        is known."""
        self._oldest_file = oldest_file
        self._config = config
        self._store = store
        self._others = others
        #: By check.
        self._seen: dict[str, _Seen] = {}

    def now(self) -> list[Trouble]:
        """Return all problems, the worst first."""
        found = [*self._of_store(), *self._others()]
        return sorted(found, key=lambda each: (not each.refuses, each.level))

    @property
    def refusal(self) -> str | None:
        """The reason why messages are refused, or `None`."""
        return next((str(each.finding) for each in self.now() if each.refuses), None)

    def look(self, looks_min: int = LOOKS_MIN) -> None:
        """Log problems that have lasted for `looks_min` checks, and those that ended. The store logs its own events."""
        now = {each.check: each for each in self._others()}
        for check in self._seen.keys() - now.keys():
            before = self._seen.pop(check)
            if before.is_logged:
                log.info("no longer: %s", before.found)
        for check, each in now.items():
            before = self._seen.get(check, _Seen(0, each.finding.found))
            is_due = not before.is_logged and before.looks + 1 >= looks_min
            if is_due:
                log.warning("%s", each.finding)
            self._seen[check] = before._replace(looks=before.looks + 1, is_logged=is_due or before.is_logged)

    def _of_store(self) -> Iterable[Trouble]:
        config = self._config()
        name, failure, counters = config.name, self._store.failure, self._store.statistics()
        if count := counters.get("undelivered", 0):
            yield Trouble(f"waiting messages of {name}", "warn", findings.undelivered(count))
        if failure is not None:
            yield Trouble(f"store of {name}", "bad", findings.read_only(failure), refuses=True)
        elif counters.get("is_full", 0):
            log_folder, queue_folder, _ = config.store.folders
            folders = [log_folder, queue_folder, config.store.folder]
            usage = [(shutil.disk_usage(folder), folder) for folder in folders if os.path.isdir(folder)]
            disk, folder = min(usage, key=lambda each: each[0].free / each[0].total)
            used = 100 * (disk.total - disk.free) / disk.total
            finding = findings.no_room(name, folder, used, disk.free, self._oldest_file())
            yield Trouble(f"disk of {name}", "bad", finding, refuses=True)
        if ~config.permission & _READ_WRITE:
            yield Trouble(
                f"permission of {name}",
                "warn",
                findings.not_writable(name, config.permission),
                refuses=not config.permission & Permission.WRITE and not config.replication.is_slave,
            )
