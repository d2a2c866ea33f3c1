"""Reads of official consumers while the master dies: they continue at its slave, and no message is skipped.

The master is killed when the first messages have come; the slave has all of them by then. Java asks for routes every
2 s here, Go every 30 s and cannot be told otherwise.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import rmqpy
import waiting
from rmqpy.admin.replicas import ReplicaState

from . import servers, wire
from .clients import InteropClient, Listener, ProcessClient
from .folders import Folder
from .messages import Received

MESSAGES = 20_000
QUEUES = 2
SECONDS_MAX = 60.0
until = partial(waiting.until, seconds=SECONDS_MAX, pause=0.01)
#: Between two routes, of either client.
ROUTE_SECONDS = {"java-5.5.0": 2.0, "go": 30.0}
READS = {"slaveReadEnable": "true"}
ACTS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "totalReplicas": 2,
    "messageDelayLevel": "1s 8s",
}

pytestmark = pytest.mark.timeout(200, func_only=True)


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with servers.rmqpy_name_server(tmp_path, supportActingMaster="true") as (address, _):
        yield address


def slave_of(admin: rmqpy.Admin) -> ReplicaState | None:
    return next((state for state in admin.replicas("broker-a") if not state.is_master), None)


def has_all(admin: rmqpy.Admin) -> bool:
    state = slave_of(admin)
    return state is not None and state.in_sync is True and state.behind_bytes == 0


def send(namesrv: str, queues: Sequence[rmqpy.MessageQueue]) -> None:
    with rmqpy.Producer(namesrv) as producer:
        pending = [
            producer.submit("orders", b"%d" % number, queue=queues[number % len(queues)])
            for number in range(MESSAGES)
        ]
        for future in pending:
            future.result(timeout=SECONDS_MAX)


class Silence:
    """The longest time without a message since this began, as a thread watches it."""

    def __init__(self, listener: Listener) -> None:
        self.longest = 0.0
        self._listener = listener
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        count, last = len(self._listener.consumed()), time.monotonic()
        while not self._is_over.wait(0.02):
            now = time.monotonic()
            if (found := len(self._listener.consumed())) > count:
                count, last = found, now
            self.longest = max(self.longest, now - last)

    def end(self) -> float:
        self._is_over.set()
        self._thread.join()
        return self.longest


def bodies(messages: Sequence[Received]) -> set[bytes]:
    return {message.body for message in messages}


def assert_in_order(messages: Sequence[Received]) -> None:
    """Of each queue every message came first after the one before it."""
    ends: dict[int, int] = {}
    for message in messages:
        end = ends.get(message.queue_id, 0)
        assert message.queue_offset <= end, (
            f"queue {message.queue_id} goes from {end} to {message.queue_offset}"
        )
        ends[message.queue_id] = max(end, message.queue_offset + 1)


@pytest.mark.parametrize(("client_name", "acts"), [("java-5.5.0", False), ("java-5.5.0", True), ("go", True)])
def test_official_consumer_continues_at_our_slave(
    client_of: Callable[[str], InteropClient], namesrv: str, tmp_path: Path, client_name: str, acts: bool
) -> None:
    client = client_of(client_name)
    assert isinstance(client, ProcessClient)
    settings = ACTS if acts else READS
    soon = {"haSendHeartbeatInterval": 500, **settings}
    master = Folder.make(tmp_path / "master", namesrv, tmp_path, **soon)
    slave = Folder.make(tmp_path / "slave", namesrv, tmp_path, **soon, brokerRole="SLAVE", brokerId=1)
    other = Folder.make(tmp_path / "other", namesrv, tmp_path, brokerName="broker-b")
    with ExitStack() as running, rmqpy.Admin(namesrv) as admin:
        leading = running.enter_context(master.served_by("rmqpy"))
        running.enter_context(slave.served_by("rmqpy"))
        if acts:
            running.enter_context(other.served_by("rmqpy"))
        until(lambda: wire.knows(namesrv, "broker-a") and (not acts or wire.knows(namesrv, "broker-b")))
        admin.create_topic("orders", read_queues=QUEUES, write_queues=QUEUES)
        admin.create_group("billing")
        with rmqpy.Producer(namesrv) as producer:
            queues = [queue for queue in producer.queues("orders") if queue.broker == "broker-a"]
            until(lambda: slave_of(admin) is not None)
            if acts:
                producer.send("orders", b"later", queue=queues[0], delay_level=2)
        send(namesrv, queues)
        until(lambda: has_all(admin))
        listener = client.listen(namesrv, "orders", "billing", ordered=acts)
        until(lambda: bool(listener.consumed()))
        silence = Silence(listener)
        leading.kill()
        before = len(listener.consumed())
        assert before < MESSAGES, "it dies in the middle"
        wanted = {b"%d" % number for number in range(MESSAGES)} | ({b"later"} if acts else set())
        until(lambda: len(listener.consumed()) >= MESSAGES)
        longest = silence.end()
        until(lambda: bodies(listener.consumed()) >= wanted)
        consumed = listener.stop()
    assert bodies(consumed) == wanted
    later = [message for message in consumed if message.body == b"later"]
    assert len(later) == acts, "it came once, by the other broker"
    if acts:
        assert_in_order([message for message in consumed if message.body != b"later"])
    repeats = len(consumed) - len(wanted)
    print(f"{client_name}, {acts=}: {before} before, silence of {longest:.2f} s, {repeats} repeats")
    assert longest < ROUTE_SECONDS[client_name] + 5.0
