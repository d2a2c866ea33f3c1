"""A well-behaved client during attacks: it sends reasonable requests all the time, and must be served.

As a program it is a separate process, so that no attack uses its interpreter: a line `SERVER SECONDS` starts a
measurement, and the latencies of that time are printed in one line, in microseconds. It has real-time priority if the
system allows it, because a real client runs on another machine and does not compete for processors.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import IO, Self

from hostile.cases.case import COURTESY
from hostile.target import TIMEOUT_S, Connection, Target, parsed

#: Between the beginnings of two requests.
PERIOD_S = 0.001


@dataclass
class Citizen:
    """Asks both servers, on threads of this process, and notes what goes wrong."""

    target: Target
    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def about(self) -> Iterator[Self]:
        threads = [threading.Thread(target=self._live, args=(name,), daemon=True) for name in COURTESY]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(TIMEOUT_S)

    def _live(self, name: str) -> None:
        try:
            with Connection(self.target.address(name)) as peer:
                while not self._is_over.wait(0.01):
                    began = time.monotonic()
                    if refusal := peer.refusal(COURTESY[name]):
                        self.failures.append(f"{name} did not serve: {refusal}")
                        return
                    self.waits.append(time.monotonic() - began)
        except OSError as error:
            self.failures.append(f"{name}: {error}")


@dataclass(frozen=True)
class CitizenProcess:
    """The same in a process of its own, asked for one measurement at a time."""

    pid: int
    _ask: IO[str]
    _answers: IO[str]

    @classmethod
    @contextmanager
    def about(cls, target: Target) -> Iterator[Self]:
        addresses = [f"{host}:{port}" for host, port in (target.broker, target.namesrv)]
        with subprocess.Popen(
            [sys.executable, "-m", "hostile.citizen", *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield cls(process.pid, process.stdin, process.stdout)
            process.stdin.close()

    def begin(self, server: str, seconds: float) -> None:
        self._ask.write(f"{server} {seconds}\n")
        self._ask.flush()

    @property
    def priority(self) -> str:
        """Once it has begun."""
        return "real-time" if os.sched_getscheduler(self.pid) == os.SCHED_FIFO else "ordinary"

    def waits(self) -> list[int]:
        """The measurement that was begun, when it is over."""
        found: list[int] = json.loads(self._answers.readline())
        return found


def measure(peer: Connection, server: str, seconds: float) -> list[int]:
    """Waits in microseconds. A request that the one before it held up has waited since it was due."""
    waits = []
    packed = COURTESY[server].pack()
    due = time.monotonic()
    end = due + seconds
    while due < end:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)  # the rate of the requests is what is measured
            began = time.monotonic()
        else:
            began = due
        peer.socket.sendall(packed)
        answer = peer.receive()
        assert answer is not None, "the server hung up"
        assert answer.code == 0, answer
        waits.append(round((time.monotonic() - began) * 1e6))
        due += PERIOD_S
    return waits


def main() -> None:
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    addresses = dict(zip(("broker", "namesrv"), map(parsed, sys.argv[1:]), strict=True))
    asked = (line.split() for line in sys.stdin)
    # A server that is full turns new clients away and keeps those it has: one connection for as long as the same one is
    # asked. Then it goes: the server would close it as idle while the other is attacked.
    for server, lines in itertools.groupby(asked, key=itemgetter(0)):
        with Connection(addresses[server]) as peer:
            for _, seconds in lines:
                print(json.dumps(measure(peer, server, float(seconds))), flush=True)


if __name__ == "__main__":
    main()
