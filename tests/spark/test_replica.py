"""A streaming query while the machine of its master burns: it continues at the slave, and misses nothing."""

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crash.reading import Silence, send_numbers
from crash.replica_processes import Replica, caught_up, in_sync, running
from wire import TIMEOUT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

MESSAGES = 4_000
EACH = 100
#: Read before the master is killed.
BEFORE = 10 * EACH
SILENCE_SECONDS_MAX = 5.0
READS = {"slaveReadEnable": "true"}


class Batches:
    """The rows that a query has read, with their times."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.silence = Silence()
        self._grown = threading.Condition()

    def __call__(self, batch: "DataFrame", number: int) -> None:
        rows = [int(bytes(row.body)) for row in batch.select("body").collect()]
        with self._grown:
            self.silence.broken()
            self.numbers += rows
            self._grown.notify_all()

    async def has_read(self, count: int) -> bool:
        """Wait until it has read this number; return False at the timeout."""
        return await asyncio.to_thread(self._has_read, count)

    def _has_read(self, count: int) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: len(self.numbers) >= count, 4 * TIMEOUT_S)


def started(spark: "SparkSession", namesrv: str, checkpoint: Path, batches: Callable[..., None]) -> Any:
    """A query that reads a little at a time."""
    options = {"nameserver": namesrv, "subscribe": "orders", "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger=str(EACH)).load()
    return rows.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint)).start()


async def test_query_continues_at_the_slave_within_seconds(
    spark: "SparkSession", tmp_path: Path, namesrv: str
) -> None:
    master = Replica(namesrv, tmp_path / "master", READS)
    slave = Replica(namesrv, tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **READS})
    async with running(master, slave):
        await in_sync(master)
        await asyncio.to_thread(send_numbers, namesrv, "orders", MESSAGES)
        await caught_up(master, slave)
        batches = Batches()
        query = await asyncio.to_thread(started, spark, namesrv, tmp_path / "checkpoint", batches)
        try:
            assert await batches.has_read(BEFORE), query.exception()
            await master.end(signal.SIGKILL)
            assert len(batches.numbers) < MESSAGES // 2, "it dies in the middle"
            assert await batches.has_read(MESSAGES), query.exception()
        finally:
            await asyncio.to_thread(query.stop)
    assert sorted(batches.numbers) == list(range(MESSAGES)), "each came once"
    print(f"silence of {batches.silence.longest:.2f} s at most")
    assert batches.silence.longest < SILENCE_SECONDS_MAX
