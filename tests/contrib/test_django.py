"""Django's tasks, with a worker started by its management command. Django 6 needs Python 3.12."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

pytest.importorskip("django.tasks", reason="Django 6 is not installed")
TESTS = Path(__file__).resolve().parent.parent


def test_tasks_run_in_a_worker(monkeypatch: pytest.MonkeyPatch, server: Standalone, tmp_path: Path) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "contrib.shop.settings")
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    # As Django sets it.
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    import django
    from django.utils import timezone

    django.setup()
    from contrib.shop import tasks

    notes = tmp_path / "notes"
    notes.touch()
    worker = subprocess.Popen(
        [sys.executable, "-m", "django", "rocketmq_worker"],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}/python"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready: default, mail\n"
        tasks.greet.enqueue("Ada")
        due = time.time() + 1.0
        tasks.greet.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue("Grace")
        tasks.mail.enqueue(name="first")
        tasks.mail.enqueue("broken")
        until(lambda: len(notes.read_text().splitlines()) == 4)
        found = dict(line.split() for line in notes.read_text().splitlines())
        assert found.keys() == {"Ada", "Grace", "first-1", "broken-1"}
        assert float(found["Grace"]) >= due
        with rmqpy.Admin(server.namesrv) as admin:
            until(lambda: not any(row.lag or row.in_flight for row in admin.progress("django")))
    finally:
        worker.terminate()
        assert worker.wait(60) == 0
