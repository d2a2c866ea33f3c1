"""Masters and slaves in separate processes, which a test can kill, suspend, and restart in another role."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import free_ports
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from rmqpy.protocol.requests.topics import GetAllTopicConfig
from rmqpy.testing import SMALL
from waiting import until_async
from wire import Peer

#: Of the log; a long campaign takes larger ones, which are not full every few milliseconds.
FILE_BYTES = int(os.environ.get("RMQPY_REPLICA_FILE_BYTES", str(1 << 20)))


@dataclass
class Replica:
    """`rmqpy broker` on a folder, at the same ports in every life."""

    namesrv: str
    folder: Path
    settings: dict[str, object]
    port: int = field(default_factory=lambda: free_ports(4) + 2)
    host: str = "127.0.0.1"
    #: What comes before the command, as to run it elsewhere.
    inside: Sequence[str] = ()
    #: Where its log goes, warnings and above; otherwise errors alone, and with those of the test.
    log_file: Path | None = None
    process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        """Start it, and wait until it serves; the name server is on the loop of the test."""
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        files = {"mappedFileSizeCommitLog": FILE_BYTES, "storePathRootDir": self.folder}
        own = {
            "brokerName": "broker-a",
            "listenPort": self.port,
            "brokerIP1": self.host,
            "brokerIP2": self.host,
        }
        # Nobody waits for the other side's silence or Apache's pauses.
        soon = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 5_000}
        settings = {**SMALL, **files, **own, **soon, **self.settings}
        command = [
            *self.inside,
            sys.executable,
            "-m",
            "rmqpy",
            "broker",
            "-n",
            self.namesrv,
            "--log-level",
            "warning" if self.log_file else "error",
            "--log-format",
            "text",
        ]
        command += [f"{key}={value}" for key, value in settings.items()]
        with open(self.log_file or os.devnull, "a") as log:
            stderr = log if self.log_file else None
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "is ready" in ready, f"it did not start: {ready!r}"

    async def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            await asyncio.to_thread(self.process.wait, timeout=30)
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "it runs"
        self.process.send_signal(number)

    async def stand_still(self) -> None:
        """Stop it, until SIGCONT. Its threads go on until the one that takes the signal has had its turn."""
        self.signal(signal.SIGSTOP)
        await until_async(self._stands_still)

    def _stands_still(self) -> bool:
        assert self.process is not None
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        # The letter of the state comes behind the name, which is in brackets and may have any.
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def status(self) -> HaStatus:
        async with await Peer.connect(self.address) as peer:
            return await peer.ask(GetBrokerHaStatus())

    async def log_end(self) -> int:
        async with await Peer.connect(self.address) as peer:
            return int((await peer.ask(GetBrokerRuntimeInfo())).table["commitLogMaxOffset"])

    def log(self, end: int) -> bytes:
        files = sorted((self.folder / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files)[:end]


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        yield
    finally:
        for replica in replicas:
            await replica.end(signal.SIGKILL)


async def caught_up(master: Replica, slave: Replica) -> int:
    """Where the master's log ended when this began; the slave has got there."""
    end = await master.log_end()
    await until_async(slave.log_end, lambda reached: reached >= end)
    return end


async def has_topics(broker: Replica, *topics: str) -> None:
    """The broker knows the topics. A slave that was late when they were created copies them afterwards."""
    async with await Peer.connect(broker.address) as peer:
        await until_async(
            lambda: peer.ask(GetAllTopicConfig()),
            lambda found: set(topics) <= found.body.topic_config_table.keys(),
        )


async def in_sync(master: Replica, slaves: int = 1) -> None:
    """The master has so many slaves, and they lack nothing."""
    await until_async(
        master.status,
        lambda status: (
            sum(slave.in_sync and slave.diff == 0 for slave in status.ha_connection_info) >= slaves
        ),
    )
