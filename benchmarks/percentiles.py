"""Percentiles: compares those from a broker's histogram in /metrics with those the load measured.

`python -m benchmarks.percentiles`. It sends at a steady rate and reads the buckets of `rocketmq_rpc_latency` before
and after. The load's latency also includes the network and the time a message waited to be sent. It prints both, the
difference, and the bucket of the broker's percentile.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import urllib.request
from itertools import pairwise
from pathlib import Path

from benchmarks.processes import free_ports
from benchmarks.servers import Rmqpy

_BUCKET = re.compile(r"rocketmq_rpc_latency_bucket\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SENDS = {"request_code": "SEND_MESSAGE_V2", "response_code": "SUCCESS"}
_SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}

#: Upper end of a bucket in microseconds → responses up to it.
Buckets = dict[float, float]


class Watched(Rmqpy):
    """A broker with metrics."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.http_port = free_ports(1)

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + f"httpPort={self.http_port}\n"

    def buckets(self) -> Buckets:
        """The buckets of sends since the start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found: Buckets = {}
        for labels, value in _BUCKET.findall(text):
            named = dict(_LABEL.findall(labels))
            if named.items() >= _SENDS.items():
                found[float(named["le"]) * 1_000] = float(value)
        return found


def quantile(buckets: Buckets, share: float) -> tuple[float, float, float]:
    """The percentile as Prometheus computes it, and the ends of its bucket."""
    ordered = sorted(buckets.items())
    wanted = share * ordered[-1][1]
    for (begin, below), (end, upto) in pairwise([(0.0, 0.0), *ordered]):
        if upto >= wanted and upto > below:
            if end == float("inf"):
                return begin, begin, end
            return begin + (end - begin) * (wanted - below) / (upto - below), begin, end
    return 0.0, 0.0, 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="2000", help="messages a second (2000)")
    parser.add_argument("--seconds", default="10", help="of the load (10)")
    parser.add_argument("-c", "--connections", default="4")
    parser.add_argument("--sync", action="store_true", help="with SYNC_FLUSH")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqpy-") as folder:
        side = Watched(Path(folder))
        side.start(is_sync_flush=arguments.sync)
        try:
            options = ["-c", arguments.connections, "-w", "8", "--rate", arguments.rate]
            command = side.load_command("latency", "percentiles", *options, "-d", arguments.seconds)
            # The first load creates the topic.
            subprocess.run([*command, "--warm-up", "0", "--count", "1"], check=True, stdout=subprocess.PIPE)
            before = side.buckets()
            done = subprocess.run([*command, "--warm-up", "0"], check=True, stdout=subprocess.PIPE)
            after = side.buckets()
        finally:
            side.stop()
    measured = json.loads(done.stdout)["latency_us"]
    drawn = {end: count - before.get(end, 0.0) for end, count in after.items()}
    answers = drawn[float("inf")]
    print(
        f"{arguments.rate} messages/s, {answers:.0f} answers; load average {os.getloadavg()[0]:.1f} "
        f"on {os.cpu_count()} processors; in µs"
    )
    print(f"{'':8}{'/metrics':>12}{'bench':>12}{'difference':>12}  bucket")
    for name, share in _SHARES.items():
        at, begin, end = quantile(drawn, share)
        load = measured[name]
        print(f"{name:8}{at:12.0f}{load:12.0f}{load - at:12.0f}  {begin:.0f} to {end:.0f}")


if __name__ == "__main__":
    main()
