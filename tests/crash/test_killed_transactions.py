"""Brokers and producers killed in turn while transactions run: each transaction ends as decided, and once.

Three producer processes of one group have 48 transactions in progress; most are committed or rolled back immediately,
some are left to the broker's check, and some are never decided. Every kill comes at a random moment, after a number
of halves; the broker is restarted on its files, in the other flush mode each time, and a producer is replaced
by one without its state. At the end a member of the group answers checks, and every transaction has to end:

- a committed half that the broker has is visible, and once;
- a rolled-back half is never visible;
- an undecided half is checked and then given up, once.

`RMQPY_TRANSACTION_KILLS` and `RMQPY_TRANSACTIONS` are the numbers of kills and halves, `make campaign-transactions` has
many; the seed of the moments is printed, and `RMQPY_SEED` repeats them.
"""

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import free_ports
from crash import transacting
from crash.killable import Broker
from crash.traffic import QUEUES, read_queue
from crash.transacting import GROUP, TOPIC, fate
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from waiting import until_async
from wire import Peer

KILLS = int(os.environ.get("RMQPY_TRANSACTION_KILLS", "3"))
TRANSACTIONS = int(os.environ.get("RMQPY_TRANSACTIONS", "900"))
PRODUCERS = 3
HALF, MARKS, GIVEN_UP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
FLUSH = ("flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH")
#: Soon asked about, and not given up before the end.
SETTINGS = ("transactionTimeOut=1000", "transactionCheckInterval=1000", "transactionCheckMax=100000")
#: For what one kill waits for, and for the end.
TIMEOUT_S = 120.0


@dataclass
class Producers:
    """Processes that transact, and the halves they know to be stored."""

    folder: Path
    namesrv: str
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        name = f"producer-{next(self.names)}"
        command = [sys.executable, transacting.__file__, self.namesrv, str(self.folder / name), name]
        self.running.append(subprocess.Popen(command))

    def replace(self, index: int) -> None:
        """SIGKILL, and another one."""
        self.kill(self.running.pop(index))
        self.start()

    def end(self) -> None:
        while self.running:
            self.kill(self.running.pop())

    @staticmethod
    def kill(producer: subprocess.Popen[bytes]) -> None:
        assert producer.poll() is None, f"a producer ended by itself with {producer.returncode}"
        producer.kill()
        producer.wait(timeout=30)

    def acknowledged(self) -> set[bytes]:
        """The bodies of halves that were. A line that the kill has cut is none."""
        return {
            line.rstrip(b"\n")
            for file in self.folder.iterdir()
            for line in file.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        }


async def stored_halves(address: str) -> int:
    async with await Peer.connect(address) as peer:
        answer = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": HALF, "queueId": "0"})
        assert answer.ext is not None, answer
        return int(answer.ext["offset"])


async def more_halves(address: str, count: int) -> None:
    """Until so many more are stored."""
    wanted = await stored_halves(address) + count

    async def are_stored() -> bool:
        return await stored_halves(address) >= wanted

    await until_async(are_stored, seconds=TIMEOUT_S)


@dataclass
class Transactions:
    """What a broker has of them, read as it grows."""

    address: str
    #: Bodies, by offset.
    halves: list[bytes] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    _marks: int = 0

    async def open(self) -> list[bytes]:
        """The bodies of those that have not ended."""
        async with await Peer.connect(self.address) as peer:
            self.halves += await read_queue(peer, HALF, 0, len(self.halves))
            marks = await read_queue(peer, MARKS, 0, self._marks)
            self._marks += len(marks)
            for mark in marks:
                self.ended.update(int(offset) for offset in mark.decode().split(",") if offset)
        return [body for offset, body in enumerate(self.halves) if offset not in self.ended]

    async def settle(self) -> None:
        """Until all have ended: those that somebody decides about first, then those that are given up."""

        async def nobody_decides() -> bool:
            return all(fate(body) == "never" for body in await self.open())

        async def none_is_open() -> bool:
            return not await self.open()

        await until_async(nobody_decides, seconds=TIMEOUT_S)
        async with await Peer.connect(self.address) as peer:
            await peer.ask(UpdateBrokerConfig(body="transactionCheckMax=1\n"))
        await until_async(none_is_open, seconds=TIMEOUT_S)

    async def seen(self, topic: str, queues: int) -> Counter[bytes]:
        """The bodies that consumers of a topic see."""
        async with await Peer.connect(self.address) as peer:
            read = [await read_queue(peer, topic, queue) for queue in range(queues)]
        return Counter(body for queue in read for body in queue)


@pytest.mark.timeout(4 * TIMEOUT_S + KILLS * TIMEOUT_S / 4)
async def test_transactions_end_as_decided_and_once_despite_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    chance = random.Random(seed)
    first = free_ports(4)
    ports = (first, first + 3)
    began, killed = time.monotonic(), Counter[str]()
    broker = Broker.start(tmp_path / "store", *SETTINGS, FLUSH[0], ports=ports)
    (tmp_path / "acknowledged").mkdir()
    producers = Producers(tmp_path / "acknowledged", broker.namesrv)
    try:
        with rmqpy.Admin(broker.namesrv) as admin:
            admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        for _ in range(PRODUCERS):
            producers.start()
        for kill in range(KILLS):
            await more_halves(broker.address, TRANSACTIONS // KILLS + 1)
            # The moment of death is what varies.
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            if kill % 2:
                producers.replace(chance.randrange(PRODUCERS))
                killed["producer"] += 1
            else:
                broker.kill()
                killed["broker"] += 1
                broker = Broker.start(tmp_path / "store", *SETTINGS, FLUSH[killed["broker"] % 2], ports=ports)
        producers.end()
        transactions = Transactions(broker.address)
        with rmqpy.Producer(broker.namesrv, group=GROUP, transaction_checker=transacting.decide):
            await transactions.settle()
        seen = await transactions.seen(TOPIC, QUEUES)
        given_up = await transactions.seen(GIVEN_UP, 1)
    finally:
        producers.end()
        broker.kill()
    acknowledged = producers.acknowledged()
    stored = set(transactions.halves)
    wanted = {body for body in stored if fate(body) in ("commit", "asked-commit")}
    never = {body for body in stored if fate(body) == "never"}
    lost, unwanted = wanted - seen.keys(), seen.keys() - wanted
    twice = [body for body, times in (seen + given_up).items() if times > 1]
    print(
        f"seed {seed}: {killed['broker']} kills of the broker, {killed['producer']} of producers, "
        f"{time.monotonic() - began:.0f} s: {len(transactions.halves)} halves, {len(acknowledged)} acknowledged; "
        f"{len(seen)} of {len(wanted)} seen, {len(lost)} lost, {len(unwanted)} seen that should not be, "
        f"{len(twice)} twice; {len(given_up)} of {len(never)} given up; "
        f"fates of what was stored: {dict(Counter(map(fate, stored)))}"
    )
    assert len(transactions.halves) == len(stored) >= TRANSACTIONS, "a half was stored twice"
    assert acknowledged <= stored
    assert (lost, unwanted, twice) == (set(), set(), [])
    assert given_up.keys() == never
    assert set(transactions.ended.values()) == {1}, "an end was marked twice"
