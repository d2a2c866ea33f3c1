"""A master and its slave as processes of their own: whatever dies, the slave's log is its master's, byte for byte."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rmqpy
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.control.addresses import free_port
from rmqpy.errors import RocketMQError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.testing import SMALL
from wire import TIMEOUT_S, Peer

FILE_BYTES = 1 << 20
ROUND = 6_700


@dataclass
class Replica:
    """`rmqpy broker` on a folder, at the same ports in every life."""

    namesrv: str
    folder: Path
    settings: dict[str, object]
    port: int = field(default_factory=lambda: free_port("127.0.0.1"))
    process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        """Start it, and wait until it serves; the name server is on the loop of the test."""
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        files = {"mappedFileSizeCommitLog": FILE_BYTES, "storePathRootDir": self.folder}
        own = {"brokerName": "broker-a", "listenPort": self.port, "brokerIP1": "127.0.0.1"}
        # Nobody waits for the other side's silence or the original's pauses.
        soon = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 5_000}
        settings = {**SMALL, **files, **own, **soon, **self.settings}
        command = [sys.executable, "-m", "rmqpy", "broker", "-n", self.namesrv, "--log-level", "error"]
        command += [f"{key}={value}" for key, value in settings.items()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "is ready" in ready, f"it did not start: {ready!r}"

    async def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            await asyncio.to_thread(self.process.wait, timeout=30)
            self.process = None

    async def log_end(self) -> int:
        async with await Peer.connect(f"127.0.0.1:{self.port}") as peer:
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


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as server:
        yield server.address


@pytest.fixture
def pair(tmp_path: Path, namesrv: str) -> tuple[Replica, Replica]:
    master = Replica(namesrv, tmp_path / "master", {})
    slave = Replica(namesrv, tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1})
    return master, slave


def send_mixed(namesrv: str, topics: str, count: int) -> None:
    """Messages of every kind and many sizes, with topics that are made by the first of theirs."""
    numbers = random.Random(topics)
    with rmqpy.Producer(namesrv, group="mixed") as producer:
        pending = []
        for number in range(count):
            topic = f"{topics}-{number * 8 // count}"
            body = bytes([number % 251]) * (1 + int(numbers.expovariate(1 / 300)))
            match number % 100:
                case 0:
                    pending.append(producer.submit(topic, body, delay_level=1))
                case 1:
                    pending.append(producer.submit(topic, body, deliver_after=0.5))
                case 2 if number % 1000 == 2:
                    with producer.transaction(topic, body):
                        pass
                case 3 if number % 1000 == 3:
                    pending.append(producer.submit(topic, body * 500))
                case kind:
                    pending.append(producer.submit(topic, body, tag=f"t{kind % 3}", keys=[f"k{number}"]))
        for future in pending:
            future.result(timeout=TIMEOUT_S)


async def caught_up(master: Replica, slave: Replica) -> int:
    """Where the master's log ended when this began; the slave has got there."""
    end = await master.log_end()
    async with asyncio.timeout(TIMEOUT_S):
        while await slave.log_end() < end:  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(0.02)
    return end


async def can_send(namesrv: str) -> None:
    """The master is there again, as producers see it."""

    def send() -> None:
        with rmqpy.Producer(namesrv, group="mixed") as producer:
            producer.send("first-0", b"again")

    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await asyncio.to_thread(send)
            except RocketMQError:
                await asyncio.sleep(0.05)


async def test_a_slave_ends_with_its_masters_bytes_whichever_of_them_is_killed(
    pair: tuple[Replica, Replica], namesrv: str
) -> None:
    master, slave = pair
    async with running(master, slave):
        await asyncio.to_thread(send_mixed, namesrv, "first", ROUND)
        await caught_up(master, slave)

        sending = asyncio.create_task(asyncio.to_thread(send_mixed, namesrv, "second", ROUND))
        await asyncio.sleep(0)
        await slave.end(signal.SIGKILL)
        await sending
        await slave.start()
        await caught_up(master, slave)

        await master.end(signal.SIGKILL)
        await master.start()
        await can_send(namesrv)
        await asyncio.to_thread(send_mixed, namesrv, "third", ROUND)
        end = await caught_up(master, slave)
        assert end > 2 * FILE_BYTES, "the log goes over several files"
        async with await Peer.connect(f"127.0.0.1:{slave.port}") as peer:
            refused = await peer.call(
                310,
                {"a": "g", "b": "first-0", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"},
                b"x",
            )
        assert refused.code != 0, "a slave takes no messages"
        await slave.end(signal.SIGTERM)
        await master.end(signal.SIGTERM)
    assert slave.log(end) == master.log(end)
