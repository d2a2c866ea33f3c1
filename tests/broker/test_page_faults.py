"""Page faults of sends: the threads that serve sends take none once they are warm."""

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rmqpy import testing
from rmqpy.server import Standalone
from waiting import until
from wire import Frame

#: Sends before anything is counted: buffers have their sizes, and every kind of file has had its next one.
WARM_UP = 3_000_000
SENDS = 1_000_000
#: None on an otherwise idle machine. If other processes delay maintenance, which prefaults the write ring, there are
#: some, and a million sends are counted repeatedly until one run has no more than these. Sends that load
#: their pages themselves take thousands.
FAULTS_MAX = 500
MILLIONS_MAX = 4
QUEUES = 8
#: Arguments of `rmqpy bench produce`, by topic. Every message has a different key.
LOADS = {
    "small": ("-c", "4", "-w", "64"),
    "large": ("-c", "2", "-w", "8", "-s", "1024"),
    "batches": ("-c", "2", "-w", "2", "--batch", "32", "--header", "binary"),
}
#: Of which a million sends fill several.
FILES = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20_000,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}


def io_thread_faults() -> int:
    """Page faults, minor and major, that the I/O threads of this process have taken."""
    faults = []
    for thread in Path("/proc/self/task").iterdir():
        _, name, fields = thread.joinpath("stat").read_text().replace(")", "(").split("(")
        if name.startswith("rmq-io-"):
            faults.append(int(fields.split()[7]) + int(fields.split()[9]))
    assert faults, "no thread has the name of an I/O thread"
    return sum(faults)


class Offsets:
    """Return the number of messages that the broker reports."""

    def __init__(self, server: Standalone) -> None:
        host, port = server.broker.rsplit(":", 1)
        self._peer = socket.create_connection((host, int(port)), timeout=60)

    def __enter__(self) -> "Offsets":
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def _end(self, topic: str, queue: int) -> int:
        self._peer.sendall(Frame(30, ext={"topic": topic, "queueId": str(queue)}).pack())
        with self._peer.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = Frame.unpack(stream.read(size))
        return int((answer.ext or {}).get("offset", 0)) if answer.code == 0 else 0

    def total(self) -> int:
        return sum(self._end(topic, queue) for topic in LOADS for queue in range(QUEUES))

    def wait_for(self, total: int) -> None:
        until(self.total, 300, wanted=lambda found: found >= total)


@contextmanager
def load(server: Standalone, topic: str, *arguments: str) -> Iterator[None]:
    """Sends to a topic, from another process, until the block is left."""
    command = [sys.executable, "-m", "rmqpy", "bench", "produce", topic, "-n", server.namesrv, "-d", "600"]
    process = subprocess.Popen(
        [*command, "--queues", str(QUEUES), "--timeout", "30", *arguments], stdout=subprocess.DEVNULL
    )
    try:
        yield
        assert process.poll() is None, "the load generator ended early"
    finally:
        process.kill()
        process.wait(timeout=30)


@pytest.mark.timeout(600)
def test_a_million_sends_are_served_without_page_faults() -> None:
    with testing.broker(**FILES) as server, Offsets(server) as offsets, ExitStack() as loads:
        for topic, arguments in LOADS.items():
            loads.enter_context(load(server, topic, *arguments))
        offsets.wait_for(WARM_UP)
        counts: list[int] = []
        while min(counts, default=SENDS) > FAULTS_MAX:
            assert len(counts) < MILLIONS_MAX, f"page faults in each million of sends: {counts}"
            before, begin = io_thread_faults(), offsets.total()
            offsets.wait_for(begin + SENDS)
            counts.append(io_thread_faults() - before)
    print(f"page faults in each million of sends: {counts}")
