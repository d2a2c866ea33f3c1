"""A broker killed while it is being written to keeps every message it acknowledged, in order and whole.

64 senders, each on a connection of its own, send as fast as they are answered; at a random moment the process gets
SIGKILL and is started again on what it left. Small segments make the log roll over while it happens. The number of
kills is `RMQPY_KILLS`; the seed of the moments is printed, and `RMQPY_SEED` repeats them.
"""

import os
import random
from pathlib import Path

import pytest

from crash.killable import Broker
from crash.traffic import SENDERS, Acknowledged, audit, load_until

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
TOPIC = "killed"


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_was_acknowledged_survives_kills(tmp_path: Path, flush: str) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged: Acknowledged = {}
    count = 0
    broker = Broker.start(tmp_path, f"flushDiskType={flush}")
    try:
        for kill in range((KILLS + 1) // 2):
            moment = moments.uniform(0.05, 0.4)
            await load_until(broker.kill, broker.address, TOPIC, f"round-{kill}", moment, acknowledged)
            broker = Broker.start(tmp_path, f"flushDiskType={flush}")
            count = await audit(broker.address, TOPIC, acknowledged)
    finally:
        broker.kill()
    print(f"seed {seed}, {flush}: {len(acknowledged)} acknowledged, {count} stored, {(KILLS + 1) // 2} kills")
    assert len(acknowledged) > KILLS * SENDERS
