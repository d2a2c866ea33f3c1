"""Our slave of Apache's master: its log byte by byte, its offsets, and consumers when the master is dead."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rmqpy
import waiting
from benchmarks.processes import Child
from rmqpy.admin.replicas import ReplicaState
from rmqpy.protocol import fastjson

from . import servers

MESSAGES = 300
SECONDS_MAX = 60.0
until = partial(waiting.until, seconds=SECONDS_MAX)

pytestmark = pytest.mark.timeout(180, func_only=True)


def rmqpy_slave(folder: Path, namesrv: str) -> Child:
    """Our broker as slave, in the folder `rmqpy-slave`."""
    home = folder / "rmqpy-slave"
    home.mkdir()
    settings = {
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "slaveReadEnable": "true",
        "flushConsumerOffsetInterval": 500,
    }
    servers.write_broker_conf(home / "broker.conf", servers.broker_port(), namesrv, **settings)
    return Child("rmqpy-slave", servers.rmqpy_broker_command(), home)


def slave_of(admin: rmqpy.Admin) -> ReplicaState | None:
    return next((state for state in admin.replicas(servers.BROKER_NAME) if not state.is_master), None)


def log_of(home: Path, size: int) -> bytes:
    """The first bytes of the log in a home."""
    return b"".join(path.read_bytes() for path in sorted((home / "store" / "commitlog").iterdir()))[:size]


def saved(home: Path, name: str, member: str) -> dict[str, Any]:
    """Return a table of a home's file; empty before it exists."""
    file = home / "store" / "config" / name
    table: dict[str, Any] = fastjson.loads(file.read_text())[member] if file.exists() else {}
    return table


def offsets_in(home: Path, key: str) -> list[int]:
    """The committed offsets of a group in a topic, one for each queue, as they are in the file of a home."""
    return list(saved(home, "consumerOffset.json", "offsetTable").get(key, {}).values())


def has_all(state: ReplicaState | None) -> bool:
    return state is not None and state.in_sync is True and state.behind_bytes == 0


def test_our_slave_follows_apaches_master_and_serves_after_its_death(
    originals: Callable[[str], Path], tmp_path: Path, namesrv: str
) -> None:
    sent = [f"body {number}" for number in range(MESSAGES)]
    with (
        servers.apache_broker(originals("apache"), tmp_path, namesrv) as (_, master),
        rmqpy.Admin(namesrv) as admin,
    ):
        admin.create_topic("orders", read_queues=4, write_queues=4)
        admin.create_group("billing")
        with rmqpy.Producer(namesrv) as producer:
            queues = producer.queues("orders")
            for body in sent:
                producer.send("orders", body)
        with rmqpy.PullConsumer("billing", namesrv, auto_commit=False) as consumer:
            consumer.assign(queues)
            consumer.commit(dict.fromkeys(queues, 7))
        with rmqpy_slave(tmp_path, namesrv):
            until(lambda: has_all(slave_of(admin)))
            home = tmp_path / "rmqpy-slave"
            # Commits arrive one by one, so the slave may copy offsets between them.
            until(lambda: offsets_in(home, "orders@billing") == [7] * 4)
            until(lambda: "billing" in saved(home, "subscriptionGroup.json", "subscriptionGroupTable"))
            state = slave_of(admin)
            assert state is not None
            assert state.log_end
            master.kill()
            assert log_of(home, state.log_end) == log_of(tmp_path / "apache-broker", state.log_end)
            received: list[str] = []
            member = rmqpy.PushConsumer("billing", namesrv)
            member.on("orders", "*", lambda message: received.append(message.text()))
            with member:
                until(lambda: len(received) >= MESSAGES - 4 * 7)
    assert len(received) == MESSAGES - 4 * 7
    assert set(received) <= set(sent)
