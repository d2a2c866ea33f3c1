"""The duration of a start after a kill, on a store of many gigabytes: `make campaign NAME=unclean-start`.

Our broker is killed with UNCLEAN_START_GB (5) of messages in its store. Then ours starts on that folder, and Apache's
on a copy. The measured time runs from the start of the process until all queues have their ends. The page cache stays
as producing and copying left it. The copy's write ring is drained.
With RMQPY_WRITE_PATH=mapping our broker writes through a mapping.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop import servers, wire
from interop.folders import WRITE_PATH, Folder

GIGABYTES = float(os.environ.get("UNCLEAN_START_GB") or 5)
TOPIC = "many"
QUEUES = 8
BODY_BYTES = 4096
BATCH = 16

pytestmark = pytest.mark.timeout(3000)


def produce(folder: Folder, count: int) -> None:
    """Messages through `rmqpy bench`."""
    options = [
        "-s",
        str(BODY_BYTES),
        "--batch",
        str(BATCH),
        "--count",
        str(count),
        "-d",
        "3600",
        "-n",
        folder.namesrv,
    ]
    subprocess.run([sys.executable, "-m", "rmqpy", "bench", "produce", TOPIC, *options], check=True)


def ends(folder: Folder) -> list[int]:
    return [wire.max_offset(folder.broker, TOPIC, queue) for queue in range(QUEUES)]


def start(folder: Folder, name: str, expected: list[int]) -> float:
    """Seconds that the broker of this name takes until it knows the ends of all queues."""
    began = time.monotonic()
    with folder.served_by(name) as broker:
        assert ends(folder) == expected
        seconds = time.monotonic() - began
        broker.kill()
    return seconds


def copy(store: Path, to: Path) -> None:
    """Make a separate store that shares the files of the log which no broker writes any more."""
    subprocess.run(["cp", "-a", "--link", str(store), str(to)], check=True)
    # The newest file may be the next one, created early: the file before it is still written.
    written = {file.name for file in sorted((store / "commitlog").iterdir())[-2:]}
    for file in [found for found in to.rglob("*") if found.is_file()]:
        if file.parent.name != "commitlog" or file.name in written:
            own = file.with_suffix(".own")
            subprocess.run(["cp", "-a", "--sparse=always", str(file), str(own)], check=True)
            own.replace(file)


def test_an_unclean_start_of_both_brokers(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    settings = WRITE_PATH | {
        "mappedFileSizeCommitLog": 1 << 30,
        "messageDelayLevel": servers.APACHE_DELAY_LEVELS,
    }
    first = Folder.make(tmp_path / "rmqpy", namesrv, originals("apache"), **settings)
    second = Folder.make(tmp_path / "apache", namesrv, originals("apache"), **settings)
    with first.served_by("rmqpy") as broker:
        wire.create_topic(namesrv, first.broker, TOPIC, QUEUES)
        produce(first, int(GIGABYTES * 2**30 / BODY_BYTES))
        expected = ends(first)
        broker.kill()
    copy(first.home / "store", second.home / "store")
    second.drain()
    seconds = {"rmqpy": start(first, "rmqpy", expected), "apache": start(second, "apache", expected)}
    size = sum(file.stat().st_blocks * 512 for file in (first.home / "store" / "commitlog").iterdir())
    print(f"\nunclean start on {size / 2**30:.1f} GiB of log, {sum(expected)} messages")
    for name, taken in seconds.items():
        print(f"{name:8} {taken:6.1f} s")
