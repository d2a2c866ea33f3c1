"""Tasks for workers of the tests. `$BROKER_URL` names the broker; `$FOLDER` takes results, and a line per execution."""

import os
import time
from pathlib import Path

from celery import Celery, Task
from celery.exceptions import Reject

FOLDER = Path(os.environ["FOLDER"])

app = Celery("tests")
app.conf.update(
    broker_url=os.environ["BROKER_URL"],
    broker_transport_options={"visibility_timeout": float(os.environ.get("VISIBILITY", "5"))},
    result_backend=os.environ.get("RESULTS", f"file://{FOLDER}"),
    result_chord_retry_interval=0.1,
    worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "4")),
    worker_send_task_events=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    beat_schedule_filename=str(FOLDER / "beat"),
    beat_schedule={"tick": {"task": "tick", "schedule": 0.5}} if os.environ.get("BEAT") else {},
)


def note(what: str) -> None:
    """Write a line that the test reads, with the time and the process."""
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{what} {time.time()} {os.getpid()}\n")


@app.task(name="add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="tick")
def tick() -> None:
    note("tick")


@app.task(name="mark")
def mark(what: str) -> None:
    note(what)


@app.task(name="late", acks_late=True)
def late(what: str, seconds: float = 0.0) -> None:
    note(f"begin-{what}")
    # The work.
    time.sleep(seconds)
    note(f"end-{what}")


@app.task(name="flaky", bind=True, max_retries=3)
def flaky(self: Task, what: str) -> int:
    note(what)
    if self.request.retries < 2:
        raise self.retry(countdown=0.5)
    return int(self.request.retries)


@app.task(name="picky", bind=True, acks_late=True)
def picky(self: Task, what: str, requeue: bool) -> None:
    note(what)
    if not self.request.delivery_info["redelivered"]:
        raise Reject("not now", requeue=requeue)


@app.task(name="slow", soft_time_limit=0.5)
def slow() -> None:
    # Until the time limit.
    time.sleep(30)
