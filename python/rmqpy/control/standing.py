"""Standing of a broker: what is wrong with it now. Its log says when that begins and ends, `/readyz` answers with what
refuses messages, and tools are told all of it.

Owns what has been logged. Invariant: what lasts is logged once. Threads: the event loop's.
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
from rmqpy.findings import Trouble

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
#: What is over sooner, as while a slave is started again, is not logged.
LOOKS_MIN: Final = 2


class _Seen(NamedTuple):
    """A trouble: how often it was seen in a row, its words the first time, and whether they are in the log."""

    looks: int
    found: str
    is_logged: bool = False


class Standing:
    """What is wrong, by source."""

    def __init__(self, config: BrokerConfig, store: Store, replicas: Callable[[], Iterable[Trouble]]) -> None:
        self._config = config
        self._store = store
        self._replicas = replicas
        #: By check.
        self._seen: dict[str, _Seen] = {}

    def now(self) -> list[Trouble]:
        """All of it, the worst first."""
        found = [*self._of_store(), *self._replicas()]
        return sorted(found, key=lambda each: (not each.refuses, each.level))

    @property
    def refusal(self) -> str | None:
        """Why no messages are taken; None while they are."""
        return next((str(each.finding) for each in self.now() if each.refuses), None)

    def look(self, looks_min: int = LOOKS_MIN) -> None:
        """Log what was seen so often in a row, and what is over. The store logs its own events."""
        now = {each.check: each for each in self._replicas()}
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
        name, failure, counters = self._config.name, self._store.failure, self._store.statistics()
        if count := counters.get("undelivered", 0):
            yield Trouble(f"waiting messages of {name}", "warn", findings.undelivered(count))
        if failure is not None:
            yield Trouble(f"store of {name}", "bad", findings.read_only(failure), refuses=True)
        elif counters.get("is_full", 0):
            log_folder, queue_folder, _ = self._config.store.folders
            folders = [log_folder, queue_folder, self._config.store.folder]
            usage = [(shutil.disk_usage(folder), folder) for folder in folders if os.path.isdir(folder)]
            disk, folder = min(usage, key=lambda each: each[0].free / each[0].total)
            used = 100 * (disk.total - disk.free) / disk.total
            yield Trouble(
                f"disk of {name}", "bad", findings.no_room(name, folder, used, disk.free), refuses=True
            )
