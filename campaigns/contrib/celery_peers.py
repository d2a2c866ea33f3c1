"""The same Celery load on rmqpy, Redis and RabbitMQ: `make campaign NAME=celery-peers`, TASKS (10000) and KILLS (20).

Goal: rmqpy runs at least 80 % of Redis's tasks a second, and loses none. Method, for each broker in turn, with Celery's
own prefork workers and late acknowledgements:

1. Throughput: tasks that do nothing are sent, then two workers of four processes start; tasks a second from the first
   run to the last.
2. Latency: tasks at 50 a second; the time from `apply_async` to the start, p50 and p99.
3. Kills: a worker is killed each second, after each fifth the broker; lost and repeated tasks, at the end.

CPU seconds and the largest resident memory are those of the broker, and of the workers with their children, in the
first two parts. Redis and RabbitMQ are Debian's `redis-server` and `rabbitmq-server`; a missing one is left out.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from celery import Celery

from campaigns.contrib.peers import PEERS, Peer

WORKERS = 2
PROCESSES = 4
RATE = 50
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage:
    """CPU seconds and largest memory of process groups, sampled while they run."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self.cpu: dict[str, dict[int, float]] = {name: {} for name in groups}
        self.memory: dict[str, int] = dict.fromkeys(groups, 0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._is_over.wait(0.5):
            sizes: dict[str, int] = defaultdict(int)
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit():
                    continue
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                for name, groups in self._groups.items():
                    if int(fields[2]) in groups or int(fields[3]) in groups:
                        self.cpu[name][int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICK
                        sizes[name] += int(fields[21]) * _PAGE
            for name, size in sizes.items():
                self.memory[name] = max(self.memory[name], size)

    def end(self) -> dict[str, Any]:
        """Return CPU seconds and MiB by name."""
        self._is_over.set()
        self._thread.join()
        return {
            name: {"cpu_s": round(sum(self.cpu[name].values()), 1), "mib": self.memory[name] >> 20}
            for name in self._groups
        }


class Run:
    """One broker under load."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self.peer = peer
        self.ledger = folder / "ledger"
        self._folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self.app = Celery("campaign", broker=peer.url, backend="disabled://", set_as_current=False)
        self.app.conf.update(broker_transport_options=peer.transport_options)

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start a worker of several processes."""
        command = [*(sys.executable, "-m", "celery", "-A", "campaigns.contrib.celery_tasks", "worker")]
        command += [
            "-P",
            "prefork",
            "-c",
            str(PROCESSES),
            "-n",
            f"w{number}@campaign",
            "--loglevel",
            "warning",
        ]
        with (self._folder / f"w{number}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "BROKER_URL": self.peer.url,
                    "LEDGER": str(self.ledger),
                    "TRANSPORT_OPTIONS": json.dumps(self.peer.transport_options),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def send(self, task: str) -> tuple[str, float]:
        """Send a task until it is accepted; return its id and when the call began."""
        began = time.time()
        policy = {"max_retries": None, "interval_start": 0.1, "interval_max": 0.5}
        sent = self.app.send_task(task, retry=True, retry_policy=policy)
        return sent.id, began

    def runs(self) -> dict[str, list[tuple[str, float]]]:
        """What the ledger has of each task."""
        found: dict[str, list[tuple[str, float]]] = defaultdict(list)
        if self.ledger.exists():
            for line in self.ledger.read_text().splitlines():
                what, task, _, at = line.split()
                found[task].append((what, float(at)))
        return found

    def wait(self, tasks: set[str], idle_s: float) -> dict[str, list[tuple[str, float]]]:
        """Wait until all tasks have ended, or nothing has happened for this time."""
        last, changed = -1, time.monotonic()
        while True:
            runs = self.runs()
            ended = sum(any(what == "end" for what, _ in runs.get(task, ())) for task in tasks)
            if ended == len(tasks) or time.monotonic() - changed > idle_s:
                return runs
            if ended != last:
                last, changed = ended, time.monotonic()
            time.sleep(0.3)

    def stop_workers(self) -> None:
        """End all workers."""
        for worker in self.workers:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.workers = []


def load(run: Run, tasks: int, latencies: int) -> dict[str, Any]:
    """Measure throughput and latency."""
    sent = {run.send("nothing")[0] for _ in range(tasks)}
    run.workers = [run.start_worker(number) for number in range(WORKERS)]
    usage = Usage({"broker": [run.peer.pid], "workers": [worker.pid for worker in run.workers]})
    runs = run.wait(sent, 60)
    begins = [at for task in sent for what, at in runs.get(task, ()) if what == "begin"]
    ends = [at for task in sent for what, at in runs.get(task, ()) if what == "end"]
    rate = len(ends) / (max(ends) - min(begins)) if ends else 0.0
    began = dict(run.send("nothing") for _ in _paced(latencies, RATE))
    runs = run.wait(set(began), 30)
    late = sorted(at - began[task] for task in began for what, at in runs.get(task, ()) if what == "begin")
    figures = usage.end()
    return {
        "tasks_per_s": round(rate),
        "p50_ms": round(1e3 * late[len(late) // 2], 1) if late else None,
        "p99_ms": round(1e3 * late[int(len(late) * 0.99)], 1) if late else None,
        **{f"{name}_{what}": value for name, both in figures.items() for what, value in both.items()},
    }


def kill(run: Run, tasks: int, kills: int) -> dict[str, Any]:
    """Kill workers and the broker while tasks are sent; count losses and repeats."""
    sent: set[str] = set()

    def send() -> None:
        for _ in _paced(tasks, tasks / (0.9 * kills)):
            sent.add(run.send("count")[0])

    sender = threading.Thread(target=send)
    sender.start()
    for number in range(kills):
        time.sleep(1.0)
        victim = random.randrange(WORKERS)
        os.killpg(run.workers[victim].pid, signal.SIGKILL)
        run.workers[victim].wait()
        run.workers[victim] = run.start_worker(victim)
        if number % 5 == 4:
            run.peer.kill()
            run.peer.start()
    sender.join()
    runs = run.wait(sent, 60)
    begins = [sum(what == "begin" for what, _ in runs.get(task, ())) for task in sent]
    lost = sum(not any(what == "end" for what, _ in runs.get(task, ())) for task in sent)
    return {"killed_tasks": len(sent), "lost": lost, "repeated": sum(max(0, count - 1) for count in begins)}


def _paced(count: int, rate: float) -> Any:
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--brokers", default=",".join(PEERS))
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for name in arguments.brokers.split(","):
        kind = PEERS[name]
        if not kind.is_installed():
            print(f"{name}: not installed, left out")
            continue
        with tempfile.TemporaryDirectory(prefix=f"celery-{name}-") as folder:
            peer = kind(Path(folder) / "broker")
            run = Run(peer, Path(folder))
            try:
                peer.start()
                results[name] = load(run, arguments.tasks, max(100, arguments.tasks // 10))
                results[name] |= kill(run, max(200, arguments.tasks // 5), arguments.kills)
            finally:
                run.app.close()
                run.stop_workers()
                peer.close()
        print(f"{name}: " + ", ".join(f"{key}={value}" for key, value in results[name].items()), flush=True)
    if arguments.report:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(json.dumps(results, indent=1) + "\n")
    own, redis = results.get("rmqpy", {}), results.get("redis")
    is_good = own.get("lost", 0) == 0 and (
        not (own and redis) or own["tasks_per_s"] >= 0.8 * redis["tasks_per_s"]
    )
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
