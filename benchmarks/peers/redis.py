"""Redis: a server with an append-only file, and its `redis-benchmark` with stream commands."""

import csv
import subprocess
from math import ceil
from typing import ClassVar

from benchmarks.cells import Cell
from benchmarks.peers.system import TOPIC, OtherSystem, Printed, found, printed

#: Messages of one read.
_READ = 32
_PIPELINE = 64


class Redis(OtherSystem):
    """A server with an append-only file. No verb of its client is measured here."""

    name = "Redis"
    client = "redis"
    module = "redis"
    verbs = ()

    programs: ClassVar = {"redis-server": "apt-get install redis-server"}
    tools: ClassVar = {
        "redis-benchmark": "apt-get install redis-tools",
        "redis-cli": "apt-get install redis-tools",
    }
    durability = "in the page cache of its append-only file; synced every second (`appendfsync everysec`)"
    loads: ClassVar = {
        "1x1": ("-c", "1"),
        "64x1": ("-c", "64"),
        "4x64": ("-c", "4", "-P", str(_PIPELINE)),
        "4x64-1k": ("-c", "4", "-P", str(_PIPELINE)),
        "pull-1": ("-c", "1"),
        "pull-16": ("-c", "16"),
    }
    # Each read returns the same first messages.
    fill: ClassVar = ("4x64", 10_000)
    has_endless_reader = True
    abilities: ClassVar = (
        "`redis-benchmark`",
        "any number",
        "a pipeline of any length, whose replies all arrive before the next one (`-P`)",
        "none",
        "always",
        "of one request, from the begin of its pipeline; no 99.9th percentile",
        "any number a request, always the first ones of the stream",
        "none",
    )

    def version(self) -> str:
        return f"Redis {printed('redis-server', '--version').partition('v=')[2].partition(' ')[0]}"

    def command(self) -> list[str]:
        # Background snapshots would sometimes be measured, and say nothing about sends.
        return [
            *(found("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port)),
            *("--dir", str(self.folder), "--appendonly", "yes", "--save", ""),
            *("--auto-aof-rewrite-percentage", "0"),
        ]

    def prepare(self, cell: Cell) -> None:
        if cell.kind == "produce":
            # Streams are in memory, too.
            subprocess.run(self.cli("DEL", TOPIC), stdout=subprocess.DEVNULL, check=True)

    def cli(self, *words: str) -> list[str]:
        """The command that executes one request."""
        return [found("redis-cli"), "-p", str(self.port), *words]

    def tool(self, cell: Cell, count: int) -> list[str]:
        options = (*self.loads[cell.name], "-n", str(self._requests(cell, count)), "--csv")
        if cell.kind == "consume":
            request = ["XREAD", "COUNT", str(_READ), "STREAMS", TOPIC, "0"]
        else:
            request = ["XADD", TOPIC, "*", "b", "x" * cell.body_bytes]
        return [found("redis-benchmark"), "-p", str(self.port), *options, *request]

    def read(self, output: str, cell: Cell, count: int) -> Printed:
        rows = list(csv.reader(output.splitlines()))
        if len(rows) != 2 or rows[0][:2] != ["test", "rps"]:
            raise ValueError(f"not one row of results:\n{output[-1000:]}")
        row = dict(zip(*rows, strict=True))
        each = _READ if cell.kind == "consume" else 1
        p50, p99 = (float(row[f"{name}_latency_ms"]) * 1000 for name in ("p50", "p99"))
        return Printed(self._requests(cell, count) * each, float(row["rps"]) * each, p50, p99)

    def _requests(self, cell: Cell, count: int) -> int:
        if cell.kind == "consume":
            return ceil(count / _READ)
        # The tool sends only whole pipelines.
        return ceil(count / _PIPELINE) * _PIPELINE if "-P" in self.loads[cell.name] else count
