"""Masters killed while messages are popped, and their folders deleted: the slave goes on with the open messages.

A master whose answers wait for its slave has senders and 64 workers. In each round a process of workers gets SIGKILL,
then the master, whose folder is deleted. Its slave is promoted, and the next slave begins with nothing. In the end
everything is popped and acknowledged. There is a round for each 20 of `RMQPY_KILLS`; `RMQPY_SEED` repeats the moments.
"""

import asyncio
import os
import random
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

import rmqpy
from crash.pop_ledger import names
from crash.pop_processes import PROCESSES, QUEUES, WORKERS, WorkerProcesses
from crash.pop_workers import Settings
from crash.replica_processes import Replica, in_sync, running
from crash.traffic import Acknowledged

ROUNDS = max(2, int(os.environ.get("RMQPY_KILLS", "0")) // 20)
TOPIC = "jobs"
#: Nothing is answered before the slave has it, on a busy machine, too.
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 10_000}


def kill_at_once(replica: Replica) -> None:
    assert replica.process is not None, "it runs"
    replica.process.kill()
    replica.process.wait(timeout=30)


@pytest.mark.timeout(300 + 40 * ROUNDS)
@pytest.mark.parametrize("is_ordered", [False, True], ids=["in any order", "in order"])
async def test_popped_messages_survive_the_loss_of_masters(
    tmp_path: Path, namesrv: str, is_ordered: bool
) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    settings = Settings(WORKERS // PROCESSES, invisible_ms=5_000, forgotten_percent=2, is_ordered=is_ordered)
    workers = WorkerProcesses(tmp_path, settings, random.Random(seed))
    sent: dict[str, Acknowledged] = {}
    master = Replica(namesrv, tmp_path / "a", dict(SYNC))
    slave = Replica(namesrv, tmp_path / "b", SYNC | {"brokerRole": "SLAVE", "brokerId": 1})
    try:
        async with running(master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
            await admin.create_topic(TOPIC, write_queues=QUEUES, read_queues=QUEUES)
            await in_sync(master)
            workers.serve_from(master.address)
            workers.start()
            for number in range(ROUNDS):
                name = f"round-{number}"
                kill = partial(kill_at_once, master)
                await workers.round(kill, master.address, TOPIC, name, sent.setdefault(name, {}))
                await master.end(signal.SIGKILL)
                shutil.rmtree(master.folder)
                broker_id = int(str(slave.settings["brokerId"]))
                await admin.promote("broker-a", broker_id, role="SYNC_MASTER")
                workers.serve_from(slave.address)
                # The next slave begins with nothing.
                master, slave = slave, master
                slave.settings = SYNC | {"brokerRole": "SLAVE", "brokerId": 3 - broker_id}
                await slave.start()
                await in_sync(master)
            ledger = await workers.drain()
    finally:
        await asyncio.to_thread(workers.kill_all)
    acknowledged = {name for of_one in sent.values() for name in names(each.body for each in of_one.values())}
    lost = acknowledged - ledger.deliveries.keys()
    repeats, in_flight = ledger.repeats(), ledger.in_flight_at_kills()
    late = [] if is_ordered else ledger.after_acknowledgement()
    skipped = ledger.out_of_order() if is_ordered else []
    print(
        f"{ROUNDS} masters killed and their folders deleted, {workers.killed}: {len(acknowledged)} sent, "
        f"{len(lost)} lost, {len(late)} seen after an acknowledgement in time, {len(skipped)} out of order, "
        f"{in_flight} in flight at a kill, repeats {repeats}"
    )
    assert not lost
    assert not late
    assert not skipped
    if not is_ordered:
        assert repeats["killed"] <= in_flight
        assert not repeats["without a reason"]
