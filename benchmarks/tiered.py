"""Tiered storage: speed of reads from a folder beside the store's, and sends while files are copied
(`python -m benchmarks.tiered`).

Method: a broker copies its log to a folder on the same disk. A reader reads a whole topic, before and after its files
left the disk. Then brokers with and without tiered storage get the same constant rate of sends, in turns.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

import rmqpy
from benchmarks.interval import RunMetrics
from benchmarks.measure import TOPIC, bench
from benchmarks.processes import cpu_seconds, exit_on_sigterm
from benchmarks.report import table
from benchmarks.servers import QUEUES, Rmqpy
from benchmarks.waiting import until
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
BODY_BYTES: Final = 1_000
FILE_BYTES: Final = 64 << 20
_READS: Final = ("", "MB/s", "broker CPU, s per GB")
_SENDS: Final = ("", "messages/s", "p50", "p99", "copied, MB")
_WAIT_S: Final = 300.0


class _Tiered(Rmqpy):
    """Our broker, with or without tiered storage in a folder."""

    def __init__(self, folder: Path, *, is_tiered: bool) -> None:
        super().__init__(folder)
        self.tier = self.folder / "tier"
        self.more_settings = {"mappedFileSizeCommitLog": str(FILE_BYTES), "fileReservedTime": "0"}
        if is_tiered:
            self.more_settings |= {"tieredStorage": str(self.tier)}

    def copied_bytes(self) -> int:
        """The bytes of copied files of the log."""
        return sum(path.stat().st_size for path in self.tier.glob("**/*.log"))

    def local_files(self) -> int:
        """Files of the log on the disk."""
        return sum(path.name.isdecimal() for path in (self.folder / "store" / "commitlog").iterdir())


@click.command()
@click.option("--megabytes", default=1_000, show_default=True, help="Size of what is read.")
@click.option("--rate", default=30_000, show_default=True, help="Messages of 1,000 bytes a second.")
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="One small round, as a smoke test.")
def main(megabytes: int, rate: int, seconds: float, rounds: int, quick: bool) -> None:
    """Measure tiered storage."""
    exit_on_sigterm()
    if quick:
        megabytes, seconds, rounds = 200, 5.0, 1
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as name:
        reads = _read_both(Path(name), megabytes, rounds)
        sends: dict[str, list[RunMetrics]] = {"without": [], "with": []}
        for turn in range(rounds):
            for what, runs in sends.items():
                runs.append(_send(_Tiered(Path(name), is_tiered=what == "with"), rate, seconds))
                click.echo(f"  {turn + 1}/{rounds} {what}: {' '.join(_send_cells(runs[-1]))}")
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "rate": rate, "seconds": seconds, "reads": reads, "sends": sends}
    (OUT / "tiered.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    rows = [
        [what, f"{run['mb_s']:,.0f}", f"{run['cpu_s_per_gb']:.2f}"] for what, run in _medians(reads).items()
    ]
    click.echo(table(_READS, rows))
    click.echo(table(_SENDS, [[what, *_send_cells(run)] for what, run in _medians(sends).items()]))


def _read_both(place: Path, megabytes: int, rounds: int) -> dict[str, list[RunMetrics]]:
    side = _Tiered(place, is_tiered=True)
    side.start()
    try:
        messages = megabytes * 1_000_000 // BODY_BYTES
        fill = ("-c", "4", "-w", "8", "--batch", "32", "-s", str(BODY_BYTES), "--queues", str(QUEUES))
        bench(side, "produce", *fill, "--count", str(messages), "-d", "600", "--warm-up", "0")
        with rmqpy.Catalog(side.namesrv) as catalog:
            offsets = catalog.offsets(catalog.queues(TOPIC))
            ranges = [rmqpy.QueueRange(queue, *found) for queue, found in offsets.items() if found]
        runs = {"disk": [_read(side, ranges, megabytes) for _ in range(rounds)]}
        until(lambda: side.copied_bytes() >= megabytes * 1_000_000 - 2 * FILE_BYTES, seconds=_WAIT_S)
        with rmqpy.Admin(side.namesrv) as admin:

            def is_short() -> bool:
                admin.delete_expired_log()
                return side.local_files() <= 2

            until(is_short, seconds=_WAIT_S)
        return runs | {"tiered storage": [_read(side, ranges, megabytes) for _ in range(rounds)]}
    finally:
        side.stop()


def _read(side: _Tiered, ranges: Sequence[rmqpy.QueueRange], megabytes: int) -> RunMetrics:
    began, before = time.monotonic(), cpu_seconds(side.pid)
    with rmqpy.read_ranges(ranges, side.namesrv, columns=["queueOffset", "body"]) as batches:
        for _ in batches:
            pass
    took, used = time.monotonic() - began, cpu_seconds(side.pid) - before
    return {"mb_s": megabytes / took, "cpu_s_per_gb": used / (megabytes / 1_000)}


def _send(side: _Tiered, rate: int, seconds: float) -> RunMetrics:
    side.start()
    try:
        load = ("-c", "4", "-w", "64", "-s", str(BODY_BYTES), "--rate", str(rate))
        sent = bench(side, "produce", *load, "-d", str(seconds), "--warm-up", "1")
        return {
            "messages_per_s": sent["messages_per_s"],
            "p50_us": sent["latency_us"]["p50"],
            "p99_us": sent["latency_us"]["p99"],
            "copied_mb": side.copied_bytes() / 1e6,
        }
    finally:
        side.stop()


def _medians(runs: Mapping[str, Sequence[RunMetrics]]) -> dict[str, RunMetrics]:
    return {
        what: {name: statistics.median(run[name] for run in of_one) for name in of_one[0]}
        for what, of_one in runs.items()
    }


def _send_cells(run: RunMetrics) -> list[str]:
    return [
        f"{run['messages_per_s']:,.0f}",
        duration(run["p50_us"]),
        duration(run["p99_us"]),
        f"{run['copied_mb']:,.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
