"""The load for other brokers tells the truth: what it counts is what their own clients find.

Runs where the brokers and their Python clients are installed, which nothing else needs.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import Kafka, Nats, OtherSystem, Redis
from benchmarks.servers import example

TOPIC = "counted"
BODY = bytes(ord("a") + at * 7 % 26 for at in range(100))
# The program is built first.
pytestmark = pytest.mark.timeout(600)

generator = cache(lambda: example("peer_load", "dev"))


def load(system: OtherSystem, work: str, *options: str) -> dict[str, Any]:
    command = system.load_command(work, TOPIC, *options, "--warm-up", "0")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["refused"], result["unanswered"]) == ([], 0)
    return result


def started(kind: type[OtherSystem], folder: Path) -> Iterator[OtherSystem]:
    if missing := kind.missing_client():
        pytest.skip(missing)
    with kind(folder, generator()) as system:
        yield system


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Kafka, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Nats, tmp_path_factory.mktemp("nats"))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Redis, tmp_path_factory.mktemp("redis"))


def bodies_in_kafka(address: str, count: int) -> list[bytes]:
    """So many of the topic's messages, and whatever comes with the last of them. Their checksums are verified."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    found: list[bytes] = []
    settings = {"bootstrap.servers": address, "group.id": "check", "check.crcs": True}
    consumer = Consumer(settings)
    partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
    ends = [
        consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30) for number in partitions
    ]
    assert sum(end - begin for begin, end in ends) == count
    while len(found) < count and (messages := consumer.consume(count, timeout=30)):
        found += [message.value() for message in messages]
    consumer.close()
    return found


def test_kafka_holds_what_was_counted_and_every_record_of_a_batch_is_whole(kafka: OtherSystem) -> None:
    single = load(kafka, "produce", "-c", "3", "-w", "5", "-s", "100", "--count", "1000")
    batches = load(kafka, "produce", "-c", "2", "-w", "2", "-s", "100", "--batch", "32", "--count", "640")
    assert (single["messages_total"], batches["messages_total"]) == (1000, 640)
    assert batches["requests_total"] == 20
    assert bodies_in_kafka(kafka.address, 1640) == [BODY] * 1640
    # More than there is: readers start again.
    pulled = load(kafka, "consume", "-c", "2", "-w", "1", "--count", "5000")
    assert pulled["messages_total"] >= 5000
    assert pulled["empty_pulls"] > 0


def test_nats_holds_what_was_counted(nats_server: OtherSystem) -> None:
    sent = load(nats_server, "produce", "-c", "3", "-w", "5", "-s", "100", "--count", "1000")
    assert sent["messages_total"] == 1000

    async def held() -> tuple[int, bytes]:
        import nats

        connection = await nats.connect(f"nats://{nats_server.address}")
        stream = connection.jetstream()
        state = (await stream.stream_info(f"{TOPIC}-0")).state
        first = await stream.get_msg(f"{TOPIC}-0", seq=1)
        await connection.close()
        return state.messages, first.data or b""

    assert asyncio.run(held()) == (1000, BODY)
    # A thousand is no multiple of 32: the last batch is a short one.
    pulled = load(nats_server, "consume", "-c", "2", "-w", "1", "--count", "5000")
    assert pulled["messages_total"] >= 5000
    assert pulled["empty_pulls"] > 0


def test_redis_holds_what_was_counted(redis: OtherSystem) -> None:
    sent = load(redis, "produce", "-c", "3", "-w", "5", "-s", "100", "--count", "1000")
    assert sent["messages_total"] == 1000

    def asked(*words: str) -> str:
        command = ["redis-cli", "-p", redis.address.rpartition(":")[2], *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert sum(int(asked("XLEN", f"{TOPIC}-{queue}")) for queue in range(redis.queues)) == 1000
    assert asked("XRANGE", f"{TOPIC}-0", "-", "+", "COUNT", "1").splitlines()[1:] == ["b", BODY.decode()]
    pulled = load(redis, "consume", "-c", "2", "-w", "1", "--count", "5000")
    assert pulled["messages_total"] >= 5000
    assert pulled["empty_pulls"] > 0


def test_batches_are_refused_where_a_broker_has_none(nats_server: OtherSystem) -> None:
    command = nats_server.load_command("produce", TOPIC, "--batch", "32")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "several messages" in done.stderr
