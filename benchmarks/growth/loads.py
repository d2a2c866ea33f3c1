"""Curve measurements: each starts a side with a new store, sets up one value, loads, measures and stops."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from benchmarks import wire
from benchmarks.interval import RunMetrics
from benchmarks.measure import TOPIC, bench, seconds_to_accepted
from benchmarks.servers import ROOT, Apache, Side
from rmqpy.load.report import broker_cpu_us

_MIB: Final = 1 << 20
#: Load before measuring, mostly for Java's compiler.
_WARM_SECONDS: Final = 1.0
_WARM_SECONDS_JAVA: Final = 6.0
_SECONDS: Final = 3.0
#: Time until a broker's memory is stable.
_REST_SECONDS: Final = 3.0
_STARTED_SECONDS_MAX: Final = 300.0
_BACKLOG_BODY: Final = 1_000
#: Well below what either broker takes alone, so that changes come from the reading.
_BACKLOG_RATE: Final = 5_000
_BACKLOG_SECONDS: Final = 10.0
_GROUPS_SECONDS: Final = 8.0
#: All groups together; their client is written in Python.
_DELIVERIES: Final = 6_000
_TIMER_LEAD: Final = 2 * 24 * 3600
_MEASURED_BYTES_MAX: Final = 4_000_000_000


def queues(side: Side, count: int) -> RunMetrics:
    """Sends on ten connections, round-robin over all queues."""
    with _started(side):
        return _sends(side, "-c", "10", "-w", "64", "--queues", str(count), at_least=2 * count)


def idle_connections(side: Side, count: int) -> RunMetrics:
    """Connections that have sent one request and then idle."""
    with _started(side), ExitStack() as held:
        for _ in range(count):
            held.enter_context(wire.connected(side.address))
        return _sends(side, "-c", "4", "-w", "64")


def producers(side: Side, count: int) -> RunMetrics:
    """One connection each, with one send in flight."""
    with _started(side):
        return _sends(side, "-c", str(count), "-w", "1")


def sizes(side: Side, size: int) -> RunMetrics:
    """Four connections, each with eight sends in flight."""
    with _started(side):
        return _sends(side, "-c", "4", "-w", "8", "-s", str(size), size=size)


def _sends(side: Side, *options: str, at_least: int = 0, size: int = 128) -> RunMetrics:
    """One run after a warm-up, with as many messages as the page cache takes."""
    most = _MEASURED_BYTES_MAX // size
    seconds = _WARM_SECONDS_JAVA if isinstance(side, Apache) else _WARM_SECONDS
    warm = ("-d", str(seconds), "--warm-up", "0", "--count", str(most // 2))
    bench(side, "produce", *options, *warm)
    if at_least:
        bench(side, "produce", *options, "--count", str(at_least), "-d", "120", "--warm-up", "0")
    os.sync()
    result = bench(side, "produce", *options, "-d", str(_SECONDS), "--warm-up", "0.3", "--count", str(most))
    time.sleep(_REST_SECONDS)
    return {
        "throughput": result["messages_per_s"],
        "mb_s": result["bytes"] / 1e6 / result["interval_s"],
        "p99_us": result["latency_us"]["p99"],
        "cpu_us": broker_cpu_us(result) or 0.0,
        "private_mib": side.private_bytes() / _MIB,
    }


def groups(side: Side, count: int) -> RunMetrics:
    """Each group has a pull waiting for the next message; a producer sends at a steady rate."""
    with _started(side):
        command = [sys.executable, "-m", "benchmarks.growth.fan_out", side.address, str(count)]
        rate = max(1, _DELIVERIES // count)
        bench(side, "produce", "--queues", "1", "--count", "1000", "-d", "10", "--warm-up", "0")
        done = subprocess.run(
            [*command, str(rate), str(_GROUPS_SECONDS), str(side.pid)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{side.name}: {done.stderr.strip()[-1000:]}")
        deliveries, p99_us, cpu_us = map(float, done.stdout.split())
        private_mib = side.private_bytes() / _MIB
    return {"deliveries": deliveries, "p99_us": p99_us, "cpu_us": cpu_us, "private_mib": private_mib}


def backlog(side: Side, gigabytes: int) -> RunMetrics:
    """A steady load alone, and the same with four readers that start at the oldest message."""
    steady = ("-c", "4", "-w", "64", "--rate", str(_BACKLOG_RATE), "-d", str(_BACKLOG_SECONDS))
    with _started(side):
        _fill(side, gigabytes * 1_000)
        bench(side, "latency", *steady, "--warm-up", "3")
        before = bench(side, "latency", *steady, "--warm-up", "1")
        command = side.load_command("consume", TOPIC, "-c", "4", "-w", "1")
        reader = subprocess.Popen(
            [*command, "-d", str(_BACKLOG_SECONDS + 4)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            during = bench(side, "latency", *steady, "--warm-up", "2")
            out, error = reader.communicate(timeout=120)
        finally:
            reader.kill()
        if reader.returncode != 0:
            raise RuntimeError(f"{side.name} was not read: {error.strip()[-1000:]}")
    read: dict[str, Any] = json.loads(out)
    return {
        "before_p99_us": before["latency_us"]["p99"],
        "during_p99_us": during["latency_us"]["p99"],
        "read_mb_s": read["bytes"] / 1e6 / read["interval_s"],
    }


def starts(side: Side, megabytes: int) -> RunMetrics:
    """Time to the first accepted send, after an orderly stop and after a kill."""
    with _started(side):
        _fill(side, megabytes)
        side.end_broker(in_order=True)
        stopped = _start_again(side)
        # Leave records behind the checkpoint to recover.
        bench(side, "produce", "--count", "100000", "-d", "60", "--warm-up", "0")
        side.end_broker(in_order=False)
        return {"stopped_s": stopped, "killed_s": _start_again(side)}


def timers(side: Side, count: int) -> RunMetrics:
    """Send this many messages, which then wait."""
    with _started(side):
        bench(side, "produce", "--count", "50000", "-d", "60", "--warm-up", "0")
        rest = side.private_bytes()
        result = bench(
            side, "produce", "-c", "4", "-w", "256", "--count", str(count), "-d", "600", "--warm-up", "0",
            "--due-in", str(_TIMER_LEAD),
        )  # fmt: skip
        time.sleep(5 * _REST_SECONDS)
        private = side.private_bytes()
        side.end_broker(in_order=False)
        started = _start_again(side)
    return {
        "throughput": result["messages_per_s"],
        "cpu_us": broker_cpu_us(result) or 0.0,
        "private_mib": (private - rest) / _MIB,
        "start_s": started,
    }


@contextmanager
def _started(side: Side) -> Iterator[None]:
    try:
        side.start()
        yield
    finally:
        side.stop()


def _fill(side: Side, megabytes: int) -> None:
    """Fill with messages of 1,000 B in batches; they are on the disk on return."""
    count = megabytes * 1_000_000 // _BACKLOG_BODY
    fill = ("-c", "4", "-w", "8", "--batch", "32", "-s", str(_BACKLOG_BODY), "--count", str(count))
    bench(side, "produce", *fill, "-d", "1200", "--warm-up", "0")
    os.sync()


def _start_again(side: Side) -> float:
    """Seconds from process start to the first accepted send."""
    return seconds_to_accepted(side, side.start_broker_again, _STARTED_SECONDS_MAX)
