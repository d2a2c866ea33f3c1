"""Model of a group of pull consumers on two real brokers: members poll, iterate, commit, join and leave in every way,
come late, and one broker is silent.

Each step is checked against `group_ledger`; `make campaign-model` makes 100,000 of them, MODEL_STEPS in each of its
runs. The times by which members wait for each other are a quarter of the real ones.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import rmqpy
from benchmarks.processes import Child, free_ports
from rmqpy import errors, testing
from rmqpy.client.group import follower, freshness, membership_keeper, subscriber
from rmqpy.client.pull import cursor
from rmqpy.message import MessageQueue

from .group_ledger import Ledger
from .live import WAIT_S

#: Steps in all, and of one group.
STEPS = int(os.environ.get("MODEL_STEPS") or 150)
STEPS_EACH = 60
MEMBERS_MAX = 4
QUEUES_EACH = 2

#: A quarter, so that takeovers are frequent.
SCALED = [
    (subscriber, "GRACE_S"),
    (follower, "GRACE_S"),
    (follower, "LOOK_S"),
    (cursor, "LOOK_S"),
    (follower, "CONFIRM_S"),
    (freshness, "ALIVE_S"),
    (freshness, "PAUSED_S"),
    (membership_keeper, "ALIVE_S"),
    (membership_keeper, "REBALANCE_PAUSE_S"),
]
SCALE = 0.25
REQUEST_TIMEOUT_S = 3.0 * SCALE

pytestmark = pytest.mark.timeout(120 + STEPS)


class Brokers(NamedTuple):
    """Both of them; `process` is that of `broker-b`, which can be silenced."""

    namesrv: str
    process: Child
    admin: rmqpy.Admin
    producer: rmqpy.Producer


@contextmanager
def two_brokers(folder: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        server = stack.enter_context(testing.broker())
        port = free_ports(4) + 2
        entries = {
            **testing.SMALL,
            "brokerName": "broker-b",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": server.namesrv,
            "storePathRootDir": folder / "store",
            "diskSpaceWarningLevelRatio": 100,
        }
        command = [
            sys.executable,
            "-m",
            "rmqpy",
            "broker",
            *(f"{key}={value}" for key, value in entries.items()),
        ]
        process = stack.enter_context(Child("broker-b", command, folder))
        admin = stack.enter_context(rmqpy.Admin(server.namesrv))
        process.wait_until(lambda: len(admin.brokers()) == 2, WAIT_S)
        producer = stack.enter_context(rmqpy.Producer(server.namesrv))
        yield Brokers(server.namesrv, process, admin, producer)


class Reader:
    """One member, with the messages it received and has not finished."""

    def __init__(self, name: str, model: Group, auto_commit: bool | float) -> None:
        self.name = name
        self._ledger = model.ledger
        self._pending: list[rmqpy.ReceivedMessage] = []
        #: The next offset of each owned queue, once one was given.
        self._next: dict[MessageQueue, int] = {}
        self._owned: set[MessageQueue] = set()
        self.consumer = rmqpy.PullConsumer(
            model.group, model.config, start_from="earliest", auto_commit=auto_commit
        )
        self.consumer.subscribe(model.topic, on_rebalance=self._changed)

    def _changed(self, change: rmqpy.Rebalance) -> None:
        gone = change.revoked | change.lost
        assert gone <= self._owned, f"{self.name} gives {sorted(gone)}, which it was not told it owns"
        assert not change.assigned & self._owned, f"{self.name} is told twice of {sorted(change.assigned)}"
        self._owned = (self._owned - gone) | change.assigned
        for queue in gone | change.assigned:
            self._next.pop(queue, None)

    def take(self, messages: list[rmqpy.ReceivedMessage]) -> None:
        self._ledger.hand_out(self.name, messages)
        self._pending += messages
        for message in messages:
            wanted = self._next.get(message.queue, message.queue_offset)
            assert message.queue_offset == wanted, (
                f"{self.name}: {message.queue} {message.queue_offset}, not {wanted}"
            )
            self._next[message.queue] = wanted + 1

    def finish(self) -> None:
        self._ledger.finish(self._pending)
        self._pending = []

    def poll(self, timeout: float, count: int) -> None:
        self.finish()
        self.take(self.consumer.poll(timeout, count))
        assert self.consumer.assignment() == self._owned, f"{self.name} was not told what it owns"

    def iterate(self, count: int) -> None:
        left = count
        self.finish()
        for message in self.consumer:
            self.finish()
            self.take([message])
            left -= 1
            if not left:
                break


class Group(RuleBasedStateMachine):
    """A group of up to four members on a topic of four queues."""

    brokers: Brokers
    numbers: Iterator[int]

    @initialize()
    def begin(self) -> None:
        self.topic = self.group = f"model-{next(self.numbers)}"
        self.config = rmqpy.ClientConfig(namesrv=self.brokers.namesrv, request_timeout=REQUEST_TIMEOUT_S)
        self.brokers.admin.create_topic(self.topic, read_queues=QUEUES_EACH, write_queues=QUEUES_EACH)
        self.queues = self.brokers.producer.queues(self.topic)
        assert len(self.queues) == 2 * QUEUES_EACH
        self.ledger = Ledger()
        self.members: list[Reader] = []
        self.probe = rmqpy.PullConsumer(self.group, self.config, auto_commit=False)
        self.names = self.turns = 0
        #: Steps for which `broker-b` stays silent, and whether it ever was.
        self.silent, self.was_silent = 0, False

    @property
    def may_change(self) -> bool:
        """Members join and leave in two of five steps, so that there is progress to disturb."""
        return not self.members or self.turns % 5 < 2

    # ---- steps -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.may_change and len(self.members) < MEMBERS_MAX)
    @rule(auto_commit=st.sampled_from([False, 0.001, 0.1]))
    def join(self, auto_commit: bool | float) -> None:
        self.names += 1
        with self._step("join"):
            self.members.append(Reader(f"member-{self.names}", self, auto_commit))

    @precondition(lambda self: self.members or not self.turns)
    @rule(count=st.integers(1, 20))
    def send(self, count: int) -> None:
        with self._step("send"):
            self._send(count)

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX - 1), count=st.integers(1, 20))
    def poll(self, index: int, count: int) -> None:
        with self._step("poll"):
            self._member(index).poll(0.02, count)

    @precondition(lambda self: self.members)
    @rule(count=st.integers(1, 20), rounds=st.integers(1, 4))
    def poll_all(self, count: int, rounds: int) -> None:
        with self._step("poll all"):
            self._all(self.members, count, rounds)

    @precondition(lambda self: len(self.members) > 1)
    @rule(index=st.integers(0, MEMBERS_MAX - 1), count=st.integers(1, 20))
    def come_late(self, index: int, count: int) -> None:
        late = self._member(index)
        with self._step("come late"):
            self._all([one for one in self.members if one is not late], count, 4)
            late.poll(0.02, count)

    @precondition(lambda self: self.members and not self.silent)
    @rule(index=st.integers(0, MEMBERS_MAX - 1), count=st.integers(1, 20))
    def iterate(self, index: int, count: int) -> None:
        with self._step("iterate"), self._sending():
            self._member(index).iterate(count)

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX - 1))
    def commit(self, index: int) -> None:
        member = self._member(index)
        with self._step("commit"):
            member.finish()
            member.consumer.commit()

    @precondition(lambda self: self.may_change and self.members)
    @rule(index=st.integers(0, MEMBERS_MAX - 1))
    def close(self, index: int) -> None:
        member = self._member(index)
        self.members.remove(member)
        with self._step("close"):
            member.finish()
            member.consumer.close()

    @precondition(lambda self: self.may_change and self.members)
    @rule(index=st.integers(0, MEMBERS_MAX - 1), count=st.integers(1, 20), is_iterating=st.booleans())
    def leave_with_an_exception(self, index: int, count: int, is_iterating: bool) -> None:
        member = self._member(index)
        self.members.remove(member)
        with self._step("leave with an exception"):
            try:
                with member.consumer:
                    if is_iterating and not self.silent:
                        with self._sending():
                            member.iterate(count)
                    else:
                        member.poll(0.02, count)
                    raise KeyError(member.name)
            except KeyError:
                pass

    @precondition(lambda self: not self.silent)
    @rule(steps=st.integers(1, 5))
    def silence(self, steps: int) -> None:
        self.silent, self.was_silent = steps + 1, True
        os.kill(self.brokers.process.pid, signal.SIGSTOP)
        with self._step("silence"):
            pass

    def teardown(self) -> None:
        if not hasattr(self, "probe"):
            return
        try:
            self._speak()
            if sys.exc_info()[0] is None:
                self._settle()
        finally:
            for member in self.members:
                with suppress(errors.RocketMQError):
                    member.consumer.close()
            self.probe.close()
            self.brokers.admin.delete_topic(self.topic)

    # ---- pieces ----------------------------------------------------------------------------------------

    def _member(self, index: int) -> Reader:
        return self.members[index % len(self.members)]

    def _send(self, count: int) -> None:
        for number in range(count):
            queue = self.queues[number % len(self.queues)]
            if not (self.silent and queue.broker == "broker-b"):
                self.ledger.send(self.brokers.producer.send(self.topic, b"x", queue=queue))

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """For an iteration, which waits for messages."""
        is_over = threading.Event()

        def send() -> None:
            while not is_over.wait(0.05):
                self._send(len(self.queues))

        thread = threading.Thread(target=send)
        self._send(len(self.queues))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _all(self, members: list[Reader], count: int, rounds: int) -> None:
        """Poll with several members concurrently."""

        def work(member: Reader) -> None:
            for _ in range(rounds):
                member.poll(0.1, count)

        with ThreadPoolExecutor(max(1, len(members))) as pool:
            works = [pool.submit(work, member) for member in members]
        for one in works:
            one.result()

    @contextmanager
    def _step(self, kind: str) -> Iterator[None]:
        COUNTED[kind] += 1
        self.turns += 1
        try:
            yield
        except errors.QueueLost:
            COUNTED["(queue lost)"] += 1
        except errors.NameServerUnreachable:
            # It runs in this process, which may lack processor time.
            COUNTED["(name server late)"] += 1
        except (errors.RequestTimeout, errors.ConnectError):
            COUNTED["(timeout)"] += 1
            if not self.silent:
                raise
        if self.silent == 1:
            self._speak()
        self.silent = max(0, self.silent - 1)
        self._check()

    def _check(self) -> None:
        # Commits to a silent broker lie in its connections. When it continues it reads them in any order,
        # a former owner's after its successor's: messages are repeated, none is lost.
        COUNTED["(back after silence)"] += self.ledger.check(
            {
                queue: self.probe.committed(queue)
                for queue in self.queues
                if not (self.silent and queue.broker == "broker-b")
            },
            may_go_back={"broker-b"} if self.was_silent else set(),
        )

    def _speak(self) -> None:
        os.kill(self.brokers.process.pid, signal.SIGCONT)
        self.silent = 0

    def _settle(self) -> None:
        """Have the members receive and commit everything; a new one then begins at the commits."""
        if not self.members:
            self.members.append(Reader("last", self, False))
        deadline = time.monotonic() + WAIT_S
        while left := self.ledger.unfinished:
            assert time.monotonic() < deadline, f"not handed out: {left}"
            self._all(self.members, 1000, 2)
            for member in self.members:
                member.finish()
        self._check()


#: Steps by kind, and events in them.
COUNTED: Counter[str] = Counter()


def steps() -> int:
    return sum(count for kind, count in COUNTED.items() if not kind.startswith("("))


def test_group_loses_no_message_and_commits_only_finished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in SCALED:
        monkeypatch.setattr(module, name, getattr(module, name) * SCALE)
    caplog.set_level(logging.CRITICAL, "rmqpy")
    with two_brokers(tmp_path) as brokers:
        kind = type("Group", (Group,), {"brokers": brokers, "numbers": iter(range(1_000_000))})
        began = time.monotonic()
        try:
            while steps() < STEPS:
                run_state_machine_as_test(
                    kind,
                    settings=settings(
                        max_examples=-(-(STEPS - steps()) // STEPS_EACH),
                        stateful_step_count=STEPS_EACH,
                        phases=[Phase.generate],
                        suppress_health_check=list(HealthCheck),
                        database=None,
                    ),
                )
        finally:
            os.kill(brokers.process.pid, signal.SIGCONT)
            print(f"{steps()} steps in {time.monotonic() - began:.0f} s: {dict(COUNTED)}")
