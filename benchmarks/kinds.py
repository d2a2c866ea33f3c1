"""`python -m benchmarks.kinds`: transactions, and a burst of timed messages, at rmqpy and at Apache's broker in turn.

A transaction is a half message and its commit. The burst is sent ahead, and all of it is due within one second: how
fast it is accepted and how fast it is delivered are two metrics, and so is the broker's processor time for either.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks import java, memory
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, Pace, bench, take_turns
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import Apache, Rmqpy, Side
from rmqpy.load.report import broker_cpu_us, duration, shares

SIDES: Mapping[str, str] = {"rmqpy": "rmqpy", "apache": "Apache 5.5.0"}
TRANSACTIONS: Mapping[str, tuple[str, ...]] = {
    "1 × 1": ("-c", "1", "-w", "1"),
    "64 × 1": ("-c", "64", "-w", "1"),
    "4 × 64": ("-c", "4", "-w", "64"),
}
#: Seconds from the first send of a burst to the second in which all of it is due, and of one that only warms up,
#: which a cold Java process may take 6 s to accept.
LEAD_S, WARM_LEAD_S = 30.0, 15.0
WARM_TIMERS = 20_000
#: A burst takes a minute: fewer rounds than of what takes seconds.
BURST_ROUNDS = 3
DELIVERED = "delivered "
COLUMNS = ("", "", "messages/s", "p99", "broker CPU a message", "of Apache's")

Rounds = Sequence[Sequence[RunMetrics]]
"""Round → side, in the order of `SIDES`, → its metrics."""


@click.command()
@click.option("--timers", default=500_000, show_default=True, help="Timed messages of the burst.")
@click.option("--quick", is_flag=True, help="Two short runs of each: to see that it works.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the stores lie; /tmp if not given. It must be a real disk.",
)
def main(timers: int, quick: bool, folder: Path | None) -> None:
    """Transactions and timed messages beside Apache's broker."""
    lib = java.jars("apache")
    exit_on_sigterm()
    pace = QUICK if quick else FULL
    results: dict[str, Rounds] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        sides = (Rmqpy(place), Apache(place, lib))
        if not quick:
            memory.make("warm", place)
        for title, options in TRANSACTIONS.items():
            click.echo(f"transactions, {title}")
            results[f"transactions, {title}"] = _transactions(sides, options, pace)
        click.echo(f"{timers:,} timed messages")
        burst = replace(pace, pairs=min(pace.pairs, BURST_ROUNDS))
        rounds = _timers(sides, timers, burst)
        results[f"{timers:,} timed messages, accepted"] = rounds
        results[f"{timers:,} timed messages, delivered"] = [
            [
                {key.removeprefix(DELIVERED): run[key] for key in run if key.startswith(DELIVERED)}
                for run in runs
            ]
            for runs in rounds
        ]
    click.echo(table(results))


def _transactions(sides: Sequence[Side], options: Sequence[str], pace: Pace) -> Rounds:
    def run(side: Side, seconds: float) -> RunMetrics:
        return _metrics(
            bench(side, "transaction", *options, "-d", str(seconds), "--warm-up", str(pace.warm_up))
        )

    def prepare(side: Side) -> None:
        side.start()
        for _ in range(pace.ramps_max):
            run(side, pace.ramp)

    return take_turns(sides, prepare, lambda side: run(side, pace.seconds), pace, click.echo)


def _timers(sides: Sequence[Side], count: int, pace: Pace) -> Rounds:
    def run(side: Side, count: int, lead_s: float) -> RunMetrics:
        options = ("-c", "4", "-w", "64", "--count", str(count), "--lead", str(lead_s))
        result = bench(side, "timer", *options)
        delivery = result["delivery"]
        delivered = {
            "throughput": delivery["messages_per_s"],
            # When the last one was there: of a burst that says more than a percentile.
            "p99_us": delivery["last_s"] * 1e6,
            "cpu_us": (delivery["brokers_cpu_s"] or 0.0) / delivery["messages"] * 1e6,
        }
        return _metrics(result) | {f"{DELIVERED}{name}": value for name, value in delivered.items()}

    def prepare(side: Side) -> None:
        side.start()
        for _ in range(pace.ramps_max // 2):
            run(side, WARM_TIMERS, WARM_LEAD_S)

    return take_turns(sides, prepare, lambda side: run(side, count, LEAD_S), pace, click.echo)


def _metrics(result: Mapping[str, Any]) -> RunMetrics:
    return {
        "throughput": result["messages_per_s"],
        "p99_us": result["latency_us"]["p99"],
        "cpu_us": broker_cpu_us(result) or 0.0,
        "other_cores": shares(result)["others"] or 0.0,
    }


def table(results: Mapping[str, Rounds]) -> str:
    """Medians in Markdown; in the last column that of the rounds' ratios. Of what is delivered the time of the last
    message stands in the place of a p99."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for title, rounds in results.items():
        ratio = statistics.median(ours["throughput"] / theirs["throughput"] for ours, theirs in rounds)
        for number, name in enumerate(SIDES.values()):
            median = {
                key: statistics.median(runs[number][key] for runs in rounds)
                for key in ("throughput", "p99_us", "cpu_us")
            }
            first = number == 0
            rows.append(
                (
                    title if first else "",
                    name,
                    f"{median['throughput']:,.0f}",
                    duration(median["p99_us"]),
                    f"{median['cpu_us']:.2f} us",
                    f"{ratio:.2f}×" if first else "",
                )
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
