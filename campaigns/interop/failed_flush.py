"""Sends that each broker acknowledges while all of its flushes fail: `make campaign NAME=failed-flush`.

Both brokers run with SYNC_FLUSH. A few messages are stored. Then strace makes every fsync, fdatasync and msync of the
broker fail with EIO, and FAILED_FLUSH_SENDS (160) messages are sent. A message acknowledged now may exist in memory
only. Ours must acknowledge none and keep reading; Apache's is measured for comparison.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.traffic import send_header
from interop import wire
from interop.folders import Folder
from wire import Peer

SENDS = int(os.environ.get("FAILED_FLUSH_SENDS") or 160)
SENDERS = 16
TOPIC = "flushed"
QUEUES = 4
OK, SERVICE_NOT_AVAILABLE = 0, 14
SYSCALLS = "fsync,fdatasync,msync,sync_file_range"
ATTACHED_SECONDS_MAX = 30.0

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]


async def send(broker: str, count: int) -> Counter[int]:
    """Codes of the answers to `count` messages, sent over several connections concurrently."""
    codes: Counter[int] = Counter()

    async def some(numbers: range) -> None:
        async with await Peer.connect(broker) as peer:
            for number in numbers:
                answer = await peer.call(310, send_header(TOPIC, number % QUEUES), b"x" * 100)
                codes[answer.code] += 1

    async with asyncio.TaskGroup() as senders:
        for first in range(SENDERS):
            senders.create_task(some(range(first, count, SENDERS)))
    return codes


@contextmanager
def failing_flushes(pid: int, log: Path) -> Iterator[None]:
    """Every flush of the process ends with EIO until this is left; strace notes each in `log`."""
    command = ["strace", "-f", "-qq", "-e", f"trace={SYSCALLS}", "-e", f"inject={SYSCALLS}:error=EIO"]
    with subprocess.Popen([*command, "-o", str(log), "-p", str(pid)]) as strace:
        try:
            deadline = time.monotonic() + ATTACHED_SECONDS_MAX
            while not is_traced(pid):
                assert strace.poll() is None, "strace cannot attach to the broker"
                assert time.monotonic() < deadline, "strace did not attach"
                time.sleep(0.02)
            yield
        finally:
            strace.send_signal(signal.SIGINT)


def is_traced(pid: int) -> bool:
    """Whether every thread of the process is traced."""
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return all("TracerPid:\t0\n" not in state for state in states)


def test_a_broker_whose_flushes_fail_acknowledges_nothing(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    rows = []
    for name in ("rmqpy", "apache"):
        home = tmp_path / name
        # On a busy machine Apache's broker would refuse requests that waited for 200 ms.
        settings = {"flushDiskType": "SYNC_FLUSH", "waitTimeMillsInSendQueue": 60_000}
        folder = Folder.make(home, namesrv, originals("apache"), **settings)
        log = home / "strace.log"
        with folder.served_by(name) as broker:
            wire.create_topic(namesrv, folder.broker, TOPIC, QUEUES)
            assert asyncio.run(send(folder.broker, 100)) == {OK: 100}
            with failing_flushes(broker.pid, log):
                codes = asyncio.run(send(folder.broker, SENDS))
            readable = sum(wire.max_offset(folder.broker, TOPIC, queue) for queue in range(QUEUES))
            # Its flushes work again, but the failure must persist.
            afterwards = asyncio.run(send(folder.broker, 100))
            broker.kill()
        failures = log.read_text().count("(INJECTED)")
        rows.append((name, SENDS, failures, codes[OK], dict(codes), readable, afterwards[OK]))
        if name == "rmqpy":
            assert codes == {SERVICE_NOT_AVAILABLE: SENDS}
            assert (readable, afterwards[OK]) == (100, 0)
            assert failures > 0
    print(
        "\nbroker  sends  failed flushes  acknowledged  answers by code  readable of 100 + all  afterwards of 100"
    )
    for name, sends, failures, acknowledged, codes_of, readable, after in rows:
        print(f"{name:6} {sends:6} {failures:15} {acknowledged:13}  {codes_of!s:15} {readable:22} {after:18}")
