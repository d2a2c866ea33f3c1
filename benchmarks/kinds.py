"""Message kinds: transactions, and a burst of timed messages, at both brokers in turn (`python -m benchmarks.kinds`).

A transaction is a half message and its commit. The burst is sent ahead and due within one second; its acceptance and
its delivery are measured separately, each with the broker's processor time.
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
#: Seconds from the first send of a burst to the second in which all of it is due; the second value is for a warm-up
# burst, which a cold Java process may take 6 s to accept.
LEAD_S, WARM_LEAD_S = 30.0, 15.0
WARM_TIMERS = 20_000
#: Few rounds, because a burst takes a minute.
BURST_ROUNDS = 3
DELIVERED = "delivered "
COLUMNS = ("", "", "messages/s", "p99", "broker CPU per message", "ratio to Apache's")

Rounds = Sequence[Sequence[RunMetrics]]
"""Round → side, in the order of `SIDES`, → its metrics."""


@click.command()
@click.option("--timers", default=500_000, show_default=True, help="Timed messages of the burst.")
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(timers: int, quick: bool, folder: Path | None) -> None:
    """Transactions and timed messages, compared with Apache's broker."""
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
        return metrics(
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
            # The delivery time of the last message, which describes a burst better than a percentile.
            "p99_us": delivery["last_s"] * 1e6,
            "cpu_us": (delivery["brokers_cpu_s"] or 0.0) / delivery["messages"] * 1e6,
        }
        return metrics(result) | {f"{DELIVERED}{name}": value for name, value in delivered.items()}

    def prepare(side: Side) -> None:
        side.start()
        for _ in range(pace.ramps_max // 2):
            run(side, WARM_TIMERS, WARM_LEAD_S)

    return take_turns(sides, prepare, lambda side: run(side, count, LEAD_S), pace, click.echo)


def metrics(result: Mapping[str, Any]) -> RunMetrics:
    """Throughput, latency and processor time of one load."""
    return {
        "throughput": result["messages_per_s"],
        "p99_us": result["latency_us"]["p99"],
        "cpu_us": broker_cpu_us(result) or 0.0,
        "other_cores": shares(result)["others"] or 0.0,
    }


def table(results: Mapping[str, Rounds]) -> str:
    """Format medians as Markdown, with the median ratio of the rounds in the last column. For deliveries the last
    message's time replaces the p99."""
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
