"""Brokers killed while they copy files to the tiered storage and delete them: every message is read once, in order.

A broker with tiny files gets messages, copies each full file and deletes it on the disk immediately; it is killed then.
In the end each queue is read from its beginning, mostly from the storage. There is a round for each kill of
`RMQPY_KILLS`; `RMQPY_SEED` repeats the moments, and `RMQPY_TIERED_STORAGE` names another storage than a folder.
"""

import contextlib
import os
import random
import threading
import time
from pathlib import Path

import pytest

import rmqpy
from crash.killable import Broker
from rmqpy.errors import RocketMQError
from waiting import until

KILLS = int(os.environ.get("RMQPY_KILLS", "5"))
TOPIC, QUEUES = "orders", 4
FILE_BYTES = 1 << 18
BODY = b"x" * 1_000


def settings(folder: Path) -> tuple[str, ...]:
    return (
        f"mappedFileSizeCommitLog={FILE_BYTES}",
        "mappedFileSizeConsumeQueue=2000",
        "maxMessageSize=100000",
        "commitLogRingBytes=1048576",
        "brokerName=broker-a",
        "fileReservedTime=0",
        "flushDiskType=SYNC_FLUSH",
        f"tieredStorage={os.environ.get('RMQPY_TIERED_STORAGE', folder / 'tier')}",
    )


def local_begin(folder: Path) -> int:
    """The position at which the log begins on the disk."""
    log = next((folder / "store").glob("**/commitlog"))
    return min(int(name) for name in os.listdir(log) if name.isdecimal())


def load(broker: Broker, begin: int, acknowledged: list[int], stop: threading.Event) -> None:
    """Send numbers, each to the queue of its remainder, until the broker is gone."""
    with contextlib.suppress(RocketMQError), rmqpy.Producer(broker.namesrv, retries=0) as producer:
        queues = producer.queues(TOPIC)
        number = begin
        while not stop.is_set():
            producer.send(TOPIC, b"%d " % number + BODY, queue=queues[number % QUEUES])
            acknowledged.append(number)
            number += 1


def expire(broker: Broker, stop: threading.Event) -> None:
    """Have full files deleted all the time."""
    with contextlib.suppress(RocketMQError), rmqpy.Admin(broker.namesrv) as admin:
        while not stop.is_set():
            admin.delete_expired_log()


@pytest.mark.timeout(120 + 20 * KILLS)
def test_each_message_is_read_once_after_kills_during_copies(tmp_path: Path) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    moments = random.Random(seed)
    acknowledged: list[int] = []
    begin = 0
    for kill in range(KILLS + 1):
        broker = Broker.start(tmp_path / "store", *settings(tmp_path))
        if kill == 0:
            with rmqpy.Admin(broker.namesrv) as admin:
                admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        stop = threading.Event()
        threads = [
            threading.Thread(target=load, args=(broker, begin, acknowledged, stop)),
            threading.Thread(target=expire, args=(broker, stop)),
        ]
        for thread in threads:
            thread.start()
        time.sleep(moments.uniform(0.5, 3.0))  # The moment of the kill.
        if kill < KILLS:
            broker.kill()
        stop.set()
        for thread in threads:
            thread.join(60)
        # A send that was cut off may be stored; its number is not used again.
        begin = (acknowledged[-1] if acknowledged else 0) + QUEUES + 1
    try:
        assert local_begin(tmp_path) > 0, "nothing left the disk"
        found: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
        with rmqpy.PullConsumer("readers", broker.namesrv, start_from="earliest") as consumer:
            consumer.subscribe(TOPIC)
            last = {
                queue: max(each for each in acknowledged if each % QUEUES == queue) for queue in range(QUEUES)
            }

            def is_whole() -> bool:
                for message in consumer.poll(timeout=1):
                    number = int(message.body.split()[0])
                    found[number % QUEUES].append(number)
                return all(found[queue] and found[queue][-1] >= last[queue] for queue in range(QUEUES))

            until(is_whole, seconds=60)
    finally:
        broker.stop()
    read = [number for numbers in found.values() for number in numbers]
    lost = set(acknowledged) - set(read)
    print(
        f"{KILLS} kills: {len(acknowledged)} acknowledged, {len(lost)} lost, {len(read) - len(set(read))} twice; "
        f"the disk begins at {local_begin(tmp_path)}"
    )
    assert not lost
    assert len(read) == len(set(read))
    assert all(numbers == sorted(numbers) for numbers in found.values())
