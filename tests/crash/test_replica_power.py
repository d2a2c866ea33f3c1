"""A pair whose machines lose power keeps acknowledged messages.

Each replica stores on a separate disk (`loopback`), which is shut down under 64 senders. With ASYNC_FLUSH one machine
loses power, the master's or the slave's: unflushed data is on the other one. With SYNC_FLUSH both lose power
at the same time, and continue in their roles, or with the slave as the master. A returning broker drops
unacknowledged data, and has the same log in the end.

Power losses in each mode are `RMQPY_REPLICA_POWER_LOSSES`; the seed is printed, and `RMQPY_SEED` repeats its moments.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from typing import Literal

import pytest

import rmqpy
from broker.replicas import topics as topics_at
from crash.loopback import MountedImage
from crash.replica_processes import Replica, caught_up, in_sync, running
from crash.traffic import QUEUES, Acknowledged, audit, load_until
from waiting import until_async
from wire import Peer

LOSSES = int(os.environ.get("RMQPY_REPLICA_POWER_LOSSES", "2"))

Dark = Literal["master", "slave", "both", "both, for long"]
#: Which machines go dark, in turn.
TURNS: dict[str, tuple[Dark, ...]] = {
    "ASYNC_FLUSH": ("master", "slave"),
    "SYNC_FLUSH": ("both", "both, for long"),
}

pytestmark = pytest.mark.timeout(120 + 30 * LOSSES)


class Machine:
    """A replica and its disk."""

    def __init__(self, namesrv: str, disk: MountedImage, flush: str, broker_id: int) -> None:
        self._disk, self._flush = disk, flush
        self.replica = Replica(namesrv, disk.mount_point / "store", {})
        self.take("SLAVE" if broker_id else "SYNC_MASTER", broker_id)

    def take(self, role: str, broker_id: int) -> None:
        """Configure the role of its next start, which a promotion overrides."""
        self.broker_id = broker_id
        settings = {"flushDiskType": self._flush, "brokerRole": role, "brokerId": broker_id}
        self.replica.settings = settings | {"slaveTimeout": 3_000}

    def go_dark(self) -> None:
        self._disk.cut_power()
        self.replica.signal(signal.SIGKILL)

    async def come_back(self) -> None:
        """Power the machine on again: its flushed data exists, its process does not."""
        await self.replica.end(signal.SIGKILL)
        self._disk.unmount()
        self._disk.mount()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_power_losses_lose_no_message_acknowledged_by_a_pair(
    make_disk: Callable[[str], MountedImage], namesrv: str, flush: str
) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    master, slave = (Machine(namesrv, make_disk(name), flush, number) for number, name in enumerate("ab"))
    topics: dict[str, Acknowledged] = {}
    async with running(master.replica, slave.replica), rmqpy.AsyncAdmin(namesrv) as admin:
        for number in range(LOSSES):
            dark = TURNS[flush][number % 2]
            victims = {"master": [master], "slave": [slave]}.get(dark, [master, slave])
            await in_sync(master.replica)
            topic, acknowledged = f"dark-{number}", Acknowledged()
            topics[topic] = acknowledged
            await admin.create_topic(topic, write_queues=QUEUES, read_queues=QUEUES)
            # A slave without the topic's settings would create it with the queues that it has messages of.
            async with await Peer.connect(slave.replica.address) as peer:
                await until_async(
                    lambda peer=peer: topics_at(peer), lambda found, topic=topic: topic in found
                )

            def cut(victims: list[Machine] = victims) -> None:
                for victim in victims:
                    victim.go_dark()

            moment = moments.uniform(0.02, 0.4)
            await load_until(cut, master.replica.address, topic, "sender", moment, acknowledged)
            for victim in victims:
                await victim.come_back()
            if dark in ("master", "both, for long"):
                if slave in victims:
                    await slave.replica.start()
                await admin.promote("broker-a", slave.broker_id, role="SYNC_MASTER")
                master, slave = slave, master
                await audit(master.replica.address, topic, acknowledged)
                slave.take("SLAVE", 3 - master.broker_id)
                await slave.replica.start()
            else:
                await asyncio.gather(*(victim.replica.start() for victim in victims))
                await audit(master.replica.address, topic, acknowledged)
        await in_sync(master.replica)
        for topic, acknowledged in topics.items():
            await audit(master.replica.address, topic, acknowledged)
        end = await caught_up(master.replica, slave.replica)
        for machine in (slave, master):
            await machine.replica.end(signal.SIGTERM)
    assert slave.replica.log(end) == master.replica.log(end)
    count = sum(map(len, topics.values()))
    print(f"seed {seed}, {flush}: {LOSSES} power losses, {count} acknowledged, 0 lost, logs equal")
    assert count > LOSSES
