"""How long a start takes after a kill, on a store of many gigabytes: `make unclean-start`.

Our broker is killed with UNCLEAN_START_GB (5) of messages in its store. Then each broker starts on a copy of the folder
as it was left; what counts is the time from its process to the first offset it answers with. The page cache is as the
copying has left it, for both.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import servers, wire
from .folders import Folder

GIGABYTES = float(os.environ.get("UNCLEAN_START_GB") or 5)
TOPIC = "many"
QUEUES = 8
BODY_BYTES = 4096
BATCH = 16

pytestmark = pytest.mark.timeout(3000)


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with servers.rmqpy_name_server(tmp_path) as (address, _):
        yield address


def produce(folder: Folder, count: int) -> None:
    """Messages through `rmqpy bench`."""
    options = ["-s", str(BODY_BYTES), "--batch", str(BATCH), "--count", str(count), "-n", folder.namesrv]
    subprocess.run([sys.executable, "-m", "rmqpy", "bench", "produce", TOPIC, *options], check=True)


def ends(folder: Folder) -> list[int]:
    return [wire.max_offset(folder.broker, TOPIC, queue) for queue in range(QUEUES)]


def test_an_unclean_start_of_both_brokers(originals: Callable[[str], Path], namesrv: str, tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 30, "messageDelayLevel": servers.APACHE_DELAY_LEVELS}
    first = Folder.make(tmp_path / "rmqpy", namesrv, originals("apache"), **settings)
    second = Folder.make(tmp_path / "apache", namesrv, originals("apache"), **settings)
    with first.served_by("rmqpy") as broker:
        wire.create_topic(namesrv, first.broker, TOPIC, QUEUES)
        produce(first, int(GIGABYTES * 2**30 / BODY_BYTES))
        expected = ends(first)
        broker.kill()
    subprocess.run(["cp", "-a", "--sparse=always", str(first.home / "store"), str(second.home / "store")], check=True)
    seconds = {}
    for name, folder in (("rmqpy", first), ("apache", second)):
        began = time.monotonic()
        with folder.served_by(name) as broker:
            assert ends(folder) == expected
            seconds[name] = time.monotonic() - began
            broker.kill()
    size = sum(file.stat().st_blocks * 512 for file in (first.home / "store" / "commitlog").iterdir())
    print(f"\nunclean start on {size / 2**30:.1f} GiB of log, {sum(expected)} messages")
    for name, taken in seconds.items():
        print(f"{name:8} {taken:6.1f} s")
