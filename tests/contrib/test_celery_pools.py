"""Celery's pools, and what happens when workers and brokers die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery

import rmqpy
from contrib.workers import Notes, application, environment, worker
from rmqpy.testing import Cluster
from waiting import until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
        yield cluster


@pytest.fixture
def url(cluster: Cluster) -> str:
    return f"rocketmq://{cluster.namesrv}"


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Celery]:
    with application(url, tmp_path) as app:
        yield app


def due_in(app: Celery, seconds: float) -> float:
    """Send a task with a countdown; return when it is due at the earliest."""
    before = time.time()
    app.send_task("mark", ("due",), countdown=seconds)
    return before + seconds


@pytest.mark.parametrize(
    "arguments",
    [("threads", "4"), ("gevent", "20"), ("solo", "1"), ("prefork", "2")],
    ids=lambda arguments: arguments[0],
)
def test_pool_runs_tasks(
    app: Celery, url: str, tmp_path: Path, notes: Notes, arguments: tuple[str, str]
) -> None:
    pool, concurrency = arguments
    with worker(url, tmp_path, "--pool", pool, "--concurrency", concurrency, VISIBILITY="1") as process:
        results = [app.send_task("add", (number, 1)) for number in range(30)]
        assert [result.get(timeout=60) for result in results] == list(range(1, 31))
        due = due_in(app, 0.7)
        until(lambda: notes.times("due"))
        assert notes.times("due")[0] >= due
        assert app.send_task("flaky", ("flaky",)).get(timeout=60) == 2
        # Three times longer than the visibility timeout.
        app.send_task("late", ("long", 3.0))
        until(lambda: notes.lines("end-long"))
        assert len(notes.lines("begin-long")) == 1
        answer = app.control.inspect(["w1@test"], timeout=5).ping()
        assert answer == {"w1@test": {"ok": "pong"}}
        app.control.shutdown()
        assert process.wait(60) == 0, (tmp_path / "w1.log").read_text()


def test_task_of_a_killed_worker_runs_elsewhere(app: Celery, url: str, tmp_path: Path, notes: Notes) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(worker(url, tmp_path, "--pool", "solo", VISIBILITY="2"))
        app.send_task("late", ("orphan", 1.0))
        until(lambda: notes.lines("begin-orphan"))
        first.send_signal(signal.SIGKILL)
        stack.enter_context(worker(url, tmp_path, "--pool", "solo", name="w2", VISIBILITY="2"))
        until(lambda: notes.lines("end-orphan"))
        assert len(notes.lines("begin-orphan")) == 2


def test_workers_and_scheduled_tasks_survive_restarts_of_brokers(
    app: Celery, url: str, tmp_path: Path, notes: Notes, cluster: Cluster
) -> None:
    with worker(url, tmp_path, "--pool", "threads", "--concurrency", "4") as process:
        due = [due_in(app, 4.0) for _ in range(20)]
        for broker in ("broker-a", "broker-b"):
            cluster.stop(broker)
            for number in range(10):
                app.send_task("mark", (f"during-{broker}-{number}",))
            cluster.start(broker)
        until(lambda: len(notes.lines("during")) >= 20)
        until(lambda: len(notes.lines("due")) >= 20)
        assert len(notes.lines("during")) == 20
        assert len(notes.lines("due")) == 20
        assert min(notes.times("due")) >= min(due)
        assert process.poll() is None


def test_results_travel_over_the_broker(url: str, tmp_path: Path) -> None:
    with (
        worker(url, tmp_path, "--pool", "solo", RESULTS="rpc://"),
        Celery("tests", broker=url, backend="rpc://", set_as_current=False) as app,
    ):
        assert [app.send_task("add", (n, n)).get(timeout=60) for n in range(3)] == [0, 2, 4]
        with rmqpy.Admin(url.removeprefix("rocketmq://")) as admin:
            known = ("celery", "exchange-", "rmq_sys_")
            assert [name for name in admin.topics() if not name.startswith(known)] == []


def test_beat_sends_tasks(url: str, tmp_path: Path, notes: Notes) -> None:
    command = [sys.executable, "-m", "celery", "-A", "contrib.celery_app", "beat"]
    with (
        worker(url, tmp_path, "--pool", "solo"),
        subprocess.Popen(
            command,
            env=environment(url, tmp_path, BEAT="1"),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as beat,
    ):
        until(lambda: len(notes.lines("tick")) >= 3)
        beat.terminate()


def test_workers_share_one_queue(app: Celery, url: str, tmp_path: Path, notes: Notes) -> None:
    with rmqpy.Admin(url.removeprefix("rocketmq://")) as admin:
        admin.create_topic("celery", read_queues=1, write_queues=1)
    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(worker(url, tmp_path, "--pool", "solo", name=f"w{number}", PREFETCH="1"))
        for number in range(6):
            app.send_task("late", (f"shared-{number}", 0.5))
        until(lambda: len(notes.lines("end-shared")) == 6)
        assert len({line.split()[2] for line in notes.lines("end-shared")}) == 3, os.linesep.join(
            notes.lines()
        )
