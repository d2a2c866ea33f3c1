"""A store folder passed from Apache's broker to ours and back, in order and after SIGKILL, without a lost byte.

Each broker must serve what the previous one served: every queue byte for byte, pending delayed messages,
every message by key, unique key, position and time, the progress of groups, and the configuration with members
unknown to ours. Then it writes more. Between two brokers `rmqpy store verify` finds no problem in the folder.

RMQPY_ROUND_TRIP=100000 writes that many messages first; the default is a few thousand, in files small enough that
all kinds of them roll. The write ring of ours is drained after a kill; with RMQPY_WRITE_PATH=mapping it writes through
a mapping.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from waiting import until

from . import metadata, servers, wire
from .clients import InteropClient, ProcessClient
from .folders import SCHEDULE_TOPIC, SMALL_FILES, WRITE_PATH, Folder, Record

TOPIC = "round-trip"
QUEUES = 4
MESSAGES = int(os.environ.get("RMQPY_ROUND_TRIP", "4000"))
MORE = max(400, MESSAGES // 10)
BATCH = 32
SAMPLES = 20
"""Messages of each queue that are looked up along every way."""
TWO_HOURS = 18
REGISTERED_SECONDS_MAX = 30.0
"""A delay level whose messages are still pending at the end of the test."""

Served = dict[tuple[str, int], list[Record]]


def write(folder: Folder, writer: str, count: int) -> None:
    """`count` messages: single ones with tag, keys and properties, and batches."""
    # A broker answers a moment before the name server knows it.
    until(lambda: wire.has_route(folder.namesrv, TOPIC), REGISTERED_SECONDS_MAX)
    with rmqpy.Producer(folder.namesrv, send_timeout=30.0) as producer:
        single = [
            rmqpy.Message(
                TOPIC,
                f"{writer} {index}".encode() * (1 + index % 7),
                tag=f"tag{index % 5}",
                keys=[f"{writer}-{index}", f"tenth-{index // 10}"],
                properties={"number": str(index), "text": "Grüße"},
            )
            for index in range(count // 2)
        ]
        pending = [producer.submit(message) for message in single]
        for start in range(count // 2, count, BATCH):
            batch = [
                rmqpy.Message(TOPIC, f"{writer} batch {index}".encode(), keys=[f"{writer}-{index}"])
                for index in range(start, min(start + BATCH, count))
            ]
            producer.send_batch(batch)
        for future in pending:
            assert future.result(60.0).ok


def delay(folder: Folder, count: int) -> None:
    """Messages that still wait when the test is over."""
    with rmqpy.Producer(folder.namesrv, send_timeout=30.0) as producer:
        for index in range(count):
            producer.send(rmqpy.Message(TOPIC, f"later {index}".encode(), delay_level=TWO_HOURS))


def served(folder: Folder) -> Served:
    """Return everything the broker serves of the topic and of its pending delayed messages."""
    queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)] + [(SCHEDULE_TOPIC, TWO_HOURS - 1)]
    return {queue: folder.queue(*queue) for queue in queues}


def check(folder: Folder, expected: Served) -> None:
    """Check that the broker serves exactly this, by every way to query a message."""
    found = served(folder)
    for queue, records in expected.items():
        assert [record.raw for record in found[queue]] == [record.raw for record in records], queue
    for (topic, queue_id), records in expected.items():
        if topic != TOPIC:
            continue
        for record in records[:: max(1, len(records) // SAMPLES)]:
            assert folder.by_id(record.physical_offset) == record
            for key in (*record.properties["KEYS"].split(" "), record.properties["UNIQ_KEY"]):
                assert record in folder.by_key(TOPIC, key), key
            first = next(other for other in records if other.store_time_ms == record.store_time_ms)
            assert (
                wire.offset_by_time(folder.broker, TOPIC, queue_id, record.store_time_ms)
                == first.queue_offset
            )
    assert wire.committed(folder.broker, wire.READER, TOPIC, 0) == 7


def count(everything: Served) -> int:
    """Messages in all queues."""
    return sum(len(records) for records in everything.values())


@pytest.mark.timeout(300 + MESSAGES // 50)
def test_a_folder_goes_from_apache_to_rmqpy_and_back_and_serves_every_byte(
    originals: Callable[[str], Path], client_of: Callable[[str], InteropClient], namesrv: str, tmp_path: Path
) -> None:
    admin = client_of("java-5.5.0")
    assert isinstance(admin, ProcessClient)
    settings = SMALL_FILES | WRITE_PATH | {"messageDelayLevel": servers.APACHE_DELAY_LEVELS}
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **settings)
    with folder.served_by("apache"):
        wire.create_topic(namesrv, folder.broker, TOPIC, QUEUES)
        write(folder, "first", MESSAGES)
        delay(folder, 10)
        expected = served(folder)
        wire.commit(folder.broker, wire.READER, TOPIC, 0, 7)
        assert count(expected) == MESSAGES + 10
        check(folder, expected)
        metadata.fill(folder, admin)
        configured = metadata.described(folder)
    folder.verify()

    metadata.add_members(folder)
    before = metadata.contents(folder)
    with folder.served_by("rmqpy"):
        check(folder, expected)
        assert not metadata.lost(configured, metadata.described(folder))
        metadata.change(folder, admin)
        write(folder, "second", MORE)
        expected = served(folder)
        assert count(expected) == MESSAGES + MORE + 10
    folder.verify()
    metadata.check(before, metadata.contents(folder))

    with folder.served_by("apache") as broker:
        check(folder, expected)
        assert not metadata.lost(configured, metadata.described(folder))
        write(folder, "third", MORE)
        expected = served(folder)
        broker.kill()
    folder.verify()

    with folder.served_by("rmqpy") as broker:
        check(folder, expected)
        write(folder, "fourth", MORE)
        expected = served(folder)
        assert count(expected) == MESSAGES + 3 * MORE + 10
        broker.kill()
    folder.verify()
    folder.drain()

    with folder.served_by("apache") as broker:
        check(folder, expected)
        broker.kill()  # It takes ten seconds to stop in order, and that it does so well was seen above.
    folder.verify()
