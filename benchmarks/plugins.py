"""Costs of plug-ins, good and bad ones: sends and memory of a broker that loads them (`python -m benchmarks.plugins`).

Method: one broker after the other, each with one plug-in or none, gets the same constant rate of sends; rounds repeat
all of them. The processor time of the I/O threads is what a message costs on the hot path, where no plug-in is called.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Final

import click

from benchmarks.interval import RunMetrics
from benchmarks.measure import bench
from benchmarks.processes import exit_on_sigterm
from benchmarks.report import table
from benchmarks.servers import Rmqpy
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
COLUMNS: Final = (
    "plug-in",
    "messages/s",
    "p50",
    "p99",
    "I/O threads, µs a message",
    "memory, MiB",
    "after 20 s, MiB",
)
REST_S: Final = 20.0

_CODE: Final = """
    import logging
    import threading

    from rmqpy.plugins import LogFollower, Observer


    class Following(LogFollower):
        api_version = 1

        def keep(self, messages):
            self.bytes = sum(len(message.body) for message in messages)


    class Observing(Observer):
        api_version = 1

        def sent(self, messages):
            self.bytes = sum(len(message.body) for message in messages)


    class Raising(Observer):
        api_version = 1

        def sent(self, messages):
            raise RuntimeError("it fails every time")


    class Blocking(Observer):
        api_version = 1

        def sent(self, messages):
            threading.Event().wait()


    class Busy(Observer):
        api_version = 1

        def sent(self, messages):
            while True:
                pass


    class Leaking(Observer):
        api_version = 1

        def __init__(self):
            self.kept = []

        def sent(self, messages):
            self.kept += messages


    class Flooding(Observer):
        api_version = 1

        def sent(self, messages):
            for message in messages:
                logging.warning("message %s has %d bytes", message.message_id, len(message.body))
"""

#: What each plug-in does → its class.
PLUGINS: Final[Mapping[str, str | None]] = {
    "none": None,
    "follows the log": "Following",
    "observes": "Observing",
    "raises": "Raising",
    "blocks": "Blocking",
    "never leaves a loop": "Busy",
    "keeps every message": "Leaking",
    "logs every message": "Flooding",
}


class _Extended(Rmqpy):
    """Our broker with a plug-in, from a distribution in its folder."""

    def __init__(self, folder: Path, plugin: str | None) -> None:
        super().__init__(folder)
        self._site = folder / "plug-ins"
        if plugin is None:
            return
        self.more_settings = {"plugins": "measured"}
        about = self._site / "measured-1.0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: measured\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[rmqpy.plugins]\nmeasured = measured_plugins:{plugin}\n")
        (self._site / "measured_plugins.py").write_text(dedent(_CODE))

    def _broker_command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self._site}", *super()._broker_command()]


@click.command()
@click.option("--rate", default=30_000, show_default=True, help="Messages of 128 bytes a second.")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="One round of 2 s, as a smoke test.")
def main(rate: int, seconds: float, rounds: int, quick: bool) -> None:
    """Measure brokers with good and bad plug-ins."""
    exit_on_sigterm()
    rest_s = REST_S
    if quick:
        seconds, rounds, rest_s = 2.0, 1, 1.0
    runs: dict[str, list[RunMetrics]] = {what: [] for what in PLUGINS}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as folder:
        for turn in range(rounds):
            for what, plugin in PLUGINS.items():
                metrics = _run(_Extended(Path(folder), plugin), rate, seconds, rest_s)
                runs[what].append(metrics)
                click.echo(f"  {turn + 1}/{rounds} {what}: {' '.join(_cells(metrics))}")
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "rate": rate, "seconds": seconds, "runs": runs}
    (OUT / "plugins.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(COLUMNS, [[what, *_cells(_medians(each))] for what, each in runs.items()]))


def _run(side: _Extended, rate: int, seconds: float, rest_s: float) -> RunMetrics:
    side.start()
    try:
        load = ("-c", "4", "-w", "64", "-s", "128", "--rate", str(rate))
        bench(side, "produce", *load, "-d", str(min(2.0, seconds)), "--warm-up", "0")
        before = _io_seconds(side.pid)
        sent = bench(side, "produce", *load, "-d", str(seconds), "--warm-up", "0")
        used = _io_seconds(side.pid) - before
        loaded = side.private_bytes()
        bench(side, "produce", "-c", "1", "--rate", "10", "-d", str(rest_s), "--warm-up", "0")
        return {
            "messages_per_s": sent["messages_per_s"],
            "p50_us": sent["latency_us"]["p50"],
            "p99_us": sent["latency_us"]["p99"],
            "io_us": used * 1e6 / max(1.0, sent["messages_per_s"] * seconds),
            "memory_mib": loaded / (1 << 20),
            "rested_mib": side.private_bytes() / (1 << 20),
        }
    finally:
        side.stop()


def _io_seconds(pid: int) -> float:
    """The processor time of a broker's I/O threads, by the scheduler's clock."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if (thread / "comm").read_text().startswith("rmq-io-"):
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def _medians(runs: Sequence[RunMetrics]) -> RunMetrics:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _cells(metrics: RunMetrics) -> list[str]:
    return [
        f"{metrics['messages_per_s']:,.0f}",
        duration(metrics["p50_us"]),
        duration(metrics["p99_us"]),
        f"{metrics['io_us']:.2f}",
        f"{metrics['memory_mib']:.1f}",
        f"{metrics['rested_mib']:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
