"""A slave of ours that acts for its master, ours or Apache's, at Apache's name server. All are processes, and the
master is killed."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import rmqpy
import waiting
from rmqpy.admin.replicas import ReplicaState

from . import servers, wire
from .folders import Folder

SECONDS_MAX = 60.0
until = partial(waiting.until, seconds=SECONDS_MAX)
ACTS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "totalReplicas": 2,
    "messageDelayLevel": "1s 15s",
    "haSendHeartbeatInterval": 500,
    # Apache's master waits for a connection from the address its slave has in routes.
    "brokerIP2": "127.0.0.1",
    "haListenAddress": "127.0.0.1",
}
MESSAGES = 40


@pytest.fixture
def namesrv(originals: Callable[[str], Path], tmp_path: Path) -> Iterator[str]:
    settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with servers.apache_name_server(originals("apache"), tmp_path, **settings) as (address, _):
        yield address


def slave_of(admin: rmqpy.Admin) -> ReplicaState | None:
    states = admin.replicas("broker-a")
    return next((state for state in states if state.broker_id == 1), None)


def is_copied(admin: rmqpy.Admin, folder: Folder) -> bool:
    """Return whether the slave has all of its master's log, topics and groups."""
    state = slave_of(admin)
    files = [folder.home / "store" / "config" / name for name in ("topics.json", "subscriptionGroup.json")]
    if not all(file.exists() for file in files) or state is None or not state.in_sync:
        return False
    wanted = ("orders" in files[0].read_text(), "billing" in files[1].read_text())
    return wanted == (True, True) and state.behind_bytes == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("leads", ["rmqpy", "apache"])
def test_consumption_and_delays_continue_at_our_slave_without_repeats(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path, leads: str
) -> None:
    jars = originals("apache")
    other = Folder.make(tmp_path / "other", namesrv, jars, brokerName="broker-b")
    master = Folder.make(tmp_path / "master", namesrv, jars, **ACTS)
    slave = Folder.make(tmp_path / "slave", namesrv, jars, **ACTS, brokerRole="SLAVE", brokerId=1)
    received: list[tuple[str, str]] = []
    config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.5)
    consumer = rmqpy.PushConsumer("billing", config, start_from="earliest")
    consumer.on("orders", "*", lambda message: received.append((message.text(), message.queue.broker)))
    with (
        ExitStack() as running,
        other.served_by("rmqpy"),
        rmqpy.Admin(namesrv) as admin,
        rmqpy.Producer(config) as producer,
    ):
        with master.served_by(leads) as leading:
            until(lambda: all(wire.knows(namesrv, name) for name in ("broker-a", "broker-b")))
            admin.create_topic("orders", read_queues=2, write_queues=2)
            admin.create_group("billing")
            until(lambda: {queue.broker for queue in producer.queues("orders")} == {"broker-a", "broker-b"})
            [queue, *_] = [queue for queue in producer.queues("orders") if queue.broker == "broker-a"]
            running.enter_context(slave.served_by("rmqpy"))
            producer.send("orders", "later", queue=queue, delay_level=2)
            for number in range(MESSAGES):
                producer.send("orders", f"body {number}", queue=queue)
            until(lambda: is_copied(admin, slave))
            leading.kill()
        until(lambda: (state := slave_of(admin)) is not None and bool(state.acting))
        with consumer:
            until(lambda: len(received) > MESSAGES)
            assert received.count(("later", "broker-b")) == 1
            assert {body for body, broker in received if broker == "broker-a"} == {
                f"body {number}" for number in range(MESSAGES)
            }
            with master.served_by(leads):
                until(lambda: any(state.broker_id == 0 for state in admin.replicas("broker-a")))
                until(lambda: (state := slave_of(admin)) is not None and not state.acting)
                producer.send("orders", "last", queue=queue, delay_level=1)
                until(lambda: any(body == "last" for body, _ in received))
                # Before the master dies again: the slave may not know its latest deliveries.
                bodies = Counter(body for body, _ in received)
    assert {body: count for body, count in bodies.items() if count > 1} == {}
    assert len(bodies) == MESSAGES + 2
