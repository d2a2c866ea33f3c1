"""Celery's workers and their broker, killed under load: `make campaign NAME=celery`, TASKS (10000) and KILLS (100).

Goal: no task is lost, only tasks in flight are repeated, and scheduled tasks start on time. Method: four prefork
workers with late acknowledgements; every second one of them gets SIGKILL with its children, and after each fifth kill
the broker does. A repeat is explained if the earlier run, or the send of the task, was within `NEAR_S`
of a kill that concerns it. Then workers stay alive, 1,000 tasks with an ETA are sent, and the broker is killed once
before they are due.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from celery import Celery

from benchmarks.waiting import until

WORKERS = 4
ETA_TASKS = 1_000
#: Prefetched and running tasks of a killed worker are in flight, and so are acknowledgements of this time.
NEAR_S = 2.0


def start_broker(folder: Path, ports: list[int]) -> subprocess.Popen[str]:
    """Start a broker on these ports, chosen at the first start; return when it is ready."""
    command = [
        *(sys.executable, "-m", "rmqpy", "standalone", "--data-dir", str(folder / "data")),
        "--no-http",
    ]
    command += ["--namesrv-port", str(ports[0]), "--broker-port", str(ports[1]), "--log-level", "error"]
    command += ["mappedFileSizeCommitLog=67108864"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "ready" in line or str(ports[0]) in line:
            break
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return process


@dataclass
class Run:
    """The processes and the ledger of a campaign."""

    folder: Path
    url: str
    ports: list[int]
    broker: subprocess.Popen[str]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: When a process was killed: workers by their id, 0 for the broker.
    kills: list[tuple[float, int]] = field(default_factory=list)
    sent: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        command = [*(sys.executable, "-m", "celery", "-A", "campaigns.contrib.celery_tasks", "worker")]
        command += ["-P", "prefork", "-c", "2", "-n", f"w{number}@campaign", "--loglevel", "warning"]
        with (self.folder / f"w{number}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env={**os.environ, "BROKER_URL": self.url, "LEDGER": str(self.ledger)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_worker(self, number: int) -> None:
        victim = self.workers[number]
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        self.kills.append((time.time(), victim.pid))
        self.workers[number] = self.start_worker(number)

    def kill_broker(self) -> None:
        self.kills.append((time.time(), 0))
        self.broker.kill()
        self.broker.wait()
        self.broker = start_broker(self.folder, self.ports)
        self.kills.append((time.time(), 0))

    def send(self, app: Celery, count: int, pause_s: float) -> None:
        """Send tasks, each until it is accepted."""
        for _ in range(count):
            began = time.time()
            task = app.send_task(
                "count", retry_policy={"max_retries": None, "interval_start": 0.1, "interval_max": 0.5}
            )
            self.sent[task.id] = (began, time.time())
            time.sleep(pause_s)

    def lines(self) -> dict[str, list[tuple[str, int, float]]]:
        """What the ledger says of each task."""
        found: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
        if self.ledger.exists():
            for line in self.ledger.read_text().splitlines():
                what, task, pid, at = line.split()
                found[task].append((what, int(pid), float(at)))
        return found

    def wait_for_all(self) -> dict[str, list[tuple[str, int, float]]]:
        """Wait until every task has ended, or nothing has happened for a minute."""
        last, changed = 0, time.monotonic()
        while True:
            lines = self.lines()
            ended = sum(any(what == "end" for what, *_ in lines[task]) for task in self.sent if task in lines)
            if ended == len(self.sent) or time.monotonic() - changed > 60:
                return lines
            if ended != last:
                last, changed = ended, time.monotonic()
            time.sleep(0.5)

    def is_explained(self, task: str, at: float, pid: int) -> bool:
        """Whether a kill concerned the run that began at this time in a child of this worker, or the task's send."""
        began, accepted = self.sent[task]
        for killed, victim in self.kills:
            if victim == pid and at <= killed <= at + NEAR_S + 60:
                # Killed after the run began: the task was running, or its acknowledgement in flight.
                return killed - at <= NEAR_S
            if victim == 0 and (at - NEAR_S <= killed <= at + NEAR_S or began - 1 <= killed <= accepted + 1):
                return True
        return False


def kills(run: Run, app: Celery, tasks: int, kills: int) -> bool:
    """Kill workers and the broker while tasks are sent; report losses and repeats."""
    pace = 0.9 * kills / tasks
    sender = threading.Thread(target=run.send, args=(app, tasks, pace))
    began = time.monotonic()
    sender.start()
    broker_kills = 0
    for number in range(kills):
        time.sleep(1.0)
        run.kill_worker(random.randrange(WORKERS))
        if number % 5 == 4:
            run.kill_broker()
            broker_kills += 1
    sender.join()
    lines = run.wait_for_all()
    lost = [task for task in run.sent if not any(what == "end" for what, *_ in lines.get(task, []))]
    repeats, unexplained = 0, []
    for task in run.sent:
        runs = [(at, pid) for what, pid, at in lines.get(task, []) if what == "begin"]
        repeats += max(0, len(runs) - 1)
        for at, pid in runs[:-1]:
            if not run.is_explained(task, at, pid):
                unexplained.append((task, runs))
    print(
        f"{len(run.sent)} tasks, {kills} kills of workers, {broker_kills} of the broker: {len(lost)} lost, "
        f"{repeats} repeated, {len(unexplained)} of them not in flight ({time.monotonic() - began:.0f} s)"
    )
    for task, runs in unexplained[:5]:
        print(f"  {task}: sent {run.sent[task]}, begun {runs}")
    return not lost and not unexplained


def etas(run: Run, app: Celery) -> bool:
    """Send scheduled tasks, kill the broker, and compare their starts with their ETAs."""
    from datetime import UTC, datetime

    run.sent.clear()
    first = time.time() + 25
    due = {}
    for number in range(ETA_TASKS):
        at = first + 20 * number / ETA_TASKS
        began = time.time()
        task = app.send_task("count", eta=datetime.fromtimestamp(at, UTC))
        due[task.id] = at
        run.sent[task.id] = (began, time.time())
    run.kill_broker()
    print(f"scheduled, and the broker is back {first - time.time():.0f} s before the first is due")
    lines = run.wait_for_all()
    late = []
    for task, at in due.items():
        begins = [moment for what, _, moment in lines.get(task, []) if what == "begin"]
        late += [moment - at for moment in begins]
    late.sort()
    lost = ETA_TASKS - len({task for task in due if lines.get(task)})
    early = sum(each < 0 for each in late)
    p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
    print(
        f"{ETA_TASKS} tasks with ETA over a kill of the broker: {lost} lost, {len(late) - ETA_TASKS + lost} repeated, "
        f"{early} early, late p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms, at most {1e3 * late[-1]:.0f} ms"
    )
    return lost == 0 and early == 0 and p99 <= 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="rmqpy-celery-") as name:
        folder = Path(name)
        ports = [random.randrange(20_000, 30_000), random.randrange(30_000, 32_000)]
        url = f"rocketmq://127.0.0.1:{ports[0]}"
        run = Run(folder, url, ports, start_broker(folder, ports))
        app = Celery("campaign", broker=url, backend="disabled://", set_as_current=False)
        try:
            run.workers = [run.start_worker(number) for number in range(WORKERS)]
            run.send(app, 1, 0)
            until(lambda: run.lines().keys() >= run.sent.keys(), pause=0.1)
            good = kills(run, app, arguments.tasks, arguments.kills)
            time.sleep(5)
            good = etas(run, app) and good
        finally:
            app.close()
            for worker in run.workers:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
            run.broker.kill()
            run.broker.wait()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
