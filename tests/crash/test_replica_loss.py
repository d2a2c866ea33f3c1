"""A machine burns, a slave hangs, a network is cut: no acknowledged message is lost, and no send exceeds its bound.

64 senders, each on its own connection, at a master whose replies wait for its slave, with transactions of which
most are open when it dies. In every second round the name server is down while the slave starts. Rounds are
`RMQPY_REPLICA_ROUNDS`; the seed of the moments is printed, and `RMQPY_SEED` repeats them. The networks are namespaces
that the test creates (root).
"""

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import free_ports
from crash.cable import INSIDE, MASTER_HOST, SLAVE_HOST, cable, needs_networks
from crash.open_halves import Halves
from crash.replica_processes import Replica, caught_up, has_topics, in_sync, running
from crash.traffic import QUEUES, Acknowledged, audit, load_until, send_header
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from waiting import until_async
from wire import Peer

ROUNDS = int(os.environ.get("RMQPY_REPLICA_ROUNDS", "3"))
#: How long a reply waits for the slave, in these tests.
SLAVE_TIMEOUT_MS = 400
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": SLAVE_TIMEOUT_MS}
#: A name server that came back is told soon.
SOON = {"registerNameServerPeriod": 10_000}
#: Of a loaded machine, beyond that.
MARGIN_SECONDS = 2.0
STORED_ALONE = (11, 12)


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    return random.Random(seed)


def slave_of(namesrv: str, folder: Path, broker_id: int) -> Replica:
    settings = {**SYNC, "brokerRole": "SLAVE", "brokerId": broker_id}
    return Replica(namesrv, folder, settings)


class Outages:
    """A name server that a test takes away at times; it comes back at its address, and knows nothing."""

    def __init__(self) -> None:
        self._port = free_ports(1)
        self._server: NameServer | None = None
        self.count = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def begin(self) -> None:
        self._server = NameServer(NameServerConfig(listen_port=self._port, kv_path="", store_path=""))
        await self._server.start()

    async def end(self) -> None:
        if self._server is not None:
            await self._server.stop()
            self._server = None

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """A name server that is down meanwhile."""
        await self.end()
        yield
        await self.begin()
        self.count += 1


@pytest.fixture
async def outages() -> AsyncIterator[Outages]:
    server = Outages()
    await server.begin()
    yield server
    await server.end()


def follower_of(master: Replica, folder: Path, broker_id: int) -> Replica:
    """A slave that needs no name server to find its master."""
    slave = slave_of(master.namesrv, folder, broker_id)
    slave.settings |= SOON | {"haMasterAddress": f"127.0.0.1:{master.port + 1}"}
    return slave


async def registered(admin: rmqpy.AsyncAdmin, broker: Replica) -> None:
    """The name server has heard of it again."""
    await until_async(
        admin.brokers,
        lambda brokers: any(each.address == broker.address for each in brokers),
        failing=rmqpy.errors.RocketMQError,
    )


@pytest.mark.timeout(120 + 40 * ROUNDS)
async def test_acknowledged_messages_survive_the_loss_of_the_masters_machine(
    tmp_path: Path, outages: Outages, moments: random.Random
) -> None:
    master = Replica(outages.address, tmp_path / "a", SYNC | SOON)
    slave = follower_of(master, tmp_path / "b", 1)
    topics: dict[str, tuple[Acknowledged, Halves]] = {}
    stored, seconds = 0, []
    async with running(master, slave), rmqpy.AsyncAdmin(outages.address) as admin:
        for number in range(ROUNDS):
            await in_sync(master)
            topic, acknowledged = f"burnt-{number}", Acknowledged()
            halves = Halves(f"decided-{number}")
            topics[topic] = acknowledged, halves
            for name in (topic, halves.topic):
                await admin.create_topic(name, write_queues=QUEUES, read_queues=QUEUES)
            await has_topics(slave, topic, halves.topic)
            if number % 2 == 1:
                async with outages.away():
                    await slave.end(signal.SIGKILL)
                    await slave.start()
                    await in_sync(master)
                await registered(admin, slave)
            transacting = asyncio.create_task(halves.store_until_the_end(master.address, f"round-{number}"))
            victim = master
            await load_until(
                lambda: victim.signal(signal.SIGKILL),  # noqa: B023 - called before the next round
                master.address,
                topic,
                f"round-{number}",
                moments.uniform(0.05, 0.6),
                acknowledged,
            )
            await transacting
            await master.end(signal.SIGKILL)
            shutil.rmtree(master.folder)
            broker_id = int(str(slave.settings["brokerId"]))
            promoted = await admin.promote("broker-a", broker_id, role="SYNC_MASTER")
            seconds.append(promoted.seconds)
            stored += await audit(slave.address, topic, acknowledged)
            # The next slave begins with nothing.
            master, slave = slave, master
            slave.settings = follower_of(master, slave.folder, 3 - broker_id).settings
            await slave.start()
            await in_sync(master)
            await halves.commit_all(master.address)
        await in_sync(master)
        for topic, (acknowledged, halves) in topics.items():
            await audit(master.address, topic, acknowledged)
            await halves.audit(master.address)
        end = await caught_up(master, slave)
        for each in (slave, master):
            await each.end(signal.SIGTERM)
    assert slave.log(end) == master.log(end)
    count = sum(len(acknowledged) for acknowledged, _ in topics.values())
    halved = sum(len(halves.stored) for _, halves in topics.values())
    print(
        f"{ROUNDS} masters killed and their folders deleted, {outages.count} with the name server down before: {count} "
        f"acknowledged, 0 lost, {stored} stored; {halved} halves, each committed once; promoted in "
        f"{sorted(seconds)[len(seconds) // 2]:.2f} s, at most {max(seconds):.2f} s"
    )
    assert count > ROUNDS
    assert halved > 0


async def answers(address: str, until: asyncio.Event) -> dict[int, list[float]]:
    """Codes of sends, one after the other on one connection, with the seconds that each took."""
    found: dict[int, list[float]] = {}
    async with await Peer.connect(address) as peer:
        while not until.is_set():
            began = time.monotonic()
            answer = await peer.call(310, send_header("cut", 0), b"x" * 200)
            found.setdefault(answer.code, []).append(time.monotonic() - began)
            await asyncio.sleep(0.001)  # the rate of one sender
    return found


async def code_of(address: str) -> int:
    async with await Peer.connect(address) as peer:
        return (await peer.call(310, send_header("cut", 0), b"one")).code


async def test_send_with_a_hanging_slave_reports_it_in_time(tmp_path: Path, namesrv: str) -> None:
    master, slave = Replica(namesrv, tmp_path / "a", dict(SYNC)), slave_of(namesrv, tmp_path / "b", 1)
    async with running(master, slave):
        await in_sync(master)
        assert await code_of(master.address) == 0
        for _ in range(ROUNDS):
            await slave.stand_still()
            began = time.monotonic()
            codes = await asyncio.gather(*(code_of(master.address) for _ in range(16)))
            assert set(codes) == {12}, "stored, and not copied"
            assert time.monotonic() - began < SLAVE_TIMEOUT_MS / 1_000 + MARGIN_SECONDS, (
                "they wait side by side"
            )
            slave.signal(signal.SIGCONT)
            await in_sync(master)
            assert await code_of(master.address) == 0
        end = await caught_up(master, slave)
        for each in (slave, master):
            await each.end(signal.SIGTERM)
    assert slave.log(end) == master.log(end)


@needs_networks
@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_sends_end_in_time_when_slaves_die_or_the_network_fails(
    tmp_path: Path, moments: random.Random
) -> None:
    counts: dict[int, int] = {}
    longest = 0.0
    server = NameServerConfig(bind_address=MASTER_HOST, listen_port=0, kv_path="", store_path="")
    with cable() as network:
        async with NameServer(server) as name_server:
            namesrv = name_server.address
            # The other side of a cut cable is missed soon.
            soon = {**SYNC, "haHousekeepingInterval": 1_000}
            master = Replica(namesrv, tmp_path / "a", dict(soon), host=MASTER_HOST)
            slave = slave_of(namesrv, tmp_path / "b", 1)
            slave.settings |= soon | {"brokerRole": "SLAVE"}
            slave.host, slave.inside = SLAVE_HOST, INSIDE
            async with running(master, slave):
                await in_sync(master)
                assert await code_of(master.address) == 0
                for number in range(ROUNDS):
                    is_over = asyncio.Event()
                    senders = [asyncio.create_task(answers(master.address, is_over)) for _ in range(8)]
                    # Here and below, the moment of the cut is what varies.
                    await asyncio.sleep(moments.uniform(0.05, 0.3))
                    how = ("both", "kill", "one way")[number % 3]
                    if how == "kill":
                        await slave.end(signal.SIGKILL)
                        await asyncio.sleep(moments.uniform(0.05, 1.0))  # likewise
                        await slave.start()
                    else:
                        network.cut(how)
                        await asyncio.sleep(moments.uniform(0.3, 2.0))  # likewise
                        network.mend()
                    await asyncio.sleep(0.1)  # sends go on for a moment afterwards
                    is_over.set()
                    for found in await asyncio.gather(*senders):
                        for code, times in found.items():
                            counts[code] = counts.get(code, 0) + len(times)
                            longest = max(longest, *times)
                    await in_sync(master)
                    assert await code_of(master.address) == 0
                end = await caught_up(master, slave)
                for each in (slave, master):
                    await each.end(signal.SIGTERM)
    assert set(counts) <= {0, *STORED_ALONE}, counts
    assert longest < SLAVE_TIMEOUT_MS / 1_000 + MARGIN_SECONDS
    assert slave.log(end) == master.log(end)
    print(f"{ROUNDS} cuts and kills: answers by code {counts}, the longest after {longest:.2f} s, logs equal")
