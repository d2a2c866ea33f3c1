"""A Spark pipeline that is killed repeatedly: `make campaign NAME=spark`, SPARK_KILLS (30) times.

Goal: nothing is lost and nothing is counted twice, whichever process dies. Method: a broker, a feeder, and a driver
with two executors, each in its own process (`pipeline.py`). The driver or an executor gets SIGKILL. For every second
kill the broker is paused in short turns, so that sending takes long, and the kill waits until the second topic grows:
that kill interrupts a send. At the end both topics are read and compared message by message.

A kill of a driver costs half a minute, the start of the next one.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import rmqpy
from campaigns.spark.command import run
from campaigns.spark.pipeline import SOURCE, TARGET, WINDOW_S

PIPELINE = Path(__file__).with_name("pipeline.py")
#: Maximum wait for any step: the machine may be busy, and Spark is slow to start.
TIMEOUT_S = 300.0
#: In a row, without a kill.
DRIVERS_MAX = 20
#: How long the broker runs between pauses, and the length of a pause. A task's sends take several dozens of them.
GLIMPSE_S, PAUSE_S = 0.002, 0.03
#: Pauses without new messages after which sending is over.
SILENCES_MAX = 5
#: Finds every process of a campaign, its grandchildren included: environments are handed on.
MARK = "RMQPY_CAMPAIGN"


# --- processes ---


class Ended(Exception):
    """A process ended by itself."""


class Child:
    """A process of the pipeline, and its output."""

    def __init__(self, mark: str, *arguments: str, program: Sequence[str] = (str(PIPELINE),)) -> None:
        self._name = arguments[0]
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {MARK: mark},
            # Ctrl-C is for the campaign, which then ends them. If the campaign is killed, the kernel continues a
            # separate group with a stopped process, which then ends with its standard input.
            process_group=0,
        )
        self._lines: list[str] = []
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.append(line.strip())

    def wait_for_lines(self, more: int) -> str:
        """Return the last of so many more lines. Raises `Ended`, or `TimeoutError`."""
        wanted = len(self._lines) + more
        deadline = time.monotonic() + TIMEOUT_S
        while len(self._lines) < wanted:
            if not self.is_running:
                raise Ended(self._name)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._name} does not go on")
            time.sleep(0.02)
        return self._lines[wanted - 1]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Let it finish."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def marked(mark: str) -> Iterator[tuple[int, bytes]]:
    """Process id and command of everything a campaign has started, directly or not."""
    wanted = f"{MARK}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name), (process / "cmdline").read_bytes()


def kill_marked(mark: str, name: bytes = b"") -> None:
    """SIGKILL to those whose command has this name in it."""
    for pid, command in marked(mark):
        if name in command:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- the attack ---


@dataclass
class Cluster:
    """Cluster under attack."""

    namesrv: str
    folder: str
    broker: Child
    driver: Child
    catalog: rmqpy.Catalog

    def start_driver(self) -> None:
        """Start a new driver: the last one was killed, or gave up."""
        self.driver = Child(self.folder, "drive", self.namesrv, self.folder)

    def wait_for_batches(self, count: int) -> int:
        """Wait for batches of the copy. Returns how many drivers gave up meanwhile: Spark does when a worker starts
        too slowly."""
        for gave_up in range(DRIVERS_MAX):
            try:
                self.driver.wait_for_lines(count)
            except Ended:
                self.start_driver()
            else:
                return gave_up
        raise SystemExit(f"{DRIVERS_MAX} drivers in a row have given up")

    def stored(self) -> int:
        """Number of messages in the second topic."""
        return sum(self.catalog.ends(self.catalog.queues(TARGET)).values())

    def kill_driver(self) -> None:
        """Kill both halves of the driver. Executors live until they notice, as they would on other machines."""
        self.driver.kill()
        kill_marked(self.folder, b"org.apache.spark.deploy.SparkSubmit")

    def kill_executor(self, chance: random.Random) -> None:
        """Kill one of the two executors with its workers; its master starts another."""
        executors = [
            pid for pid, command in marked(self.folder) if b"CoarseGrainedExecutorBackend" in command
        ]
        if executors:
            os.kill(chance.choice(executors), signal.SIGKILL)

    def stop_inside_sending(self, chance: random.Random) -> bool:
        """Let the broker run for moments until the copy is in the middle of a batch; then it is stopped.

        Returns whether it succeeded: the second topic grew a few times, and not for the last time.
        """
        wanted, growing, silences = chance.randrange(1, 5), 0, 0
        before = self.stored()
        deadline = time.monotonic() + 60
        # Answered in the glimpses, as what the copy sends; the last one when the broker goes on.
        asking = ThreadPoolExecutor(1)
        asked = asking.submit(self.stored)
        while growing < wanted and time.monotonic() < deadline:
            self.broker.process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            self.broker.process.send_signal(signal.SIGCONT)
            time.sleep(GLIMPSE_S)
            if asked.done():
                now = asked.result()
                growing, silences = (growing + 1, 0) if now > before else (growing, silences + 1)
                before, asked = now, asking.submit(self.stored)
            if silences > SILENCES_MAX:
                growing = silences = 0
        self.broker.process.send_signal(signal.SIGSTOP)
        asking.shutdown(wait=False)
        return growing >= wanted


def attack(cluster: Cluster, kills: int, chance: random.Random) -> Counter[str]:
    """Perform all kills, and return how many of each kind."""
    done: Counter[str] = Counter()
    for turn in range(kills):
        done["drivers that gave up by themselves"] += cluster.wait_for_batches(2)
        place = "at any time"
        if turn % 2:
            place = "inside sending" if cluster.stop_inside_sending(chance) else "while sending was slow"
        else:
            time.sleep(chance.uniform(0.0, 1.0))
        # A driver takes several times as long to come back as an executor.
        victim = "executor" if turn % 3 else "driver"
        if victim == "executor":
            cluster.kill_executor(chance)
        else:
            cluster.kill_driver()
        cluster.broker.process.send_signal(signal.SIGCONT)
        if victim == "driver":
            cluster.start_driver()
        done[f"{victim} killed {place}"] += 1
        print(f"kill {turn + 1} of {kills}: {victim}, {place}", flush=True)
    return done


# --- the verdict ---


def everything(namesrv: str, topic: str) -> list[rmqpy.ReceivedMessage]:
    """Return all messages of a topic."""
    with rmqpy.Catalog(namesrv) as catalog:
        ends = catalog.ends(catalog.queues(topic))
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer("kill-judge", namesrv, auto_commit=False) as consumer:
        consumer.assign(ends)
        for queue in ends:
            consumer.seek(queue, "begin")
        while len(found) < sum(ends.values()):
            found += consumer.poll(timeout=10, max_messages=4096)
    return found


def model(sent: list[rmqpy.ReceivedMessage]) -> dict[str, list[int]]:
    """Return the expected count and sum by windows."""
    windows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for message in sent:
        window = windows[str(int(message.stored_at.timestamp()) // WINDOW_S * WINDOW_S)]
        window[0] += 1
        window[1] += int(message.body)
    return dict(windows)


def compare(
    sent: list[rmqpy.ReceivedMessage], arrived: list[rmqpy.ReceivedMessage], windows: Mapping[str, list[int]]
) -> tuple[dict[str, int], bool]:
    """Return a summary of the run, and whether it passed."""
    by_id = {message.message_id: message.body for message in arrived}
    wanted, got = Counter(message.body for message in sent), Counter(by_id.values())
    expected = model(sent)
    times = Counter(message.message_id for message in arrived)
    tasks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for message in arrived:
        properties = message.properties
        tasks[properties["SPARK_BATCH_ID"], properties["SPARK_PARTITION_ID"]].append(
            times[message.message_id]
        )
    half_sent = {task for task, counts in tasks.items() if max(counts) > 1 and min(counts) == 1}
    wrong = [key for key in windows.keys() | expected if windows.get(key) != expected.get(key)]
    facts = {
        "messages sent": len(sent),
        "messages in the second topic": len(arrived),
        "of them repeated": len(arrived) - len(by_id),
        "micro-batches": len({batch for batch, _ in tasks}),
        "half-sent micro-batches that were hit": len({batch for batch, _ in half_sent}),
        "half-sent tasks that were hit": len(half_sent),
        "tasks sent again as a whole": sum(min(counts) > 1 for counts in tasks.values()),
        "lost in the second topic": (wanted - got).total(),
        "too many there after dropping repeated ids": (got - wanted).total(),
        "windows": len(windows),
        "windows whose count or sum is wrong": len(wrong),
    }
    return facts, got == wanted and not wrong


def judge(cluster: Cluster) -> tuple[dict[str, int], bool]:
    """Wait for the queries to catch up with the feeder, which has ended, then compare."""
    sent = everything(cluster.namesrv, SOURCE)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        windows = json.loads(Path(cluster.folder, "windows.json").read_text())
        facts, holds = compare(sent, everything(cluster.namesrv, TARGET), windows)
        if holds or time.monotonic() > deadline:
            return facts, holds
        if not cluster.driver.is_running:
            cluster.start_driver()
        time.sleep(2.0)


def campaign(kills: int, seed: int, folder: str) -> tuple[dict[str, int], bool]:
    """Start everything, attack, judge, and clean up."""
    with ExitStack() as stack:
        stack.callback(kill_marked, folder)
        broker = Child(folder, "broker", f"{folder}/broker")
        namesrv = broker.wait_for_lines(1)
        with rmqpy.Admin(namesrv) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, read_queues=4, write_queues=4)
        feeder = Child(folder, "feed", namesrv)
        catalog = stack.enter_context(rmqpy.Catalog(rmqpy.ClientConfig(namesrv=namesrv, request_timeout=30)))
        cluster = Cluster(namesrv, folder, broker, Child(folder, "drive", namesrv, folder), catalog)
        done = attack(cluster, kills, random.Random(seed))
        feeder.stop()
        facts, holds = judge(cluster)
    return dict(sorted(done.items())) | facts, holds


if __name__ == "__main__":
    run(__doc__, campaign)
