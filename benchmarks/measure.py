"""Measuring: runs one cell, starting its sides, loading them in turn, and keeping every metric of every run.

Invariant: two sides never work at the same time. The others stay up and are suspended, because timers of an idle
broker wake a processor that the loaded one needs. Between runs the disk is synced, so that no run pays for another's
writes. A round disturbed by other processes is measured again.
"""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from benchmarks import wire
from benchmarks.cells import Cell
from benchmarks.interval import RunMetrics
from benchmarks.processes import suspended
from benchmarks.producer import java_producer
from benchmarks.servers import QUEUES, Apache, Floor, Rmqpy, Side
from rmqpy.load.report import broker_cpu_us, shares

TOPIC = "bench"
_FILL_MESSAGES = 200_000
_REST_SECONDS = 2.0
_ACCEPTED_SECONDS_MAX = 60.0
#: Maximum processor time of other processes during a run.
OTHER_CORES_MAX = 0.1
#: Maximum attempts of a round; if all were disturbed, the least disturbed one counts.
_ATTEMPTS_MAX = 4


@dataclass(frozen=True)
class Pace:
    """Durations of the phases, and numbers of runs."""

    pairs: int
    #: Of one measured run.
    seconds: float
    #: Load before each run.
    warm_up: float
    #: Of one run of the warm-up.
    ramp: float
    #: Maximum warm-up runs; the warm-up ends when a side stops getting faster.
    ramps_max: int
    #: The measured fraction of a counted burst.
    burst: float


FULL = Pace(pairs=5, seconds=2.0, warm_up=0.5, ramp=2.0, ramps_max=6, burst=1.0)
QUICK = Pace(pairs=2, seconds=1.0, warm_up=0.3, ramp=1.5, ramps_max=4, burst=0.15)
#: A run this much faster than all before means that a side is still warming up: Java's compiler takes its time.
_STILL_RISING = 1.05


class TurnTaker(Protocol):
    """The interface of a broker that `take_turns` needs, ours or any other."""

    @property
    def name(self) -> str: ...

    @property
    def pids(self) -> Sequence[int]:
        """Its processes."""
        ...

    def settle(self) -> None:
        """Wait until it serves again after a pause."""
        ...

    def stop(self) -> None: ...


class Loaded(TurnTaker, Protocol):
    """The interface of a broker that `rmqpy bench` loads."""

    def load_command(self, work: str, topic: str, /, *options: str) -> list[str]:
        """The command that loads it and prints the result of `rmqpy bench`."""
        ...


_Broker = TypeVar("_Broker", bound=TurnTaker)


@dataclass(frozen=True)
class Round:
    """Consecutive runs."""

    rmqpy: RunMetrics
    apache: RunMetrics
    floor: RunMetrics | None = None


def run_cell(
    cell: Cell, sides: tuple[Rmqpy, Apache], pace: Pace, tell: Callable[[str], None]
) -> dict[str, Any]:
    """All rounds of a cell, for the report."""
    floors = (Floor(sides[0].folder.parent),) if cell.has_floor else ()
    return record([Round(*runs) for runs in run_in_turn(cell, (*sides, *floors), pace, tell)])


def run_in_turn(
    cell: Cell, sides: Sequence[Side], pace: Pace, tell: Callable[[str], None]
) -> list[list[RunMetrics]]:
    """Every round of a cell: one run of each side, in order."""

    def prepare(side: Side) -> None:
        if cell.kind == "start":
            side.start_name_server()
        else:
            side.start(is_sync_flush=cell.is_sync_flush)
            warm(side, cell, pace, tell)

    measure = {"start": _start, "java-producer": _java_producer}.get(cell.kind, load)
    return take_turns(sides, prepare, lambda side: measure(side, cell, pace), pace, tell)


def take_turns(
    brokers: Sequence[_Broker],
    prepare: Callable[[_Broker], None],
    measure: Callable[[_Broker], RunMetrics],
    pace: Pace,
    tell: Callable[[str], None],
    *,
    attempts_max: int = _ATTEMPTS_MAX,
) -> list[list[RunMetrics]]:
    """Prepare all brokers, measure round by round, and stop all."""
    try:
        for broker in brokers:
            prepare(broker)
        return [
            _quiet_round(brokers, measure, f"{number + 1}/{pace.pairs}", tell, attempts_max)
            for number in range(pace.pairs)
        ]
    finally:
        for broker in brokers:
            broker.stop()


def _quiet_round(
    brokers: Sequence[_Broker],
    measure: Callable[[_Broker], RunMetrics],
    number: str,
    tell: Callable[[str], None],
    attempts_max: int,
) -> list[RunMetrics]:
    """One run of each broker, repeated while other processes disturb one of them."""
    quietest: tuple[float, list[RunMetrics]] | None = None
    for _ in range(attempts_max):
        runs = []
        for broker in brokers:
            with suspended(pid for other in brokers if other is not broker for pid in other.pids):
                broker.settle()
                metrics = measure(broker)
            runs.append(metrics)
            tell(f"  {number} {broker.name:7} {_line(metrics)}")
            os.sync()
        others = max(run.get("other_cores", 0.0) for run in runs)
        if quietest is None or others < quietest[0]:
            quietest = (others, runs)
        if others <= OTHER_CORES_MAX:
            break
        tell(f"  {number} is discarded: other processes took {others:.2f} cores")
    else:
        assert quietest is not None
        tell(f"  {number} is the quietest of {attempts_max}: others took {quietest[0]:.2f} cores")
    return quietest[1]


def record(rounds: Sequence[Round]) -> dict[str, Any]:
    """The rounds as the report keeps them: every run, medians, and the median ratio over the rounds."""
    sides = {"rmqpy": [one.rmqpy for one in rounds], "apache": [one.apache for one in rounds]}
    ratios = _ratios(sides["rmqpy"], sides["apache"])
    floors = [one.floor for one in rounds if one.floor is not None]
    if floors:
        sides["floor"] = floors
        ratios["floor"] = _ratios(sides["rmqpy"], floors)["cpu_us"]
    return {
        **sides,
        "medians": {
            side: {name: _median([run[name] for run in runs]) for name in runs[0]}
            for side, runs in sides.items()
        },
        "ratios": ratios,
    }


def _ratios(ours: Sequence[RunMetrics], theirs: Sequence[RunMetrics]) -> dict[str, float]:
    names = [name for name in ours[0] if all(name in run for run in theirs)]
    return {
        name: _median(
            [our[name] / their[name] for our, their in zip(ours, theirs, strict=True) if their[name]]
        )
        for name in names
    }


def bench(broker: Loaded, work: str, *options: str) -> dict[str, Any]:
    """The load in a separate process, against one broker."""
    command = broker.load_command(work, TOPIC, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip()[-1000:]
        raise RuntimeError(f"{broker.name}: {work} {' '.join(options)} failed: {said}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def warm(broker: Loaded, cell: Cell, pace: Pace, tell: Callable[[str], None]) -> None:
    """Create the topic and fill it for pulls; then repeat the cell's load until it gets no faster."""
    work = "consume" if cell.kind == "consume" else "produce"
    fill = ("--queues", str(QUEUES), "--count", str(_FILL_MESSAGES), "-d", "60", "--warm-up", "0")
    bench(broker, "produce", *fill)
    options = () if cell.kind == "java-producer" else _without_rate(cell.options)
    rates: list[float] = []
    while len(rates) < pace.ramps_max:
        result = bench(broker, work, *options, "-d", str(pace.ramp), "--warm-up", "0")
        rates.append(result["messages_per_s"])
        if len(rates) > 1 and rates[-1] < max(rates[:-1]) * _STILL_RISING:
            break
    tell(f"  {broker.name} is up and warm: " + ", ".join(f"{rate:,.0f}/s" for rate in rates))
    os.sync()


def load(broker: Loaded, cell: Cell, pace: Pace) -> RunMetrics:
    """Run the native load generator once."""
    how_long = ["-d", str(pace.seconds * cell.longer), "--warm-up", str(pace.warm_up)]
    if cell.count is not None:
        how_long = ["-d", "60", "--warm-up", "0", "--count", str(round(cell.count * pace.burst))]
    result = bench(broker, cell.kind, *cell.options, *how_long)
    if not result["messages_per_s"]:
        raise RuntimeError(
            f"{broker.name} served nothing of {cell.name}, as with a full disk: {result['refused']}"
        )
    latency, share = result["latency_us"], shares(result)
    metrics = {
        "throughput": result["messages_per_s"],
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "p999_us": latency["p999"],
        "cpu_us": broker_cpu_us(result) or 0.0,
        "load_cores": share["load"] or 0.0,
        "broker_cores": share["brokers"] or 0.0,
        "other_cores": share["others"] or 0.0,
        "refused": float(sum(refused["count"] for refused in result["refused"])),
    }
    if result["schedule"] is not None:
        metrics["unsent"] = float(result["schedule"]["unsent"])
    return metrics


def _start(side: Side, cell: Cell, pace: Pace) -> RunMetrics:
    """Start a broker with an empty store: milliseconds until it has accepted a message, stable memory in bytes."""
    accepted_ms = seconds_to_accepted(side, side.start_broker, _ACCEPTED_SECONDS_MAX) * 1000
    time.sleep(_REST_SECONDS)
    private_bytes = side.private_bytes()
    side.stop_broker()
    return {"start_ms": accepted_ms, "memory_bytes": float(private_bytes)}


def seconds_to_accepted(side: Side, start: Callable[[], None], seconds_max: float) -> float:
    """Time from process start to the first accepted send."""
    began = time.perf_counter()
    start()
    while not wire.is_accepted(side.address, "start"):
        if time.perf_counter() - began > seconds_max:
            raise RuntimeError(f"{side.name} accepted nothing for {seconds_max:.0f} s")
        time.sleep(0.001)
    return time.perf_counter() - began


def _java_producer(side: Side, cell: Cell, pace: Pace) -> RunMetrics:
    """One run of Apache's own benchmark producer."""
    return java_producer(side, TOPIC, cell.options, seconds=max(6.0, pace.seconds * 4))


def _without_rate(options: Sequence[str]) -> list[str]:
    """The same load in a closed loop."""
    kept = list(options)
    if "--rate" in kept:
        at = kept.index("--rate")
        del kept[at : at + 2]
    return kept


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _line(metrics: Mapping[str, float]) -> str:
    return "  ".join(
        f"{name} {value:,.2f}" if value < 100 else f"{name} {value:,.0f}" for name, value in metrics.items()
    )
