"""Worker processes of Celery, and an application in the test's process that sends tasks to them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

import children
from waiting import until


class Notes:
    """What tasks have noted: a line per execution."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, what: str = "") -> list[str]:
        path = self.folder / "notes"
        text = path.read_text() if path.exists() else ""
        return [line for line in text.splitlines() if line.split()[0].startswith(what)]

    def times(self, what: str) -> list[float]:
        return [float(line.split()[1]) for line in self.lines(what)]


def application(url: str, folder: Path, **more: Any) -> Celery:
    """An application that shares the tasks' names and results."""
    app = Celery("tests", broker=url, backend=f"file://{folder}", set_as_current=False)
    app.conf.update(result_chord_retry_interval=0.1, **more)
    return app


def environment(url: str, folder: Path, **more: str) -> dict[str, str]:
    return children.environment(BROKER_URL=url, FOLDER=str(folder), **more)


@contextmanager
def worker(
    url: str, folder: Path, *arguments: str, name: str = "w1", **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is ready to take tasks; it is killed if it has not ended by itself."""
    log = folder / f"{name}.log"
    command = [*(sys.executable, "-m", "celery", "-A", "contrib.celery_app", "worker", "-n", f"{name}@test")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--loglevel", "info", *arguments],
            env=environment(url, folder, **more),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        until(ready(log, process), seconds=30)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready(log: Path, process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    def is_ready() -> bool:
        text = log.read_text(errors="replace")
        assert process.poll() is None, text
        return " ready." in text

    return is_ready
