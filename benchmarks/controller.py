"""Controller costs: sends to a pair that a controller elects and to one without, and an idle controller (`python -m
benchmarks.controller`).

Both pairs answer a send once master and slave have it, and take turns. An idle controller is measured twice: without
brokers, and with a pair whose master renews its lease.
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

from benchmarks import memory, wire
from benchmarks.cells import named
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, run_in_turn
from benchmarks.processes import Child, cpu_seconds, exit_on_sigterm, free_ports
from benchmarks.servers import Rmqpy, RmqpySlave
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
CELLS: Final = "1x1,4x64"
#: The time for a pair to accept a message: two brokers elect, connect and compare their logs.
ACCEPTED_SECONDS_MAX: Final = 60.0
IDLE_SECONDS: Final = 60.0
QUICK_IDLE_SECONDS: Final = 3.0
#: The time between a start and the measure of an idle controller.
REST_SECONDS: Final = 2.0
METRICS: Final = ("throughput", "cpu_us", "p50_us", "p99_us")
COLUMNS: Final = ("", "without", "with", "with / without", "brokers' CPU per message", "p50", "p99")

#: Cell → side → its runs.
Results = Mapping[str, Mapping[str, Sequence[RunMetrics]]]


class Pair(Rmqpy):
    """A SYNC_MASTER with its slave, roles by configuration."""

    name = "without"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.slave = self._slave()
        self.slave.follow(self)

    def _slave(self) -> RmqpySlave:
        return RmqpySlave(self.folder)

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n"

    def load_command(self, work: str, topic: str, *options: str) -> list[str]:
        pids = ("--pid", str(self.pid), "--pid", str(self.slave.pid))
        return super().load_command(work, topic, *options, *pids)

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *self.slave.pids]

    def start(self, *, is_sync_flush: bool = False) -> None:
        super().start(is_sync_flush=is_sync_flush)
        self.slave.start_broker(is_sync_flush=is_sync_flush)
        self.settle()

    def settle(self) -> None:
        super().settle()
        if self.slave.pids:
            assert self._broker is not None
            self._broker.wait_until(self._accepts, ACCEPTED_SECONDS_MAX)

    def _accepts(self) -> bool:
        # Without the slave the response is an error.
        return wire.is_accepted(self.address, "copied")

    def stop_broker(self) -> None:
        self.slave.stop_broker()
        super().stop_broker()


class _ElectedSlave(RmqpySlave):
    """The other broker of an elected pair."""

    controller = ""

    def settings(self, is_sync_flush: bool) -> str:
        # The last line of a key counts.
        return super().settings(is_sync_flush) + _elected(self.controller)


class ElectedPair(Pair):
    """A pair whose master a controller elects. A pause may change the roles."""

    name = "with"

    def __init__(self, place: Path) -> None:
        self.controller = Controller(place / "controller")
        super().__init__(place)

    def _slave(self) -> RmqpySlave:
        slave = _ElectedSlave(self.folder)
        slave.controller = self.controller.address
        return slave

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + _elected(self.controller.address)

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *self.controller.pids]

    def start_name_server(self) -> None:
        super().start_name_server()
        self.controller.start()

    def _accepts(self) -> bool:
        return any(wire.is_accepted(each, "copied") for each in (self.address, self.slave.address))

    def stop(self) -> None:
        super().stop()
        self.controller.stop()


class Controller:
    """A controller in a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_ports(1)}"
        self._child: Child | None = None

    @property
    def pids(self) -> list[int]:
        return [] if self._child is None else [self._child.pid]

    def start(self) -> None:
        """Start it with a new log; return when it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = tempfile.mkdtemp(dir=self.folder)
        settings = (f"controllerDLegerPeers=n0-{self.address}", f"controllerStorePath={place}", "httpPort=-1")
        command = [sys.executable, "-m", "rmqpy", "controller", *settings]
        self._child = Child("controller", command, self.folder)
        self._child.wait_until(lambda: wire.is_listening(self.address), ACCEPTED_SECONDS_MAX)

    def idle(self, seconds: float) -> tuple[float, int]:
        """Return its processor time in a second without requests of clients, and its private memory."""
        assert self._child is not None, "the controller is started"
        time.sleep(REST_SECONDS)
        before, began = cpu_seconds(self._child.pid), time.monotonic()
        time.sleep(seconds)
        used = cpu_seconds(self._child.pid) - before
        return used / (time.monotonic() - began), machine.private_bytes(self._child.pid) or 0

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def _elected(controller: str) -> str:
    # A pair needs both, as one without a controller does.
    return f"enableControllerMode=true\ncontrollerAddr={controller}\nminInSyncReplicas=2\n"


@click.command()
@click.option("--cells", default=CELLS, show_default=True, help="Cells of sends.")
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(cells: str, quick: bool, folder: Path | None) -> None:
    """Measure what a controller costs a pair of brokers, and what it costs itself."""
    exit_on_sigterm()
    results: dict[str, Mapping[str, Sequence[RunMetrics]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for cell in named(cells):
            click.echo(f"{cell.name}: {cell.title}")
            if not quick:
                memory.make("warm", place)
            sides = Pair(place), ElectedPair(place)
            rounds = run_in_turn(cell, sides, QUICK if quick else FULL, click.echo)
            results[cell.title] = {
                side.name: [runs[number] for runs in rounds] for number, side in enumerate(sides)
            }
            click.echo(table({cell.title: results[cell.title]}))
        idle = measure_idle(place, QUICK_IDLE_SECONDS if quick else IDLE_SECONDS)
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "runs": results, "idle": idle}
    (OUT / "controller.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(results))
    for what, (cores, size) in idle.items():
        click.echo(
            f"idle controller, {what}: {cores * 1_000:.2f} ms of CPU a second, {size / 2**20:.1f} MiB private memory"
        )


def measure_idle(place: Path, seconds: float) -> Mapping[str, tuple[float, int]]:
    """Measure a controller without brokers, and one with a pair."""
    alone = Controller(place / "alone")
    alone.start()
    try:
        found = {"no broker": alone.idle(seconds)}
    finally:
        alone.stop()
    pair = ElectedPair(place)
    try:
        pair.start()
        found["a pair of brokers"] = pair.controller.idle(seconds)
    finally:
        pair.stop()
    return found


def table(results: Results) -> str:
    """Format medians as Markdown; the ratio is the median over the rounds."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for title, sides in results.items():
        pairs = zip(sides["with"], sides["without"], strict=True)
        ratio = statistics.median(run["throughput"] / plain["throughput"] for run, plain in pairs)
        plain, elected = (
            {key: statistics.median(run[key] for run in sides[side]) for key in METRICS}
            for side in ("without", "with")
        )
        rows.append(
            (
                f"SYNC_MASTER and one slave, {title}",
                f"{plain['throughput']:,.0f}/s",
                f"{elected['throughput']:,.0f}/s",
                f"{ratio:.2f}",
                f"{plain['cpu_us']:.2f} → {elected['cpu_us']:.2f} us",
                *(f"{duration(plain[key])} → {duration(elected[key])}" for key in ("p50_us", "p99_us")),
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
