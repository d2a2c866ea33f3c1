"""State and tables under kills of the driver: `make campaign NAME=spark-state`, SPARK_KILLS (30) times.

Goal: whenever a driver dies, its state, its Delta table and its Iceberg table have each message once, and what it
sends twice has the same id. Method: a broker, a feeder, and a driver (`stateful.py`), each in its own process. The
driver gets SIGKILL at random times, together with its JVM, and is started again. At the end, both tables are compared
with the topic message by message, and the totals of each key with those of its messages.
"""

import random
import time
from collections import Counter, defaultdict
from contextlib import ExitStack

import rmqpy
from campaigns.spark.command import run
from campaigns.spark.kill import DRIVERS_MAX, TIMEOUT_S, Child, Ended, everything, kill_marked
from campaigns.spark.pipeline import SOURCE, TARGET
from campaigns.spark.stateful import CATALOG, KEYS, TABLE

#: A module, which finds its neighbours.
PROGRAM = ("-m", "campaigns.spark.stateful")


class Driver:
    """The driver, started again whenever it has ended."""

    def __init__(self, namesrv: str, folder: str) -> None:
        self._arguments = (folder, "drive", namesrv, folder)
        self.gave_up = 0
        self.start()

    def start(self) -> None:
        """Start the next one."""
        self._child = Child(*self._arguments, program=PROGRAM)

    def wait_for_batches(self, count: int) -> None:
        """Wait for micro-batches of the totals."""
        for _ in range(DRIVERS_MAX):
            try:
                self._child.wait_for_lines(count)
            except Ended:
                self.gave_up += 1
                self.start()
            else:
                return
        raise SystemExit(f"{DRIVERS_MAX} drivers in a row have given up")

    def kill(self) -> None:
        """Kill the driver's Python and its JVM at the same time."""
        kill_marked(self._arguments[0], b"org.apache.spark.deploy.SparkSubmit")
        self._child.kill()

    def keep_running(self) -> None:
        """Start it again if it has ended."""
        if not self._child.is_running:
            self.start()


def attack(driver: Driver, kills: int, chance: random.Random) -> None:
    """Kill the driver at random times between its second and fifth micro-batch."""
    for turn in range(kills):
        driver.wait_for_batches(chance.randrange(2, 5))
        time.sleep(chance.uniform(0.0, 1.5))
        driver.kill()
        driver.start()
        print(f"kill {turn + 1} of {kills}", flush=True)


def in_delta(folder: str) -> Counter[str]:
    """Return how often each body is in the Delta table."""
    from deltalake import DeltaTable

    return Counter(DeltaTable(f"{folder}/delta").to_pyarrow_table(columns=["body"]).column(0).to_pylist())


def in_iceberg(folder: str) -> Counter[str]:
    """Return how often each body is in the Iceberg table."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        CATALOG, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/iceberg"
    )
    try:
        scan = catalog.load_table(TABLE).scan(selected_fields=("body",))
        return Counter(scan.to_arrow().column(0).to_pylist())
    finally:
        catalog.close()


def compare(namesrv: str, folder: str) -> tuple[dict[str, int], bool]:
    """Return a summary of the run, and whether it passed."""
    sent = Counter(message.text() for message in everything(namesrv, SOURCE))
    arrived = everything(namesrv, TARGET)
    by_id: dict[str, str] = {}
    ids: dict[tuple[int, int], set[str]] = defaultdict(set)
    changed = 0
    for message in arrived:
        text = message.text()
        changed += by_id.setdefault(message.message_id, text) != text
        key, count, _ = map(int, text.split())
        ids[key, count].add(message.message_id)
    last: dict[int, tuple[int, int]] = {}
    for text in by_id.values():
        key, count, total = map(int, text.split())
        last[key] = max(last.get(key, (0, 0)), (count, total))
    wanted: dict[int, tuple[int, int]] = {}
    for body, times in sent.items():
        key = int(body) % KEYS
        count, total = wanted.get(key, (0, 0))
        wanted[key] = count + times, total + int(body) * times
    delta, iceberg = in_delta(folder), in_iceberg(folder)
    facts = {
        "messages sent": sent.total(),
        "totals in the second topic": len(arrived),
        "of them repeated, with the same id": len(arrived) - len(by_id),
        "ids with two different totals": changed,
        "totals that two ids have": sum(len(each) > 1 for each in ids.values()),
        "keys whose count or sum is wrong": sum(last.get(key) != wanted[key] for key in wanted),
        "lost in Delta": (sent - delta).total(),
        "too many in Delta": (delta - sent).total(),
        "lost in Iceberg": (sent - iceberg).total(),
        "too many in Iceberg": (iceberg - sent).total(),
    }
    rights = ("messages sent", "totals in the second topic", "of them repeated, with the same id")
    return facts, not any(value for name, value in facts.items() if name not in rights)


def judge(namesrv: str, folder: str, driver: Driver) -> tuple[dict[str, int], bool]:
    """Wait for the queries to catch up with the feeder, which has ended, then compare."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        facts, holds = compare(namesrv, folder)
        if holds or time.monotonic() > deadline:
            return facts, holds
        driver.keep_running()
        time.sleep(2.0)


def campaign(kills: int, seed: int, folder: str) -> tuple[dict[str, int], bool]:
    """Start everything, attack, judge, and clean up."""
    with ExitStack() as stack:
        stack.callback(kill_marked, folder)
        namesrv = Child(folder, "broker", f"{folder}/broker").wait_for_lines(1)
        with rmqpy.Admin(namesrv) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, read_queues=4, write_queues=4)
        feeder = Child(folder, "feed", namesrv)
        driver = Driver(namesrv, folder)
        attack(driver, kills, random.Random(seed))
        # Tables exist after the first micro-batch.
        driver.wait_for_batches(2)
        feeder.stop()
        facts, holds = judge(namesrv, folder, driver)
    return {"kills": kills, "drivers that gave up by themselves": driver.gave_up} | facts, holds


if __name__ == "__main__":
    run(__doc__, campaign)
