"""The applications in examples/tasks, each with a worker that its framework's command starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqpy.server import Standalone
from waiting import until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tasks"
SOURCES = Path(__file__).resolve().parents[2] / "python"
WORKERS = {
    "celery": ["-m", "celery", "-A", "celery_app", "worker", "-c", "1", "--without-gossip"],
    "taskiq": ["-m", "taskiq", "worker", "taskiq_app:broker", "--workers", "1"],
    "dramatiq": ["-m", "dramatiq", "dramatiq_app", "--processes", "1", "--threads", "2"],
    "django": ["django_app.py", "rocketmq_worker"],
}


@pytest.mark.parametrize("framework", WORKERS)
def test_the_application_runs_its_tasks(server: Standalone, tmp_path: Path, framework: str) -> None:
    pytest.importorskip("django.tasks" if framework == "django" else framework)
    environment = {
        **os.environ,
        "NAMESRV_ADDR": server.namesrv,
        "PYTHONPATH": f"{EXAMPLES}:{SOURCES}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONUNBUFFERED": "1",
    }
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, *WORKERS[framework]],
            env=environment,
            cwd=EXAMPLES,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        sent = subprocess.run(
            [sys.executable, f"{framework}_app.py"],
            env=environment,
            cwd=EXAMPLES,
            timeout=60,
            capture_output=True,
            text=True,
        )
        assert sent.returncode == 0, sent.stdout + sent.stderr + log.read_text()
        if framework == "celery":
            assert sent.stdout.split("\n")[:2] == ["charged 10", "5.0"]
        else:
            until(lambda: {"Hello Ada", "Hello Grace"} <= set(greetings(log)), seconds=30)
            assert len(greetings(log)) == 2
    finally:
        worker.terminate()
        try:
            worker.wait(20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def greetings(log: Path) -> list[str]:
    """Return the greetings in a worker's output, whatever its framework puts before them."""
    text = log.read_text(errors="replace")
    return [line[line.index("Hello ") :].strip() for line in text.splitlines() if "Hello " in line]
