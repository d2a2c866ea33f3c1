"""A streaming query while the machine of its master burns: it goes on at the slave, and misses nothing."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
from crash.replica_processes import Replica, caught_up, in_sync, running
from wire import TIMEOUT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(120)

MESSAGES = 4_000
EACH = 100
#: Read before the master is killed.
BEFORE = 10 * EACH
SILENCE_SECONDS_MAX = 5.0
READS = {"slaveReadEnable": "true"}


class Batches:
    """What a query has read, and when."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.longest_silence = 0.0
        self._last = time.monotonic()

    def __call__(self, batch: "DataFrame", number: int) -> None:
        rows = [int(bytes(row.body)) for row in batch.select("body").collect()]
        now = time.monotonic()
        if self.numbers:
            self.longest_silence = max(self.longest_silence, now - self._last)
        self._last = now
        self.numbers += rows


def send_all(namesrv: str) -> None:
    with rmqpy.Producer(namesrv) as producer:
        for future in [producer.submit("orders", b"%d" % number) for number in range(MESSAGES)]:
            future.result(timeout=TIMEOUT_S)


def started(spark: "SparkSession", namesrv: str, checkpoint: Path, batches: Callable[..., None]) -> Any:
    """A query that reads a little at a time."""
    options = {"nameserver": namesrv, "subscribe": "orders", "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger=str(EACH)).load()
    return rows.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint)).start()


async def test_a_query_goes_on_at_the_slave_within_seconds(
    spark: "SparkSession", tmp_path: Path, namesrv: str
) -> None:
    master = Replica(namesrv, tmp_path / "master", READS)
    slave = Replica(namesrv, tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **READS})
    async with running(master, slave):
        await in_sync(master)
        await asyncio.to_thread(send_all, namesrv)
        await caught_up(master, slave)
        batches = Batches()
        query = await asyncio.to_thread(started, spark, namesrv, tmp_path / "checkpoint", batches)
        try:
            async with asyncio.timeout(4 * TIMEOUT_S):
                while len(batches.numbers) < BEFORE:
                    await asyncio.sleep(0.01)
                    assert query.isActive, query.exception()
                await master.end(signal.SIGKILL)
                assert len(batches.numbers) < MESSAGES // 2, "it dies in the middle"
                while len(batches.numbers) < MESSAGES:
                    await asyncio.sleep(0.01)
                    assert query.isActive, query.exception()
        finally:
            await asyncio.to_thread(query.stop)
    assert sorted(batches.numbers) == list(range(MESSAGES)), "each came once"
    print(f"silence of {batches.longest_silence:.2f} s at most")
    assert batches.longest_silence < SILENCE_SECONDS_MAX
