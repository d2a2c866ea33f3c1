"""Brokers killed while they copy to an S3-compatible server, which stops to answer now and then:
`make campaign NAME=tiered-s3`.

The server is moto's, in its own process. Messages and checks are those of tests/crash/test_killed_tiered.py.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import free_ports
from benchmarks.waiting import until
from benchmarks.wire import is_listening

BUCKET = "rmqpy"
#: The longest pause of the server, and the longest time between two.
PAUSE_S, BETWEEN_S = 4.0, 10.0


@contextmanager
def s3_server(library: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the server with an empty bucket; its address is in the variables that brokers read."""
    port = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(library)}, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: is_listening(f"127.0.0.1:{port}"), seconds=60)
        address = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(
            urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=30
        ).close()
        os.environ |= {
            "AWS_ENDPOINT": address,
            "AWS_ACCESS_KEY_ID": "campaign",
            "AWS_SECRET_ACCESS_KEY": "campaign",
            "AWS_REGION": "us-east-1",
        }
        yield server
    finally:
        server.send_signal(signal.SIGCONT)
        server.kill()
        server.wait()


def pause_now_and_then(
    server: subprocess.Popen[bytes], moments: random.Random, stop: threading.Event
) -> None:
    """Stop the server for some seconds, again and again."""
    while not stop.wait(moments.uniform(1, BETWEEN_S)):
        server.send_signal(signal.SIGSTOP)
        time.sleep(moments.uniform(0, PAUSE_S))  # The fault itself.
        server.send_signal(signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--library", type=Path, required=True, help="the folder with moto")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with s3_server(given.library) as server:
        stop = threading.Event()
        pauses = threading.Thread(
            target=pause_now_and_then, args=(server, random.Random(given.seed), stop), daemon=True
        )
        pauses.start()
        os.environ |= {"RMQPY_KILLS": str(given.kills), "RMQPY_TIERED_STORAGE": f"s3://{BUCKET}/log"}
        command = [sys.executable, "-m", "pytest", "-s", "-q", "tests/crash/test_killed_tiered.py"]
        ended = subprocess.run(command, check=False).returncode
        stop.set()
        pauses.join()
    raise SystemExit(ended)


if __name__ == "__main__":
    main()
