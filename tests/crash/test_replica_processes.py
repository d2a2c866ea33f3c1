"""A master and its slave in separate processes: whatever dies, the slave's log equals its master's, byte for byte."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rmqpy
from crash.replica_processes import FILE_BYTES, Replica, caught_up, in_sync, running
from rmqpy.errors import RocketMQError
from waiting import anything, until_async
from wire import TIMEOUT_S, Peer

#: Messages of a round. A pair of logs is compared after three.
ROUND = int(os.environ.get("RMQPY_REPLICA_MESSAGES", "20100")) // 3


@pytest.fixture
def pair(tmp_path: Path, namesrv: str) -> tuple[Replica, Replica]:
    master = Replica(namesrv, tmp_path / "master", {})
    slave = Replica(namesrv, tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1})
    return master, slave


def send_mixed(namesrv: str, topics: str, count: int) -> None:
    """Messages of every kind and many sizes, with topics that are made by the first of theirs."""
    numbers = random.Random(topics)
    with rmqpy.Producer(namesrv, group="mixed") as producer:
        pending = []
        for number in range(count):
            topic = f"{topics}-{number * 8 // count}"
            body = bytes([number % 251]) * (1 + int(numbers.expovariate(1 / 300)))
            match number % 100:
                case 0:
                    pending.append(producer.submit(topic, body, delay_level=1))
                case 1:
                    pending.append(producer.submit(topic, body, deliver_after=0.5))
                case 2 if number % 1000 == 2:
                    with producer.transaction(topic, body):
                        pass
                case 3 if number % 1000 == 3:
                    pending.append(producer.submit(topic, body * 500))
                case kind:
                    pending.append(producer.submit(topic, body, tag=f"t{kind % 3}", keys=[f"k{number}"]))
        for future in pending:
            future.result(timeout=TIMEOUT_S)


async def can_send(namesrv: str) -> None:
    """The master is there again, as producers see it."""

    def send() -> None:
        with rmqpy.Producer(namesrv, group="mixed") as producer:
            producer.send("first-0", b"again")

    await until_async(lambda: asyncio.to_thread(send), anything, failing=RocketMQError)


@pytest.mark.timeout(120 + 3 * ROUND // 500)
async def test_slave_has_its_masters_bytes_whichever_is_killed(
    pair: tuple[Replica, Replica], namesrv: str
) -> None:
    master, slave = pair
    async with running(master, slave):
        await asyncio.to_thread(send_mixed, namesrv, "first", ROUND)
        await caught_up(master, slave)

        sending = asyncio.create_task(asyncio.to_thread(send_mixed, namesrv, "second", ROUND))
        await asyncio.sleep(0)
        await slave.end(signal.SIGKILL)
        await sending
        await slave.start()
        await caught_up(master, slave)

        await master.end(signal.SIGKILL)
        await master.start()
        await can_send(namesrv)
        await asyncio.to_thread(send_mixed, namesrv, "third", ROUND)
        end = await caught_up(master, slave)
        assert end > 2 * FILE_BYTES, "the log goes over several files"
        async with await Peer.connect(f"127.0.0.1:{slave.port}") as peer:
            refused = await peer.call(
                310,
                {"a": "g", "b": "first-0", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"},
                b"x",
            )
        assert refused.code != 0, "a slave takes no messages"
        await slave.end(signal.SIGTERM)
        await master.end(signal.SIGTERM)
    assert slave.log(end) == master.log(end)


async def test_a_pair_is_upgraded_and_no_send_fails(pair: tuple[Replica, Replica], namesrv: str) -> None:
    """Slave first, then a promotion, then the old master as a slave: the procedure of docs/replicas.md."""
    master, slave = pair
    async with running(master, slave):
        await asyncio.to_thread(send_mixed, namesrv, "before", 100)
        await in_sync(master)
        is_over = asyncio.Event()
        sending = asyncio.create_task(asyncio.to_thread(send_until, namesrv, is_over))
        await slave.end(signal.SIGTERM)
        await slave.start()
        await in_sync(master)
        promoted = await asyncio.to_thread(promote, namesrv)
        assert promoted["told"] is True
        await master.end(signal.SIGTERM)
        master.settings = {"brokerRole": "SLAVE", "brokerId": 2}
        await master.start()
        await in_sync(slave)
        is_over.set()
        sent = await sending
        await asyncio.to_thread(find_all, namesrv, sent)
        end = await caught_up(slave, master)
        for each in (slave, master):
            await each.end(signal.SIGTERM)
    assert slave.log(end) == master.log(end)
    print(f"{len(sent)} sent, 0 failed, nobody took messages for {promoted['seconds']} s")


def find_all(namesrv: str, sent: list[bytes]) -> None:
    missing = set(sent)
    deadline = time.monotonic() + TIMEOUT_S
    with rmqpy.PullConsumer("auditors", namesrv, start_from="earliest") as consumer:
        consumer.subscribe("upgraded")
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} are missing"
            missing -= {message.body for message in consumer.poll(timeout=1)}


def promote(namesrv: str) -> dict[str, object]:
    words = ["cluster", "promote", "broker-a", "--id", "1", "-n", namesrv, "-o", "json"]
    command = [sys.executable, "-m", "rmqpy", *words]
    told: dict[str, object] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return told


def send_until(namesrv: str, is_over: asyncio.Event) -> list[bytes]:
    """What was sent, one after the other; raises when a send fails."""
    sent = []
    with rmqpy.Producer(namesrv, group="upgrade") as producer:
        while not is_over.is_set():
            body = b"%d" % len(sent)
            assert producer.send("upgraded", body, timeout=20).ok
            sent.append(body)
    return sent
