"""The Python client's verbs against our broker, and Java's producer with one thread beside the first of them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell
from benchmarks.client_load import VERBS
from benchmarks.measure import TOPIC, Figures, Pace, Pair, bench, record
from benchmarks.producer import java_producer
from benchmarks.servers import QUEUES, Apache, Rmqpy

ROOT = Path(__file__).parent.parent


def run_clients(
    cell: Cell, sides: tuple[Rmqpy, Apache], pace: Pace, tell: Callable[[str], None]
) -> dict[str, Any]:
    """`send` in turn with Java's producer, both at our broker; then the other verbs, each so often."""
    side = sides[0]
    try:
        side.start()
        bench(
            side, "produce", TOPIC, "--queues", str(QUEUES), "--count", "400000", "-d", "60", "--warm-up", "0"
        )
        pairs = []
        for number in range(pace.pairs):
            ours = _verb(side, "send", pace)
            java = java_producer(side, TOPIC, ("-w", "1", "-s", "128"), seconds=max(4.0, pace.seconds * 2))
            tell(
                f"  {number + 1}/{pace.pairs} send {ours['throughput']:,.0f}/s, Java {java['throughput']:,.0f}/s"
            )
            pairs.append(Pair(ours, java))
        result = record(pairs)
        result["verbs"] = {}
        for verb in VERBS:
            runs = [_verb(side, verb, pace) for _ in range(pace.pairs)]
            result["verbs"][verb] = runs
            tell(f"  {verb} " + ", ".join(f"{run['throughput']:,.0f}/s" for run in runs))
    finally:
        side.stop()
    return result


def _verb(side: Rmqpy, verb: str, pace: Pace) -> Figures:
    command = [sys.executable, "-m", "benchmarks.client_load", verb, side.namesrv, TOPIC, str(pace.seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{verb} failed: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout)
    return figures
