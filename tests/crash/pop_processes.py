"""Processes with workers, of which a test kills one after the other."""

import asyncio
import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import children
from crash.pop_ledger import Kill, Ledger
from crash.pop_workers import Settings, now_ms
from crash.traffic import Acknowledged, load_until

PROCESSES = 8
WORKERS = 64
QUEUES = 8
SENDERS = 16
#: Time until the last worker ends once nothing is left, beyond its wait.
DRAINED_SECONDS_MAX = 300.0


@dataclass
class WorkerProcesses:
    """Processes of workers on one topic, and the kills so far."""

    folder: Path
    settings: Settings
    chance: random.Random
    kills: list[Kill] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def serve_from(self, address: str) -> None:
        """Name the broker that the workers use from now on."""
        self.notes.mkdir(exist_ok=True)
        new = self.folder / "address.new"
        new.write_text(address)
        new.replace(self.folder / "address")

    def start(self, count: int = PROCESSES, settings: Settings | None = None) -> None:
        for _ in range(count):
            name = f"{next(self._numbers):03}"
            words = [str(self.folder / "address"), str(self.notes / name)]
            words.append(json.dumps(asdict(settings or self.settings)))
            command = [sys.executable, "-m", "crash.pop_workers", *words]
            self._processes[name] = subprocess.Popen(command, env=children.environment())

    def kill_one(self) -> None:
        """Kill one process, and start another one in its place."""
        self._kill(self.chance.choice(list(self._processes)))
        self.start(1)

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        self.kills.append(Kill(now_ms(), name))

    def kill_all(self) -> None:
        for name in list(self._processes):
            self._kill(name)

    async def round(
        self, end: Callable[[], None], address: str, topic: str, name: str, sent: Acknowledged
    ) -> None:
        """Senders and workers for a while; then a process of workers is killed, and `end` kills the broker."""
        moment = self.chance.uniform(1.0, 3.0)

        def kill_broker() -> None:
            end()
            self.kills.append(Kill(now_ms()))

        load = load_until(kill_broker, address, topic, name, moment, sent, senders=SENDERS, queues=QUEUES)
        loaded = asyncio.create_task(load)
        # The moment of death is what varies.
        await asyncio.sleep(self.chance.uniform(0.2, moment))
        await asyncio.to_thread(self.kill_one)
        await loaded

    async def drain(self) -> Ledger:
        """Replace all workers by such that end when nothing is left; the ledger of all."""
        await asyncio.to_thread(self.kill_all)
        settings = replace(
            self.settings, forgotten_percent=0, empty_ms=2 * self.settings.invisible_ms + 1_000
        )
        self.start(settings=settings)
        for process in self._processes.values():
            assert await asyncio.to_thread(process.wait, DRAINED_SECONDS_MAX) == 0
        self._processes.clear()
        return Ledger.read(self.notes, self.settings.invisible_ms, self.kills)

    @property
    def killed(self) -> str:
        brokers = sum(kill.workers is None for kill in self.kills)
        return f"{brokers} kills of brokers and {len(self.kills) - brokers} of processes of workers"
