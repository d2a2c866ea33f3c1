"""The tasks of the Celery campaign. Each writes a line when it begins and when it ends."""

import json
import os
import time

from celery import Celery, Task

app = Celery("campaign", broker=os.environ["BROKER_URL"], backend="disabled://")
app.conf.update(
    broker_transport_options=json.loads(os.environ.get("TRANSPORT_OPTIONS", '{"visibility_timeout": 5}')),
    worker_prefetch_multiplier=4,
    task_acks_late=True,
    worker_send_task_events=False,
)
_LEDGER = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, task: str) -> None:
    """Append one line; a kill cannot tear it."""
    os.write(_LEDGER, f"{what} {task} {os.getppid()} {time.time()}\n".encode())


@app.task(bind=True, name="nothing")
def nothing(self: Task) -> None:
    """Take no time."""
    note("begin", self.request.id)
    note("end", self.request.id)


@app.task(bind=True, name="count")
def count(self: Task) -> None:
    """Take a moment."""
    note("begin", self.request.id)
    time.sleep(0.01)
    note("end", self.request.id)
