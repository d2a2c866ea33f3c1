"""Timed messages survive kills and power losses: each acknowledged one is delivered, none before its time.

Goal: 0 lost, 0 early; lateness and repetitions are printed. Method: a producer sends messages
for times up to half a minute ahead, some of them in the same millisecond; when a random part of a
round is acknowledged the broker is killed, or the disk of its store loses power, and the broker is restarted on the
remaining files. In the end all deliveries are read back. The seed is printed; `RMQPY_SEED` repeats it. There are
`RMQPY_TIMERS` messages in all, `RMQPY_TIMER_KILLS` kills and `RMQPY_TIMER_POWER_LOSSES` power losses; `make
campaign-timers` has many.
"""

import asyncio
import os
import random
import signal
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqpy
from crash.killable import Broker
from crash.loopback import MountedImage
from crash.traffic import BODY_AT, QUEUES, pull_header
from rmqpy.errors import RocketMQError
from wire import Peer

TIMERS = int(os.environ.get("RMQPY_TIMERS", "4000"))
KILLS = int(os.environ.get("RMQPY_TIMER_KILLS", "4"))
POWER_LOSSES = int(os.environ.get("RMQPY_TIMER_POWER_LOSSES", "2"))
#: Messages a second: what comes late is to show the broker, not how busy the machine is.
RATE = 4_000
#: Part of the messages that the power losses have: they wait for the disk.
POWER_PART = 0.1
TOPIC = "timed"
#: How far ahead times are: most are near, so that deliveries are under way at every kill.
NEAR_MS, FAR_MS = 4_000, 30_000 if TIMERS > 10_000 else 8_000
SAVE_MS = 500
SETTINGS = (
    f"timerFlushIntervalMs={SAVE_MS}",
    "mappedFileSizeCommitLog=67108864",
    "mappedFileSizeTimerLog=1048576",
)
UNDER_WAY_MAX = 1_000
#: How long after the last time everything has to be there.
DELIVERED_SECONDS_MAX = 180.0
#: A message that was delivered so long before a kill has been saved as delivered, however slow the machine.
UNSAVED_MS = 20_000
#: Position of the store time in a record with IPv4 hosts.
STORED_AT = 56
#: Body: number of the message.
BODY = struct.Struct(">Q")

Cut = Callable[[Broker], None]
Start = Callable[[int], Broker]


class Life(NamedTuple):
    """When a broker served, in ms."""

    begin: int
    end: int


class Ledger:
    """What was sent, and what is known to be stored."""

    def __init__(self) -> None:
        self.due_ms = array("q")
        self.acknowledged = bytearray()
        self.count = 0
        self.lives: list[Life] = []

    def next(self, due_ms: int) -> bytes:
        self.due_ms.append(due_ms)
        self.acknowledged.append(0)
        return BODY.pack(len(self.due_ms) - 1)

    def acknowledge(self, number: int) -> None:
        self.acknowledged[number] = 1
        self.count += 1


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(
    broker: Broker, ledger: Ledger, chance: random.Random, count: int, cut: Callable[[], None] | None
) -> None:
    """Send until so many are acknowledged, and cut the broker off with others under way."""
    burst_ms = now_ms() + chance.randrange(500, NEAR_MS)
    under_way: deque[tuple[int, rmqpy.SendFuture]] = deque()
    wanted = ledger.count + count

    def settle(left: int) -> None:
        while len(under_way) > left:
            number, future = under_way.popleft()
            with suppress(RocketMQError):
                future.result()
                ledger.acknowledge(number)

    with rmqpy.Producer(broker.namesrv, retries=0, send_timeout=30.0) as producer:
        began, first = time.monotonic(), len(ledger.due_ms)
        while ledger.count < wanted:
            ahead_s = (len(ledger.due_ms) - first) / RATE - (time.monotonic() - began)
            if ahead_s > 0.01:
                time.sleep(ahead_s)  # the rate of the load
            kind = chance.random()
            ahead_ms = chance.randrange(1, NEAR_MS if kind < 0.8 else FAR_MS)
            due_ms = burst_ms if kind < 0.1 else now_ms() + ahead_ms
            body = ledger.next(due_ms)
            message = rmqpy.Message(TOPIC, body, deliver_at=due_ms / 1_000)
            under_way.append((len(ledger.due_ms) - 1, producer.submit(message)))
            settle(UNDER_WAY_MAX)
        if cut is None:
            settle(0)
            return
        cut()
        settle(0)
        producer.close(timeout=0)


async def delivered(address: str, ledger: Ledger) -> dict[int, list[int]]:
    """Store times by message, read until all that was acknowledged has come and its time is past."""
    found: dict[int, list[int]] = {}
    missing = {number for number, is_stored in enumerate(ledger.acknowledged) if is_stored}
    offsets = [0] * QUEUES
    last = max(ledger.due_ms, default=0)
    deadline = time.monotonic() + (last - now_ms()) / 1_000 + DELIVERED_SECONDS_MAX
    async with await Peer.connect(address) as peer:
        while missing or now_ms() < last:
            assert time.monotonic() < deadline, (
                f"{len(missing)} of {ledger.count} messages were not delivered"
            )
            is_idle = True
            for queue in range(QUEUES):
                answer = await peer.call(11, pull_header(TOPIC, queue, offsets[queue]))
                if answer.code != 0:
                    continue
                is_idle, at = False, 0
                while at < len(answer.body):
                    (size,) = struct.unpack_from(">i", answer.body, at)
                    (stored_ms,) = struct.unpack_from(">q", answer.body, at + STORED_AT)
                    (number,) = BODY.unpack_from(answer.body, at + BODY_AT + 4)
                    found.setdefault(number, []).append(stored_ms)
                    missing.discard(number)
                    offsets[queue] += 1
                    at += size
            if is_idle:
                await asyncio.sleep(0.1)  # pulls here do not wait at the broker
    return found


def report(name: str, ledger: Ledger, found: dict[int, list[int]], cuts: list[int]) -> None:
    """Print what came of it; nothing may be early, and what came twice was delivered shortly before a cut."""
    early = sum(stored[0] < ledger.due_ms[number] for number, stored in found.items())
    twice = {number: stored for number, stored in found.items() if len(stored) > 1}
    unexplained = [
        stored
        for stored in twice.values()
        for first in stored[:-1]
        if not any(first - 1_000 <= cut <= first + UNSAVED_MS for cut in cuts)
    ]
    late, late_served = [], []
    for number, stored in found.items():
        due_ms = ledger.due_ms[number]
        late.append(stored[0] - due_ms)
        # A second of a start goes into what fell due meanwhile.
        if any(life.begin + 1_000 <= due_ms < life.end for life in ledger.lives):
            late_served.append(stored[0] - due_ms)
    print(
        f"{name}: {len(ledger.due_ms)} sent, {ledger.count} acknowledged, {len(found)} delivered, 0 lost, "
        f"{early} early, {len(twice)} twice; late p99 {_p99(late)} ms of all, "
        f"{_p99(late_served)} ms of {len(late_served)} that fell due while a broker served"
    )
    assert early == 0
    assert not unexplained, f"came again without a cut: {unexplained[:5]}"


def _p99(late: list[int]) -> int:
    return sorted(late)[len(late) * 99 // 100] if late else 0


async def survive(name: str, start: Start, cut: Cut, cuts: int, count: int) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    chance, ledger = random.Random(seed), Ledger()
    cut_ms: list[int] = []
    starts: list[float] = []
    per_round = count // (cuts + 1)
    broker = start(0)
    try:
        for number in range(cuts):
            begin = now_ms()
            wanted = max(1, round(per_round * chance.uniform(0.3, 1.7)))
            doomed = broker
            await asyncio.to_thread(send, doomed, ledger, chance, wanted, partial(cut, doomed))
            cut_ms.append(now_ms())
            ledger.lives.append(Life(begin, cut_ms[-1]))
            began = time.monotonic()
            broker = start(number + 1)
            starts.append(time.monotonic() - began)
        begin = now_ms()
        await asyncio.to_thread(send, broker, ledger, chance, max(1, count - ledger.count), None)
        found = await delivered(broker.address, ledger)
        ledger.lives.append(Life(begin, now_ms()))
    finally:
        broker.kill()
    slowest = f"slowest start {max(starts):.1f} s"
    report(f"{name}: {cuts} cuts, {slowest}", ledger, found, cut_ms)


@pytest.mark.timeout(300 + 30 * KILLS + TIMERS / 500)
async def test_timed_messages_survive_kills(tmp_path: Path) -> None:
    modes = ("ASYNC_FLUSH", "SYNC_FLUSH")
    part = TIMERS if POWER_LOSSES == 0 else round(TIMERS * (1 - POWER_PART))
    await survive(
        "kills",
        lambda life: Broker.start(tmp_path, *SETTINGS, f"flushDiskType={modes[life % 2]}"),
        Broker.kill,
        KILLS,
        part,
    )


@pytest.mark.timeout(300 + 60 * POWER_LOSSES + TIMERS / 500)
async def test_timed_messages_survive_power_losses(disk: MountedImage) -> None:
    def start(life: int) -> Broker:
        if life > 0:
            disk.unmount()
            disk.mount()
        return Broker.start(disk.mount_point, *SETTINGS, "flushDiskType=SYNC_FLUSH")

    def cut(broker: Broker) -> None:
        # As a machine without power, which answers nobody any more.
        broker.process.send_signal(signal.SIGSTOP)
        disk.cut_power()
        broker.kill()

    await survive("power losses", start, cut, POWER_LOSSES, round(TIMERS * POWER_PART))
