"""Master and slave of which one is Apache's: the slave's log is its master's, byte for byte."""

import itertools
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import rmqpy

from . import waiting, wire
from .folders import Folder, Record, master_and_slave

#: Of one of three rounds.
MESSAGES = int(os.environ.get("RMQPY_REPLICA_MESSAGES", "12000")) // 3
COPIED_SECONDS_MAX = 60.0 + MESSAGES / 2_000
wait_until = partial(waiting.until, seconds=COPIED_SECONDS_MAX, pause=0.2)


def send(namesrv: str, name: str) -> None:
    """Messages of many sizes, with tags and keys, some of them delayed, to topics that come with them."""
    numbers = random.Random(name)
    with rmqpy.Producer(namesrv, send_timeout=30.0) as producer:
        pending = []
        for number in range(MESSAGES):
            body = bytes([number % 251]) * (1 + int(numbers.expovariate(1 / 400)))
            topic, key = f"{name}-{number * 4 // MESSAGES}", f"k{number}"
            if number % 200 == 0:
                producer.send(topic, body, delay_level=1)
            elif number % 5 == 0:
                pending.append(producer.submit(topic, body, keys=[key]))
            else:
                pending.append(producer.submit(topic, body, tag=f"t{number % 3}", keys=[key]))
        for future in pending:
            future.result(timeout=COPIED_SECONDS_MAX)


def log(folder: Folder) -> bytes:
    files = sorted((folder.home / "store" / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)


def end_of(log: bytes) -> int:
    """Where the last record ends: what follows are zeros."""
    return len(log.rstrip(b"\0"))


def served(folder: Folder, topic: str, queue_id: int) -> list[Record] | None:
    """What a broker answers of a queue; None while it does not know the topic."""
    try:
        return folder.queue(topic, queue_id)
    except wire.Refused:
        return None


def same_queue(master: Folder, slave: Folder, topic: str, queue_id: int) -> bool:
    return served(slave, topic, queue_id) == served(master, topic, queue_id)


def copy(master: Folder, slave: Folder) -> None:
    """Wait until the slave has what the master had when this began."""
    end = end_of(log(master))
    deadline = time.monotonic() + COPIED_SECONDS_MAX
    while end_of(log(slave)) < end:
        assert time.monotonic() < deadline, f"the slave has {end_of(log(slave))} of {end} bytes"
        time.sleep(0.2)


@pytest.mark.timeout(400 + 3 * MESSAGES // 500)
@pytest.mark.parametrize(("leads", "follows"), [("apache", "rmqpy"), ("rmqpy", "apache")])
def test_a_slave_that_finds_its_master_by_the_name_server_has_its_bytes_and_queues(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path, leads: str, follows: str
) -> None:
    master, slave = master_and_slave(tmp_path, namesrv, originals("apache"))
    with master.served_by(leads) as leading:
        with slave.served_by(follows):
            # A slave with an empty log begins with its master's last file: it has to be there before there is a second.
            with rmqpy.Producer(namesrv, send_timeout=30.0) as producer:
                producer.send("begin", b"begin")
            copy(master, slave)
            send(namesrv, "first")
            copy(master, slave)
        send(namesrv, "meanwhile")
        with slave.served_by(follows):
            copy(master, slave)
            send(namesrv, "last")
            copy(master, slave)
            if follows == "rmqpy":
                # Apache's slave asks for topics a minute after its start.
                for part, queue_id in itertools.product(("first", "meanwhile", "last"), range(4)):
                    wait_until(partial(same_queue, master, slave, f"{part}-3", queue_id))
            leading.kill()
    ours = log(slave)[: end_of(log(slave))]
    assert len(ours) > 2 << 20, "the log goes over several files"
    assert log(master).startswith(ours)
    if follows == "rmqpy":
        slave.verify()
