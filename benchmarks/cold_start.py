"""Cold start: start-up time of trivial commands, compared with a bare interpreter (`make bench NAME=cold-start`).

Commands start in turns, so that other load affects all of them. It prints medians of wall time and of processor time,
which depends less on other load.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmqpy.testing import broker


def commands(namesrv: str) -> Mapping[str, Sequence[str]]:
    """Commands to start, by their name in the table."""
    rmqpy = str(Path(sys.executable).with_name("rmqpy"))
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import rmqpy'": [sys.executable, "-c", "import rmqpy"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
        "rmqpy --version": [rmqpy, "--version"],
        "rmqpy --help": [rmqpy, "--help"],
        "rmqpy topic list": [rmqpy, "topic", "list", "-n", namesrv],
        "rmqpy group lag": [rmqpy, "group", "lag", "TOOLS_CONSUMER", "-n", namesrv],
    }


def once(command: Sequence[str]) -> tuple[float, float]:
    """Milliseconds of wall time and processor time of one run. Raises `CalledProcessError`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1_000, busy * 1_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each command (20)")
    runs = parser.parse_args().runs
    with broker() as server:
        lines = commands(server.namesrv)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
        for number in range(runs + 1):
            for name, command in lines.items():
                measured = once(command)
                # The first round reads files that are not in memory yet.
                if number:
                    taken[name].append(measured)
    print(f"medians of {runs}, in ms; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'':26}{'wall':>8}{'processor':>12}")
    for name, measured_all in taken.items():
        wall, busy = (statistics.median(column) for column in zip(*measured_all, strict=True))
        print(f"{name:26}{wall:8.0f}{busy:12.0f}")


if __name__ == "__main__":
    main()
