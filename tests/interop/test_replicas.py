"""Replicas with one broker of Apache's: the slave's log equals its master's, byte for byte."""

import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import rmqpy
import waiting
from waiting import until

from . import wire
from .folders import Folder, Record, master_and_slave

#: Of one of three rounds.
MESSAGES = int(os.environ.get("RMQPY_REPLICA_MESSAGES", "12000")) // 3
COPIED_SECONDS_MAX = 60.0 + MESSAGES / 2_000
wait_until = partial(waiting.until, seconds=COPIED_SECONDS_MAX, pause=0.2)


def send(namesrv: str, name: str) -> None:
    """Send messages of many sizes, with tags and keys, some of them delayed, to new topics."""
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
    """Return the end of the last record, behind which are zeros."""
    return len(log.rstrip(b"\0"))


def served(folder: Folder, topic: str, queue_id: int) -> list[Record] | None:
    """Return a broker's reply about a queue; `None` while it does not know the topic."""
    try:
        return folder.queue(topic, queue_id)
    except wire.Refused:
        return None


def same_queue(master: Folder, slave: Folder, topic: str, queue_id: int) -> bool:
    return served(slave, topic, queue_id) == served(master, topic, queue_id)


def copy(master: Folder, slave: Folder) -> None:
    """Wait until the slave has the master's log as of the start of this call."""
    end = end_of(log(master))
    until(lambda: end_of(log(slave)) >= end, COPIED_SECONDS_MAX)


@pytest.mark.timeout(400 + 3 * MESSAGES // 500)
@pytest.mark.parametrize(("leads", "follows"), [("apache", "rmqpy"), ("rmqpy", "apache")])
def test_a_slave_that_finds_its_master_by_the_name_server_has_its_bytes_and_queues(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path, leads: str, follows: str
) -> None:
    master, slave = master_and_slave(tmp_path, namesrv, originals("apache"))
    with master.served_by(leads) as leading:
        with slave.served_by(follows):
            # A slave with an empty log begins with its master's last file, so it must exist before the master has a
            # second one.
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
    if leads == "rmqpy":
        # The end of a killed broker's log may be in its write ring.
        master.drain()
    ours = log(slave)[: end_of(log(slave))]
    assert len(ours) > 2 << 20, "the log goes over several files"
    assert log(master).startswith(ours)
    if follows == "rmqpy":
        slave.verify()
