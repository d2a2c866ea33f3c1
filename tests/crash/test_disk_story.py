"""A disk that another program fills next to the broker: fill, expire, refuse, recover, stop in order, repeat.

The store is on a separate file system, ext4 and tmpfs in turn, with a program (`eater`) that continuously takes and
frees space. In each round the broker is started; four senders send while the eater leaves less and
less: old files are deleted, then messages are refused while the disk is completely full, then the eater frees
space and messages are accepted again. Acknowledged messages are read back, except for whole files at the start of the
log, which retention may delete. Then the broker is stopped, and must have stopped in order.

The number of rounds, half of them on each file system, is `RMQPY_DISK_ROUNDS`; the log lines of all brokers are printed
at the end, each once, with its count. `make campaign-disk` has many rounds. Needs root.
"""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crash.killable import Broker
from crash.loopback import MountedImage, Unavailable
from crash.traffic import QUEUES, Acknowledged, AcknowledgedMessage, read_queue, send_header
from rmqpy.protocol.codes import RequestCode
from tmpfs import tmpfs
from waiting import until_async
from wire import Peer

ROUNDS = max(1, int(os.environ.get("RMQPY_DISK_ROUNDS", "4")) // 2)
MIB = 1 << 20
DISK_BYTES = 256 * MIB
FILE_BYTES = 4 * MIB
#: Free bytes that the eater leaves: plenty; so few that files go, but messages are taken; next to none.
PLENTY, SHORT, FULL = (150 * MIB, 180 * MIB), (75 * MIB, 90 * MIB), (0, 24 * MIB)
#: Messages expire at once; files go when six tenths of the disk are in use.
SETTINGS = (
    "fileReservedTime=0",
    "deleteWhen=04",
    "diskMaxUsedSpaceRatio=60",
    "maxHashSlotNum=10000",
    "maxIndexNum=100000",
)
TOPIC = "story"
SENDERS = 4
OK, BUSY, REFUSED = 0, 2, 14
#: Of each thing that is waited for: the eater writes to a disk that others write to as well.
TIMEOUT_SECONDS = 90.0

pytestmark = [
    pytest.mark.timeout(240 + 30 * ROUNDS),
    pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root"),
]


@contextmanager
def ext4(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir()
    with MountedImage(folder, size) as image:
        yield image.mount_point


@contextmanager
def eater(file: Path) -> Iterator[Callable[[tuple[int, int]], None]]:
    """Runs the eater; tell it between how many bytes it leaves free."""
    command = [sys.executable, str(Path(__file__).with_name("eater.py")), str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    told = process.stdin

    def leave(free: tuple[int, int]) -> None:
        told.write(f"{free[0]} {free[1]}\n")
        told.flush()

    try:
        yield leave
    finally:
        told.close()
        assert process.wait(timeout=60) == 0


@dataclass
class Traffic:
    """What senders have sent, and how it was answered."""

    acknowledged: Acknowledged = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)
    is_over: bool = False

    async def send(self, address: str, seed: int) -> None:
        """One sender: message after message of any size, until it is over."""
        sizes = random.Random(seed)
        async with await Peer.connect(address) as peer:
            while not self.is_over:
                body = sizes.randbytes(sizes.choice((20, 2_000, 30_000)))
                answer = await peer.call(310, send_header(TOPIC, sizes.randrange(QUEUES)), body)
                self.answers[answer.code] += 1
                assert answer.code in (OK, BUSY, REFUSED), answer
                if answer.code == OK:
                    assert answer.ext is not None
                    place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
                    position = int(answer.ext["msgId"][-16:], 16)
                    assert self.acknowledged.get(place) is None, "an offset was given twice"
                    self.acknowledged[place] = AcknowledgedMessage(body, position)
                await asyncio.sleep(0.001)  # the rate of one sender

    async def more(self, code: int, count: int) -> None:
        """Waits until so many more sends are answered so."""
        until = self.answers[code] + count
        await true_once(lambda: self.answers[code] >= until)


async def true_once(holds: Callable[[], bool]) -> None:
    await until_async(holds, seconds=TIMEOUT_SECONDS)


def log_files(root: Path) -> list[int]:
    """Where the files of the log begin; they have to be neighbours."""
    begins = sorted(int(name) for name in os.listdir(root / "store/commitlog"))
    assert begins == list(range(begins[0], begins[0] + len(begins) * FILE_BYTES, FILE_BYTES)), begins
    return begins


async def first_offset(peer: Peer, queue: int) -> int:
    answer = await peer.call(RequestCode.GET_MIN_OFFSET, {"topic": TOPIC, "queueId": str(queue)})
    assert answer.ext is not None, answer
    return int(answer.ext["offset"])


async def read_what_is_left(peer: Peer, queue: int) -> tuple[int, list[bytes]]:
    """The first offset of a queue, and its bodies from there on; read again where a file went meanwhile."""
    while True:
        first = await first_offset(peer, queue)
        try:
            return first, await read_queue(peer, TOPIC, queue, first)
        except AssertionError:
            # Queues are trimmed a moment after a file of the log is gone.
            with suppress(AssertionError):
                await until_async(lambda: first_offset(peer, queue), first.__ne__, 10)
                continue
            raise


async def audit(address: str, root: Path, traffic: Traffic) -> int:
    """Everything acknowledged is there, but for whole files at the start. Returns how many messages went with them."""
    found: list[tuple[int, list[bytes]]] = []
    async with await Peer.connect(address) as peer:
        for queue in range(QUEUES):
            found.append(await read_what_is_left(peer, queue))
    begin = log_files(root)[0]
    deleted = [place for place, sent in traffic.acknowledged.items() if sent.position < begin]
    for place in deleted:
        del traffic.acknowledged[place]
    for (queue, offset), sent in traffic.acknowledged.items():
        first, bodies = found[queue]
        assert first <= offset < first + len(bodies), (
            f"queue {queue} has {first} to {first + len(bodies)}; {offset} at {sent.position} was acknowledged, "
            f"and the log begins at {begin}"
        )
        assert bodies[offset - first] == sent.body, f"queue {queue} has another message at {offset}"
    return len(deleted)


@dataclass
class Story:
    """A disk and what has happened on it."""

    root: Path
    log: Path
    traffic: Traffic = field(default_factory=Traffic)
    rounds: int = 0
    deleted: int = 0

    def summary(self) -> str:
        answers = self.traffic.answers
        return (
            f"{self.rounds} rounds in order: {answers[OK]} acknowledged, none lost but {self.deleted} with the oldest "
            f"files; {answers[REFUSED]} refused with code {REFUSED}, {answers[BUSY]} with {BUSY}"
        )

    async def round(self, number: int, leave: Callable[[tuple[int, int]], None]) -> None:
        flush = ("ASYNC_FLUSH", "SYNC_FLUSH")[number % 2]
        with self.log.open("a") as log:
            broker = Broker.start(self.root, f"flushDiskType={flush}", *SETTINGS, log=log)
        try:
            leave(PLENTY)
            async with asyncio.TaskGroup() as tasks:
                self.traffic.is_over = False
                for seed in range(SENDERS):
                    tasks.create_task(self.traffic.send(broker.address, seed))
                try:
                    await self.fill_expire_refuse_recover(leave)
                finally:
                    self.traffic.is_over = True
            self.deleted += await audit(broker.address, self.root, self.traffic)
            broker.stop()
        finally:
            broker.kill()
        assert not (self.root / "store/abort").exists(), "it was not stopped in order"
        self.rounds += 1

    async def fill_expire_refuse_recover(self, leave: Callable[[tuple[int, int]], None]) -> None:
        await true_once(lambda: len(log_files(self.root)) >= 4)
        begin = log_files(self.root)[0]
        leave(SHORT)
        await true_once(lambda: log_files(self.root)[0] > begin)
        leave(FULL)
        await self.traffic.more(REFUSED, 20)
        leave(PLENTY)
        await self.traffic.more(OK, 50)


@pytest.mark.parametrize("disk", [ext4, tmpfs])
async def test_a_store_survives_a_program_that_eats_its_disk(
    tmp_path: Path, disk: Callable[[Path, int], AbstractContextManager[Path]]
) -> None:
    log = tmp_path / "log"
    with ExitStack() as stack:
        try:
            mounted = stack.enter_context(disk(tmp_path / "mounted", DISK_BYTES))
        except Unavailable as reason:
            pytest.skip(str(reason))
        story = Story(mounted, log)
        leave = stack.enter_context(eater(mounted / "eaten"))
        try:
            for number in range(ROUNDS):
                await story.round(number, leave)
        finally:
            print(story.summary(), *summary(log), sep="\n")


def summary(log: Path) -> list[str]:
    """The lines of a log, each once: those that differ in numbers alone are one."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    counts = Counter(f"{each['level']} {re.sub('[0-9]+', '#', each['message'])}" for each in records)
    return [f"  {count:6} × {line}" for line, count in counts.most_common()]
