"""Schedules send each occurrence once, over kills of the broker at any moment.

Goal: 0 missing, 0 twice. Method: schedules of all kinds run for simulated days by a moved clock. The broker is killed
at random moments, also while messages are put into the timer log or delivered, and stays away for hours; the rule for
catching up is `all`. In the end the delivered occurrences are compared with those that cron has for each schedule. The
seed is printed; `RMQPY_SEED` repeats it. `make campaign NAME=schedules` has 1,000 schedules, a year and 200 kills.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import children
import rmqpy
from rmqpy.errors import RocketMQError

pytest.importorskip("cronsim")

SCHEDULES = int(os.environ.get("RMQPY_SCHEDULES", "30"))
DAYS = int(os.environ.get("RMQPY_SCHEDULE_DAYS", "14"))
KILLS = int(os.environ.get("RMQPY_SCHEDULE_KILLS", "3"))
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=DAYS)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
#: Seconds for a start, or for the messages of one step.
SECONDS_MAX = 120.0


class Broker:
    """One life of the broker."""

    def __init__(self, folder: Path, wall_ms: int) -> None:
        self.wall_ms = wall_ms
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crash.clocked_broker", str(folder), str(wall_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=children.environment(),
        )
        assert self.process.stdout is not None
        self.namesrv = self.process.stdout.readline().strip()
        assert self.namesrv, "the broker did not start"

    def begin_advance(self, seconds: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.wall_ms += seconds * 1_000

    def end_advance(self) -> None:
        assert self.process.stdout is not None
        assert int(self.process.stdout.readline()) == self.wall_ms

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def expression(chance: random.Random) -> str:
    minute, hour = chance.randrange(60), chance.randrange(24)
    kind = chance.random()
    if kind < 0.6:
        return f"{minute} {hour} * * *"
    if kind < 0.9:
        return f"{minute} {hour} * * {chance.randrange(7)}"
    return f"{minute} {hour} {chance.randrange(1, 29)} * *"


def wanted(
    schedules: dict[str, tuple[str, str]], begin_ms: dict[str, int], end_ms: int
) -> Counter[tuple[str, int]]:
    from cronsim import CronSim

    found: Counter[tuple[str, int]] = Counter()
    for name, (cron, zone) in schedules.items():
        at = datetime.fromtimestamp(begin_ms[name] / 1_000, UTC).astimezone(ZoneInfo(zone))
        for each in CronSim(cron, at):
            at_ms = round(each.timestamp() * 1_000)
            if at_ms > end_ms:
                break
            found[name, at_ms] += 1
    return found


def settle(admin: rmqpy.Admin, wall_ms: int, delivered: "Delivered", goal: Counter[tuple[str, int]]) -> None:
    """Wait until all that is due has been delivered."""
    until = time.monotonic() + SECONDS_MAX
    due = sum(at_ms <= wall_ms for _, at_ms in goal.elements())
    while delivered.read(admin) < due:
        assert time.monotonic() < until, f"{due - delivered.read(admin)} of {due} occurrences are missing"
        time.sleep(0.05)  # the broker works


class Delivered:
    """What is in the topic."""

    def __init__(self, namesrv: str) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.early = 0
        self._next: dict[rmqpy.MessageQueue, int] = {}

    def read(self, admin: rmqpy.Admin) -> int:
        """Read on; return how many messages there are."""
        with suppress(RocketMQError):
            with rmqpy.PullConsumer("reader", admin.client_config, auto_commit=False) as consumer:
                queues = consumer.queues("jobs")
                ends = {queue: consumer.offsets(queue)[1] for queue in queues}
            ranges = [
                rmqpy.QueueRange(queue, self._next.get(queue, 0), end)
                for queue, end in ends.items()
                if end > self._next.get(queue, 0)
            ]
            if ranges:
                import pyarrow

                with rmqpy.read_ranges(
                    ranges, admin.client_config, columns=["properties", "storeTimestamp"]
                ) as reader:
                    rows = pyarrow.table(reader).to_pylist()
                for row in rows:
                    properties = dict(row["properties"])
                    at_ms = int(properties["SCHEDULED_MS"])
                    self.counts[properties["SCHEDULE"], at_ms] += 1
                    self.early += row["storeTimestamp"].timestamp() * 1_000 < at_ms
                self._next |= {each.queue: each.end for each in ranges}
        return sum(self.counts.values())


@pytest.mark.timeout(300 + 30 * KILLS + SCHEDULES * DAYS / 50)
def test_each_occurrence_is_sent_once_over_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    schedules = {f"s{number}": (expression(chance), chance.choice(ZONES)) for number in range(SCHEDULES)}
    broker = Broker(tmp_path, round(START.timestamp() * 1_000))
    end_ms = round(END.timestamp() * 1_000)
    kills = 0
    try:
        with rmqpy.Admin(broker.namesrv) as admin:
            admin.create_topic("jobs", exist_ok=True)
            begin_ms = dict.fromkeys(schedules, broker.wall_ms)
            for name, (cron, zone) in schedules.items():
                admin.create_schedule(name, "jobs", name, cron=cron, zone=zone, catch_up="all")
        goal = wanted(schedules, begin_ms, end_ms)
        delivered = Delivered(broker.namesrv)
        step_s = DAYS * 86_400 / (2 * KILLS + 1)
        while broker.wall_ms < end_ms:
            left_s = (end_ms - broker.wall_ms) // 1_000
            broker.begin_advance(min(left_s, round(step_s * chance.uniform(0.5, 1.1))))
            if kills < KILLS and chance.random() < 0.8:
                # While it delivers or arms, or later.
                time.sleep(chance.choice([0.0, 0.01, 0.05, 0.2, 0.5]) * chance.random())
                broker.kill()
                kills += 1
                away_ms = min(end_ms - broker.wall_ms, 1_000 * chance.randrange(round(step_s * 0.3)))
                broker = Broker(tmp_path, broker.wall_ms + away_ms)
                continue
            broker.end_advance()
            with rmqpy.Admin(broker.namesrv) as admin:
                settle(admin, broker.wall_ms, delivered, goal)
        with rmqpy.Admin(broker.namesrv) as admin:
            settle(admin, end_ms, delivered, goal)
            time.sleep(1.0)  # what comes twice comes now
            delivered.read(admin)
    finally:
        broker.kill()
    missing, twice = goal - delivered.counts, delivered.counts - goal
    print(
        f"schedules: {SCHEDULES} over {DAYS} days, {kills} kills, {goal.total()} occurrences, "
        f"{missing.total()} missing, {twice.total()} twice, {delivered.early} early"
    )
    assert not missing, missing.most_common(5)
    assert not twice, twice.most_common(5)
    assert delivered.early == 0
