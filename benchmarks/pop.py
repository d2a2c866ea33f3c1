"""POP: messages popped and acknowledged, at both brokers in turn (`python -m benchmarks.pop`).

Each worker is a connection with one pop in flight, and acknowledges all messages of an answer before it pops again. The
messages are sent ahead. Revival is measured apart: the time from the end of a message's invisible time to its next
delivery.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

import rmqpy
from benchmarks import java, memory
from benchmarks.interval import RunMetrics
from benchmarks.kinds import SIDES, Rounds, metrics, table
from benchmarks.measure import FULL, QUICK, Pace, bench, take_turns
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import QUEUES, Apache, Rmqpy, Side
from rmqpy.client.simple.requests import Handle
from rmqpy.load.report import duration

WORKERS = (1, 16, 64)
BATCHES = (1, 32)
#: Messages sent ahead of the first run, and the multiple of a run's messages that is sent ahead of the next one.
FIRST_MESSAGES = 200_000
AHEAD = 2.0
#: Messages that are not acknowledged, and for how long they are hidden.
REVIVED = 500
INVISIBLE_S = 3.0
REVIVED_SECONDS_MAX = 60.0


class Pops:
    """Runs of one kind, which keep enough messages ahead."""

    def __init__(self, workers: int, batch: int, pace: Pace) -> None:
        self._options = ("-c", str(workers), "-w", "1", "-m", str(batch), "-g", f"bench-{workers}-{batch}")
        self._pace = pace
        #: Messages to send ahead of the next run, by side.
        self._ahead: dict[str, int] = {}

    def prepare(self, side: Side) -> None:
        """Start a broker, and warm it up."""
        side.start()
        for _ in range(self._pace.ramps_max // 2):
            self._run(side, self._pace.ramp)

    def measure(self, side: Side) -> RunMetrics:
        """One run."""
        return self._run(side, self._pace.seconds)

    def _run(self, side: Side, seconds: float) -> RunMetrics:
        whole = seconds + self._pace.warm_up
        while True:
            count = self._ahead.get(side.name, FIRST_MESSAGES)
            fill = ("-c", "4", "-w", "8", "--batch", "32", "--queues", str(QUEUES), "--count", str(count))
            bench(side, "produce", *fill, "-d", "60", "--warm-up", "0")
            result = bench(
                side, "pop", *self._options, "-d", str(seconds), "--warm-up", str(self._pace.warm_up)
            )
            # A pop that waits for messages is empty, or unanswered at the end.
            if not result["empty_pulls"] and not result["unanswered"]:
                self._ahead[side.name] = max(FIRST_MESSAGES, round(AHEAD * whole * result["messages_per_s"]))
                return metrics(result)
            self._ahead[side.name] = 4 * count


def revival_ms(side: Side) -> list[float]:
    """How late messages come again that were not acknowledged, in ms."""
    topic = "bench-revival"
    with rmqpy.Producer(side.namesrv) as producer:
        for number in range(REVIVED):
            producer.send(topic, b"%d" % number)
    late: list[float] = []
    with rmqpy.SimpleConsumer("bench-revival", side.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic)
        due: dict[str, float] = {}
        deadline = time.monotonic() + REVIVED_SECONDS_MAX
        while len(due) < REVIVED and time.monotonic() < deadline:
            for message in consumer.receive(32, invisible=INVISIBLE_S, wait=1):
                due[message.message_id] = Handle.of(message).popped_ms + INVISIBLE_S * 1_000
        # Nothing is acknowledged: a round trip a message would delay the next pop.
        while due and time.monotonic() < deadline:
            for message in consumer.receive(32, invisible=600, wait=1):
                if (expected := due.pop(message.message_id, None)) is not None:
                    late.append(Handle.of(message).popped_ms - expected)
    if due:
        raise RuntimeError(f"{side.name}: {len(due)} messages did not come again")
    return late


@click.command()
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(quick: bool, folder: Path | None) -> None:
    """Pops with acknowledgements, and revival, compared with Apache's broker."""
    lib = java.jars("apache")
    exit_on_sigterm()
    pace = QUICK if quick else FULL
    results: dict[str, Rounds] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        sides = (Rmqpy(place), Apache(place, lib))
        if not quick:
            memory.make("warm", place)
        for workers in WORKERS:
            for batch in BATCHES:
                title = f"{workers} workers, pops of {batch}"
                click.echo(title)
                pops = Pops(workers, batch, pace)
                results[title] = take_turns(sides, pops.prepare, pops.measure, pace, click.echo)
        late = _revivals(sides)
    click.echo(table(results))
    for title, times in zip(SIDES.values(), late, strict=True):
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        click.echo(f"{title}: revived late by p50 {duration(p50 * 1e3)}, p99 {duration(p99 * 1e3)}")


def _revivals(sides: Sequence[Side]) -> list[list[float]]:
    found = []
    for side in sides:
        side.start()
        try:
            found.append(revival_ms(side))
        finally:
            side.stop()
    return found


if __name__ == "__main__":
    main()
