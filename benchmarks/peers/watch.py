"""Watched runs: runs a load tool and measures processor time from outside, the same way for every tool.

The whole process of the tool is measured, with its start. Processes on one machine only.
"""

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cells import Cell
from benchmarks.interval import RunMetrics
from benchmarks.peers.system import Peer
from benchmarks.processes import busy_seconds, cpu_seconds

_RUN_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Watched:
    """Output of a tool, and the processor time during its run."""

    #: Its output, then its errors.
    output: str
    seconds: float
    tool_s: float
    broker_s: float
    machine_s: float


def run(peer: Peer, cell: Cell, count: int, folder: Path) -> RunMetrics:
    """Run the peer's tool once. Raises `RuntimeError` with its output when it fails."""
    peer.prepare(cell)
    command = peer.tool(cell, count)
    try:
        watched = watch(command, peer.pids, folder)
        printed = peer.read(watched.output, cell, count)
    except (subprocess.SubprocessError, ValueError) as error:
        said = f"{getattr(error, 'stdout', '')}{getattr(error, 'stderr', '')}"
        raise RuntimeError(f"{peer.name}: {cell.name}: {error}\n{said[-2000:]}") from error
    percentiles = {"p50_us": printed.p50_us, "p99_us": printed.p99_us, "p999_us": printed.p999_us}
    others = watched.machine_s - watched.tool_s - watched.broker_s
    return {
        "throughput": printed.per_second,
        **{name: value for name, value in percentiles.items() if value is not None},
        "cpu_us": watched.broker_s / printed.messages * 1e6,
        "load_cores": watched.tool_s / watched.seconds,
        "other_cores": max(0.0, others / watched.seconds),
        "refused": 0.0,
    }


def watch(command: Sequence[str], pids: Sequence[int], folder: Path) -> Watched:
    """Run a command until it ends, with `folder` as its home: without the user's settings."""
    environment = {**os.environ, "HOME": str(folder)}
    brokers, machine, tool = _used(pids), busy_seconds(), _children_seconds()
    began = time.perf_counter()
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_RUN_SECONDS_MAX,
    )
    seconds = time.perf_counter() - began
    return Watched(
        done.stdout + done.stderr,
        seconds,
        _children_seconds() - tool,
        _used(pids) - brokers,
        busy_seconds() - machine,
    )


def _used(pids: Sequence[int]) -> float:
    return sum(cpu_seconds(pid) for pid in pids)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
