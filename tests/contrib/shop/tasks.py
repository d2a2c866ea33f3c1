"""Tasks of the project. Each writes a line when it runs."""

import os
import time
from pathlib import Path
from typing import Any

from django.tasks import task


def note(what: str) -> None:
    with Path(os.environ["FOLDER"], "notes").open("a") as file:
        file.write(f"{what} {time.time()}\n")


@task
def greet(name: str) -> None:
    note(name)


@task(queue_name="mail", takes_context=True)
async def mail(context: Any, name: str) -> None:
    note(f"{name}-{context.attempt}")
    if name == "broken":
        raise RuntimeError("unknown address")
