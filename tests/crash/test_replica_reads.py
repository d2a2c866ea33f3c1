"""The machine of a master burns while its messages are read: our consumers, and Spark's reads, continue at the slave.

Clients have their default settings. The slave has everything when the master is killed, so every
message must arrive, and a longer pause than `SILENCE_SECONDS_MAX` is a failure.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from crash.reading import Silence, send_numbers
from crash.replica_processes import Replica, caught_up, has_topics, in_sync, running
from rmqpy.protocol.requests.offsets import QueryConsumerOffset
from waiting import until, until_async
from wire import TIMEOUT_S, Peer, Refusal

SILENCE_SECONDS_MAX = 5.0
MESSAGES = 12_000
#: Read before the master is killed.
BEFORE = 500


class Reading:
    """What a reader has got, and when."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.silence = Silence()
        self._lock = threading.Lock()

    def took(self, body: bytes) -> None:
        with self._lock:
            self.silence.broken()
            self.bodies.append(body)
        # Slower than the messages arrive, so that the master dies in the middle.
        time.sleep(0.0005)

    @property
    def is_done(self) -> bool:
        return len(set(self.bodies)) == MESSAGES


def push(namesrv: str, reading: Reading) -> None:
    consumer = rmqpy.PushConsumer("readers", namesrv, start_from="earliest", workers=1, prefetch_messages=64)
    consumer.on("orders", "*", lambda message: reading.took(message.body))
    with consumer:
        until(lambda: reading.is_done, 4 * TIMEOUT_S)


def pull(namesrv: str, reading: Reading) -> None:
    with rmqpy.PullConsumer("readers", namesrv, start_from="earliest", max_batch=16) as consumer:
        consumer.subscribe("orders")
        while not reading.is_done:
            for message in consumer.poll(timeout=1):
                reading.took(message.body)


def ranges(namesrv: str, reading: Reading) -> None:
    queues = [rmqpy.MessageQueue("orders", "broker-a", number) for number in range(4)]
    with rmqpy.Admin(namesrv) as admin:
        spans = [rmqpy.QueueRange(queue, *admin.queue_offsets(queue)) for queue in queues]
    rows = rmqpy.read_ranges(spans, namesrv, columns=["body"], batch_rows=16)
    for batch in rows:
        for body in bodies_of(batch):
            reading.took(body)


def bodies_of(batch: object) -> list[bytes]:
    pa = pytest.importorskip("pyarrow")
    return [row["body"] for row in pa.table(batch).to_pylist()]


@pytest.mark.parametrize("read", [push, pull, ranges])
async def test_reading_continues_at_the_slave_within_seconds(
    tmp_path: Path, namesrv: str, read: Callable[[str, Reading], None]
) -> None:
    master = Replica(namesrv, tmp_path / "master", {"slaveReadEnable": "true"})
    slave = Replica(
        namesrv, tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
    )
    async with running(master, slave):
        await in_sync(master)
        await asyncio.to_thread(send_numbers, namesrv, "orders", MESSAGES)
        await caught_up(master, slave)
        await has_topics(slave, "orders")
        reading = Reading()
        task = asyncio.create_task(asyncio.to_thread(read, namesrv, reading))
        async with asyncio.timeout(4 * TIMEOUT_S):
            await until_async(
                lambda: len(reading.bodies) >= BEFORE or (task.done() and task.result() is None)
            )
            await master.end(signal.SIGKILL)
            await task
        assert set(reading.bodies) == {b"%d" % number for number in range(MESSAGES)}
        repeats = len(reading.bodies) - MESSAGES
        print(f"{read.__name__}: silence of {reading.silence.longest:.2f} s at most, {repeats} repeats")
        assert reading.silence.longest < SILENCE_SECONDS_MAX
        # What is read again is what was read and not committed.
        assert repeats <= 4_000
        if read is ranges:
            return
        ends = await committed(slave)
        assert sum(ends) > BEFORE, "committed at the slave"
        await master.start()
        await until_async(lambda: committed(master), ends.__eq__)


async def committed(broker: Replica) -> list[int]:
    """The offsets of the group, queue by queue."""
    found = []
    async with await Peer.connect(broker.address) as peer:
        for queue in range(4):
            ask = QueryConsumerOffset(
                consumer_group="readers", topic="orders", queue_id=queue, set_zero_if_not_found=False
            )
            try:
                found.append((await peer.ask(ask)).offset or 0)
            except Refusal:
                found.append(0)
    return found
