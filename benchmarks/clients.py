"""Client comparison: the verbs of Python clients against brokers.

Ours and Java's producer run against our broker, the clients of Kafka and NATS against their brokers, if installed.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell
from benchmarks.client_load import VERBS, WAITING
from benchmarks.interval import RunMetrics
from benchmarks.measure import TOPIC, Pace, Round, bench, record
from benchmarks.peers import OTHER_SYSTEMS
from benchmarks.producer import java_producer
from benchmarks.servers import QUEUES, Apache, Rmqpy

ROOT = Path(__file__).parent.parent


def run_clients(
    cell: Cell, sides: tuple[Rmqpy, Apache], pace: Pace, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Run `send` in turn with Java's producer at our broker, then all verbs and those of the peers."""
    side = sides[0]
    try:
        side.start()
        bench(side, "produce", "--queues", str(QUEUES), "--count", "400000", "-d", "60", "--warm-up", "0")
        pairs = []
        for number in range(pace.pairs):
            ours = _verb(side.namesrv, "send", pace)
            java = java_producer(side, TOPIC, ("-w", "1", "-s", "128"), seconds=max(4.0, pace.seconds * 2))
            tell(
                f"  {number + 1}/{pace.pairs} send {ours['throughput']:,.0f}/s, Java {java['throughput']:,.0f}/s"
            )
            pairs.append(Round(ours, java))
        result = record(pairs)
        result["verbs"] = {}
        for verb in VERBS:
            result["verbs"][verb] = _runs(side.namesrv, verb, pace, tell)
        result[WAITING] = [_verb(side.namesrv, WAITING, pace) for _ in range(pace.pairs)]
    finally:
        side.stop()
    result["peers"] = {}
    for kind in (kind for kind in OTHER_SYSTEMS if kind.verbs):
        if missing := kind.missing_client():
            tell(f"  without {kind.name}: {missing}")
            continue
        with kind(side.folder.parent) as other:
            result["peers"][other.title()] = {
                verb: _runs(other.address, verb, pace, tell) for verb in other.verbs
            }
    return result


def _runs(address: str, verb: str, pace: Pace, tell: Callable[[str], None]) -> list[RunMetrics]:
    runs = [_verb(address, verb, pace) for _ in range(pace.pairs)]
    tell(f"  {verb} " + ", ".join(f"{run['throughput']:,.0f}/s" for run in runs))
    return runs


def _verb(address: str, verb: str, pace: Pace) -> RunMetrics:
    command = [sys.executable, "-m", "benchmarks.verb", verb, address, TOPIC, str(pace.seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{verb} failed: {done.stderr[-2000:]}")
    metrics: RunMetrics = json.loads(done.stdout)
    return metrics
