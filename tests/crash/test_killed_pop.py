"""Brokers and workers killed while messages are popped: none is lost, and none repeats after an acknowledgement.

Senders send as fast as they are answered, and 64 workers in 8 processes pop from 8 queues. Most messages are
acknowledged, some are forgotten until their time is over. In each round a process of workers gets SIGKILL at a random
moment, and then the broker, which is started again on its files. In the end everything is popped and acknowledged. The
number of kills is `RMQPY_KILLS`; `RMQPY_SEED` repeats the moments.
"""

import os
import random
from pathlib import Path

import pytest

from benchmarks.processes import free_ports
from crash.killable import Broker
from crash.pop_ledger import Ledger, names
from crash.pop_processes import PROCESSES, WORKERS, WorkerProcesses
from crash.pop_workers import Settings
from crash.traffic import Acknowledged

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
TOPIC = "jobs"

pytestmark = pytest.mark.timeout(300 + 10 * KILLS)


async def killed(
    folder: Path, settings: Settings, rounds: int, *broker: str
) -> tuple[Acknowledged, WorkerProcesses, Ledger]:
    """Two kills a round; the sent messages, and the ledger when everything was acknowledged."""
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}, {' '.join(broker)}")
    sent: Acknowledged = {}
    first = free_ports(4)
    ports = (first, first + 3)
    workers = WorkerProcesses(folder, settings, random.Random(seed))
    running = Broker.start(folder / "store", *broker, ports=ports)
    try:
        workers.serve_from(running.address)
        workers.start()
        for number in range(rounds):
            await workers.round(running.kill, running.address, TOPIC, f"round-{number}", sent)
            running = Broker.start(folder / "store", *broker, ports=ports)
        ledger = await workers.drain()
    finally:
        workers.kill_all()
        running.kill()
    return sent, workers, ledger


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_popped_messages_survive_kills(tmp_path: Path, flush: str) -> None:
    settings = Settings(WORKERS // PROCESSES, invisible_ms=5_000, forgotten_percent=5)
    rounds = max(1, KILLS // 4)
    sent, workers, ledger = await killed(tmp_path, settings, rounds, f"flushDiskType={flush}")
    lost = names(message.body for message in sent.values()) - ledger.deliveries.keys()
    late, repeats, in_flight = ledger.after_acknowledgement(), ledger.repeats(), ledger.in_flight_at_kills()
    print(
        f"{workers.killed}: {len(sent)} sent, {len(lost)} lost, {len(late)} seen after an acknowledgement in time, "
        f"{in_flight} in flight at a kill, repeats {repeats}"
    )
    assert not lost
    assert not late
    assert repeats["killed"] <= in_flight
    assert not repeats["without a reason"]


async def test_order_survives_kills(tmp_path: Path) -> None:
    settings = Settings(WORKERS // PROCESSES, invisible_ms=2_000, forgotten_percent=2, is_ordered=True)
    sent, workers, ledger = await killed(tmp_path, settings, max(1, KILLS // 2), "flushDiskType=ASYNC_FLUSH")
    lost = names(message.body for message in sent.values()) - ledger.deliveries.keys()
    skipped = ledger.out_of_order()
    again = sum(len(each) - 1 for each in ledger.deliveries.values())
    print(
        f"{workers.killed}, in order: {len(sent)} sent, {len(lost)} lost, {len(skipped)} out of order, "
        f"{again} seen again"
    )
    assert not skipped
    assert not lost
