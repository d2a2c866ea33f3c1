"""Java producer: runs Apache's benchmark producer (module `example`) against either side."""

import re
import time

from benchmarks import java
from benchmarks.processes import Child, cpu_seconds
from benchmarks.servers import Side

_MAIN = "org.apache.rocketmq.example.benchmark.Producer"
_REPORT = re.compile(
    r"Send TPS: (\d+) \| Max RT\(ms\): \d+ \| Average RT\(ms\): +([\d.]+) \| Send Failed: (\d+)"
)
_START_SECONDS_MAX = 60.0


def java_producer(side: Side, topic: str, options: tuple[str, ...], *, seconds: float) -> dict[str, float]:
    """One run. The result is the last report, which covers up to 10 s before it."""
    lib = java.jars("apache")
    # The producer takes its name server by option and reports each second; only the load is set.
    arguments = ["-n", side.namesrv, "-t", topic, "-ri", "1000", *options]
    with Child("producer", java.command(lib, side.folder, _MAIN, *arguments), side.folder) as child:
        child.wait_until(lambda: bool(_REPORT.search(child.printed())), _START_SECONDS_MAX)
        began, used = time.monotonic(), cpu_seconds(side.pid)
        time.sleep(seconds)
        elapsed, spent = time.monotonic() - began, cpu_seconds(side.pid) - used
        reports = _REPORT.findall(child.printed())
        child.kill()
    rate, average_ms, failed = reports[-1]
    return {
        "throughput": float(rate),
        "mean_us": float(average_ms) * 1000,
        "cpu_us": spent / elapsed / max(1.0, float(rate)) * 1e6,
        "refused": float(failed),
    }
