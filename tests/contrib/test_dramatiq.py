"""The Dramatiq broker with Dramatiq's own workers."""

import time
from collections.abc import Iterator

import dramatiq
import pytest

import rmqpy
from rmqpy.contrib.dramatiq import RocketMQBroker
from rmqpy.server import Standalone
from waiting import until


@pytest.fixture
def broker(server: Standalone) -> Iterator[RocketMQBroker]:
    broker = RocketMQBroker(server.namesrv)
    yield broker
    broker.close()


def test_actors_run_retry_and_wait(broker: RocketMQBroker, server: Standalone) -> None:
    ran: list[tuple[str, float]] = []

    @dramatiq.actor(broker=broker, queue_name="greetings", max_retries=2, min_backoff=200, max_backoff=200)
    def greet(name: str) -> None:
        ran.append((name, time.time()))
        if name == "fails" and [each for each, _ in ran].count("fails") < 2:
            raise RuntimeError("not yet")
        if name == "poison":
            raise RuntimeError("never")

    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    try:
        for number in range(20):
            greet.send(f"n{number}")
        due = time.time() + 0.5
        greet.send_with_options(args=("late",), delay=500)
        greet.send("fails")
        greet.send("poison")
        until(lambda: len(ran) == 26)
        [late] = [at for name, at in ran if name == "late"]
        assert late >= due
        assert sorted(name for name, _ in ran if name.startswith("n")) == sorted(f"n{n}" for n in range(20))
        broker.join("greetings", timeout=60_000)
        with rmqpy.Admin(server.namesrv) as admin:
            until(lambda: [row.messages for row in admin.dead_letters()] == [1])
    finally:
        worker.stop()
    greet.send("dropped")
    broker.flush("greetings")
    broker.join("greetings", timeout=5_000)


def test_join_waits_for_delayed_messages(broker: RocketMQBroker) -> None:
    ran: list[str] = []

    @dramatiq.actor(broker=broker, queue_name="later")
    def note(name: str) -> None:
        ran.append(name)

    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    try:
        note.send_with_options(args=("late",), delay=1_500)
        broker.join("later", timeout=60_000)
        assert ran == ["late"]
    finally:
        worker.stop()
