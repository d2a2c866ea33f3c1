"""A group of eight under attack: `make campaign-group`, CAMPAIGN_SECONDS long, at CAMPAIGN_RATE messages a second.

Goal: with six rmqpy and two Java members that join, leave and are killed at random, no message is lost, every
duplicate lies at a change of the group, no queue is left alone for longer than a takeover takes, and, in ordered
mode, every member gets a queue in order. Method: every member writes what it consumes before it may be committed.
The seed is printed; `CAMPAIGN_SEED` repeats the choices.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

import rmqpy
from benchmarks.processes import Child

from . import servers, wire
from .clients import ProcessClient, start_java
from .ledger import Ledger

SECONDS = float(os.environ.get("CAMPAIGN_SECONDS") or 600)
RATE = int(os.environ.get("CAMPAIGN_RATE") or 5000)
QUEUES = 16
OURS, THEIRS = 6, 2
#: How long a queue may be without owner: concurrent, and ordered, where a dead member's lock lives for 60 s.
UNOWNED_S = {"concurrent": 25.0, "ordered": 65.0}
#: Between two attacks.
PAUSE_S = (3.0, 12.0)
DRAIN_S = 120.0

pytestmark = pytest.mark.timeout(SECONDS + 400)


class Member(Protocol):
    """One of the group."""

    name: str

    def leave(self) -> None: ...

    def kill(self) -> None: ...


class OurMember:
    """A process with a push consumer of ours."""

    def __init__(self, name: str, namesrv: str, group: str, mode: str, folder: Path, ledger: Ledger) -> None:
        self.name = name
        script = str(Path(__file__).with_name("member.py"))
        command = [sys.executable, script, namesrv, group, group, mode]
        self._child = Child(name, command, folder, is_piped=True)
        self._ledger = ledger
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def leave(self) -> None:
        self._child.stop(40.0)
        self._reader.join()

    def kill(self) -> None:
        self._child.kill()
        self._reader.join()

    def _read(self) -> None:
        for line in self._child.stdout:
            if line.endswith(b"\n"):  # Not so when the process was killed while it wrote.
                self._ledger.consumed(self.name, *map(int, line.split()))


class JavaMember:
    """A JVM with a push consumer of Java's."""

    def __init__(
        self, name: str, client: ProcessClient, namesrv: str, group: str, mode: str, ledger: Ledger
    ) -> None:
        self.name = name
        self._client = client
        self._ledger = ledger
        self._listener = client.listen(namesrv, group, group, ordered=mode == "ordered")
        self._has_ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def leave(self) -> None:
        self._listener.stop()
        self._end()
        self._client.close()

    def kill(self) -> None:
        self._client.kill()
        self._end()

    def _end(self) -> None:
        self._has_ended.set()
        self._reader.join()

    def _read(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._has_ended.wait(0.05)
            for queue, offset in self._listener.take():
                self._ledger.consumed(self.name, queue, offset, offset)


@pytest.mark.parametrize("mode", UNOWNED_S)
def test_a_group_of_eight_survives_joins_leaves_and_kills(
    mode: str, originals: Callable[[str], Path], folder: Path
) -> None:
    seed = int(os.environ.get("CAMPAIGN_SEED") or random.randrange(1 << 32))
    chance = random.Random(seed)
    build = originals("java-5.5.0")
    group = f"campaign-{mode}"
    home = folder / group
    home.mkdir()
    numbers = iter(range(10_000))
    ledger = Ledger(QUEUES)
    with ExitStack() as stack:
        cluster = stack.enter_context(servers.rmqpy_standalone(home))
        wire.create_topic(cluster.namesrv, cluster.broker, group, QUEUES)

        def join(is_java: bool) -> Member:
            name = f"{'java' if is_java else 'ours'}-{next(numbers)}"
            if is_java:
                client = start_java(build, "5.5.0", home, name)
                return JavaMember(name, client, cluster.namesrv, group, mode, ledger)
            return OurMember(name, cluster.namesrv, group, mode, home, ledger)

        members = {index: join(index >= OURS) for index in range(OURS + THEIRS)}
        stack.callback(lambda: [member.kill() for member in members.values()])
        ends_at = time.monotonic() + SECONDS
        producer = threading.Thread(target=_produce, args=(cluster.namesrv, group, ends_at))
        producer.start()
        attacks = 0
        while time.monotonic() < ends_at - PAUSE_S[1]:
            time.sleep(chance.uniform(*PAUSE_S))
            index = chance.randrange(len(members))
            how = chance.choice(["leaves", "is killed"])
            ledger.change(f"{how}, joins")
            if how == "leaves":
                members[index].leave()
            else:
                members[index].kill()
            time.sleep(chance.uniform(0.0, PAUSE_S[0]))
            ledger.change(f"{how}, joins")
            members[index] = join(index >= OURS)
            attacks += 1
        producer.join()
        ends = _ends(cluster.namesrv, group)
        deadline = time.monotonic() + DRAIN_S
        while ledger.missing(ends) and time.monotonic() < deadline:
            time.sleep(0.2)
    worst = max(ledger.gaps.values())
    print(
        f"\n{mode}, seed {seed}: {sum(ends.values())} messages in {SECONDS:.0f} s, {attacks} attacks; "
        f"lost {ledger.missing(ends)}, delivered again {dict(ledger.duplicates)}, "
        f"unexplained {len(ledger.unexplained)}, longest pause of a queue {worst:.1f} s"
    )
    assert ledger.missing(ends) == 0
    assert not ledger.unexplained, ledger.unexplained[:10]
    assert worst <= UNOWNED_S[mode]
    if mode == "ordered":
        assert not ledger.disorder, ledger.disorder[:10]


def _produce(namesrv: str, topic: str, ends_at: float) -> None:
    """RATE messages a second, evenly over the queues, a tenth of a second at a time."""
    with rmqpy.Producer(namesrv, send_timeout=30.0) as producer:
        for burst in _ticks(ends_at):
            for number in range(RATE // 10):
                producer.submit(topic, b"x" * 100, keys=f"{burst}-{number}")


def _ticks(ends_at: float) -> Iterator[int]:
    due = time.monotonic()
    burst = 0
    while due < ends_at:
        time.sleep(max(0.0, due - time.monotonic()))
        yield burst
        burst += 1
        due += 0.1


def _ends(namesrv: str, topic: str) -> dict[int, int]:
    with rmqpy.PullConsumer("auditor", namesrv, auto_commit=False) as auditor:
        return {queue.queue_id: auditor.offsets(queue)[1] for queue in auditor.queues(topic)}
