"""Ours: rmqpy's servers, loaded by `rmqpy bench`."""

import json
from collections.abc import Mapping
from typing import ClassVar

from benchmarks.cells import Cell
from benchmarks.peers.cells import PEER_CELLS
from benchmarks.peers.system import TOPIC, Printed
from benchmarks.servers import QUEUES, Rmqpy
from rmqpy import __version__

_SECONDS_MAX = "120"


class Ours(Rmqpy):
    """Our servers with our load tool, which can express every cell."""

    loads: ClassVar[Mapping[str, tuple[str, ...]]] = {cell.name: cell.options for cell in PEER_CELLS}
    fill: ClassVar[tuple[str, int]] = ("batch", 400_000)
    has_endless_reader = True
    durability = "`ASYNC_FLUSH`: in the page cache of its log, which is flushed every 50 ms"
    abilities: ClassVar[tuple[str, ...]] = (
        "`rmqpy bench`",
        "any number",
        "any number, each request replaced when its reply arrives",
        "of any number of messages",
        "always",
        "of one request",
        "up to 32 messages a request (the broker's limit), each reader continuing where it was",
        "none here",
    )

    def version(self) -> str:
        """The name and version."""
        return f"rmqpy {__version__}"

    def configuration(self) -> str:
        """The broker's settings file."""
        return self.settings(is_sync_flush=False)

    def prepare(self, cell: Cell) -> None:
        """Do nothing: in each run readers start at the begin, and sends append."""

    def tool(self, cell: Cell, count: int) -> list[str]:
        """The command that sends or receives `count` messages."""
        queues = ("--queues", str(QUEUES)) if cell.kind == "produce" else ()
        options = (
            *self.loads[cell.name],
            *queues,
            "--count",
            str(count),
            "-d",
            _SECONDS_MAX,
            "--warm-up",
            "0",
        )
        return self.load_command(cell.kind, TOPIC, *options)

    def read(self, output: str, cell: Cell, count: int) -> Printed:
        """Parse the output of `rmqpy bench -o json`."""
        result, _ = json.JSONDecoder().raw_decode(output)
        if result["refused"] or result["unanswered"] or result["messages_total"] < count:
            raise ValueError(f"not all of {count} messages were stored or read:\n{output[-1000:]}")
        latency = result["latency_us"]
        return Printed(
            result["messages_total"],
            result["messages_per_s"],
            latency["p50"],
            latency["p99"],
            latency["p999"],
        )
