"""Celery's worker, unmodified, with a broker in this process."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from celery import Celery, chain, chord, group, signature

import rmqpy
from contrib.workers import Notes, application, environment, worker
from rmqpy.server import Standalone
from waiting import until


@pytest.fixture(scope="module")
def url(server: Standalone) -> str:
    return f"rocketmq://{server.namesrv}/shop"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("celery")


@pytest.fixture(scope="module")
def app(url: str, folder: Path) -> Iterator[Celery]:
    with application(url, folder) as app:
        yield app


@pytest.fixture(scope="module")
def notes(folder: Path) -> Notes:
    return Notes(folder)


@pytest.fixture(scope="module", autouse=True)
def prefork(url: str, folder: Path, app: Celery) -> Iterator[subprocess.Popen[bytes]]:
    with worker(url, folder, "--pool", "prefork", "--concurrency", "2") as process:
        yield process


def test_tasks_return_results(app: Celery) -> None:
    results = [app.send_task("add", (number, 1)) for number in range(50)]
    assert [result.get(timeout=60) for result in results] == list(range(1, 51))


def test_canvas_runs(app: Celery) -> None:
    add = signature("add", app=app)
    assert chain(add.clone((1, 2)), add.clone((4,)), app=app)().get(timeout=60) == 7
    assert group([add.clone((n, n)) for n in range(5)], app=app)().get(timeout=60) == [0, 2, 4, 6, 8]
    assert (
        chord([add.clone((n, n)) for n in range(5)], signature("total", app=app), app=app)().get(timeout=60)
        == 20
    )


def test_countdown_is_kept_by_the_broker(app: Celery, notes: Notes, server: Standalone) -> None:
    due = time.time() + 1.0
    app.send_task("mark", ("on-time",), eta=datetime.fromtimestamp(due, UTC))
    with rmqpy.Admin(server.namesrv) as admin:
        until(lambda: admin.pending_timers("shop%celery"))
    until(lambda: notes.lines("on-time"))
    [started] = notes.times("on-time")
    assert started >= due


def test_retries_wait_at_the_broker(app: Celery, notes: Notes) -> None:
    assert app.send_task("flaky", ("flaky",)).get(timeout=60) == 2
    first, second, third = notes.times("flaky")
    assert second - first >= 0.5
    assert third - second >= 0.5


def test_revoked_task_is_recalled(app: Celery, server: Standalone) -> None:
    result = app.send_task("mark", ("revoked",), countdown=30)
    with rmqpy.Admin(server.namesrv) as admin:
        until(lambda: admin.pending_timers("shop%celery"))
        app.control.revoke(result.id)
        until(lambda: not admin.pending_timers("shop%celery"))


@pytest.mark.parametrize("requeue", [True, False])
def test_rejected_task_comes_again_or_is_a_dead_letter(
    app: Celery, notes: Notes, server: Standalone, requeue: bool
) -> None:
    what = f"picky-{requeue}"
    app.send_task("picky", (what, requeue))
    until(lambda: len(notes.lines(what)) == 1 + requeue)
    if not requeue:
        with rmqpy.Admin(rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")) as admin:
            until(lambda: [row.messages for row in admin.dead_letters()] == [1])


def test_time_limit_ends_a_task(app: Celery) -> None:
    with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
        app.send_task("slow").get(timeout=60)


def test_other_processes_control_a_worker(app: Celery, url: str, folder: Path) -> None:
    assert app.control.inspect(["w1@test"], timeout=5).ping() == {"w1@test": {"ok": "pong"}}
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-b", url, "inspect", "-d", "w1@test", "ping"],
        env=environment(url, folder),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 node online" in done.stdout
    [answer] = app.control.rate_limit("mark", "10/s", destination=["w1@test"], reply=True, timeout=5)
    assert answer == {"w1@test": {"ok": "new rate limit set successfully"}}


def test_events_reach_other_processes(app: Celery) -> None:
    seen: list[str] = []

    def note(event: dict[str, str]) -> None:
        seen.append(event["type"])
        if "task-succeeded" in seen:
            receiver.should_stop = True

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": note})
        threading.Timer(0.5, app.send_task, ("add", (1, 1))).start()
        receiver.capture(limit=None, timeout=5)
    assert {"task-received", "task-started", "task-succeeded"} <= set(seen)


def test_size_and_purge_count_messages(app: Celery) -> None:
    for _ in range(5):
        app.send_task("add", (1, 1), queue="unread")
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        assert channel.queue_declare("unread", passive=True).message_count == 5
        assert channel.queue_purge("unread") == 5
        assert channel.queue_declare("unread", passive=True).message_count == 0


def test_worker_shuts_down_when_told(
    app: Celery, prefork: subprocess.Popen[bytes], folder: Path, notes: Notes
) -> None:
    """The last test of this worker."""
    app.send_task("late", ("stays", 0.5))
    until(lambda: notes.lines("begin-stays"))
    app.control.shutdown()
    assert prefork.wait(60) == 0, (folder / "w1.log").read_text()
    assert notes.lines("end-stays")
