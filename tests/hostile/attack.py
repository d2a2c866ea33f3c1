"""Attacks on running servers: runs the cases, and compares their ends with the expected ones.

Memory is private memory of the process. Everything has a time limit; nothing is retried.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from hostile.cases.case import COURTESY, Case
from hostile.conduct import CONDUCT, CROWDS
from hostile.target import TIMEOUT_S, Address, Connection, Target
from wire import Frame

#: How long a server has to prove that it waits.
GLANCE = 0.05
#: Longest that a broker may take to give back what it does not need any more.
CALM_S = 30.0
#: Private memory that a case may leave behind.
GROWTH_MAX = 64 << 20
#: The same for one that takes every connection there is: the default of `maxConnections`, and what an open frame has.
CROWD_GROWTH_MAX = 10_000 * (10 << 10)


def attempt(case: Case, address: Address) -> int | str:
    """Send it all; how that ended, in the words of the tables."""
    with Connection(address) as peer:
        sending = threading.Thread(target=_pour, args=(peer.socket, case.content), daemon=True)
        sending.start()
        try:
            return _ending(case, peer, COURTESY["namesrv" if case.target == "namesrv" else "broker"], sending)
        except TimeoutError:
            return "no end"
        finally:
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
            sending.join(TIMEOUT_S)


def _pour(to: socket.socket, content: bytes) -> None:
    # The server may hang up in the middle; that is seen on the other side.
    with suppress(OSError):
        to.sendall(content)


def _ending(case: Case, peer: Connection, courtesy: Frame, sending: threading.Thread) -> int | str:
    if case.end == "waits":
        peer.socket.settimeout(GLANCE)
        try:
            return "closed" if not peer.socket.recv(1) else "answered"
        except TimeoutError:
            return "waits"
    if case.end == "ignored":
        return "ignored" if peer.ask(courtesy) else "not served afterwards"
    answer = peer.receive()
    if case.end == "hangs up":
        while answer is not None:
            answer = peer.receive()
        return "hangs up"
    if answer is None:
        return "closed"
    # It may have been answered before all of it was sent.
    sending.join(TIMEOUT_S)
    return answer.code if peer.ask(courtesy) else "not served afterwards"


@dataclass(frozen=True)
class Row:
    """What became of one case."""

    name: str
    expected: int | str
    end: int | str
    grown: int
    grown_max: int = GROWTH_MAX

    @property
    def is_right(self) -> bool:
        is_any_answer = self.expected == "answered" and isinstance(self.end, int)
        return (is_any_answer or self.end == self.expected) and self.grown <= self.grown_max

    def __str__(self) -> str:
        mark = "  " if self.is_right else "!!"
        return f"{mark} {self.end:<8} {self.grown >> 10:>8}  {self.name}"


HEADING = f"   {'answer':<8} {'RSS +KiB':>8}  attack"


def attack(target: Target, cases: Iterable[Case]) -> Iterator[Row]:
    """Carry out cases of the tables. Growth is against the beginning, so a leak adds up."""
    before = target.memory()
    for case in cases:
        end = attempt(case, target.address(case.target))
        yield Row(case.name, case.end, end, target.memory() - before)


def misbehave(target: Target) -> Iterator[Row]:
    """Carry out what is wrong by its conduct. Growth is the peak of each; one row is what all of them left."""
    beginning = target.memory()
    for row in CONDUCT:
        yield _conducted(target, row, GROWTH_MAX)
    # Two servers were attacked, each with bounds of its own, and the allocator keeps what they gave back. Memory that a
    # flood needed goes when it has been quiet for some seconds.
    until = time.monotonic() + CALM_S
    while (left := (target.memory() - beginning) // 2) > GROWTH_MAX and time.monotonic() < until:
        time.sleep(0.5)  # the allocator returns memory by its own clock
    yield Row("left behind, by each server", "served", "served", left)
    for row in CROWDS:
        yield _conducted(target, row, CROWD_GROWTH_MAX)


def _conducted(target: Target, row: tuple[str, str, Callable[[Address], None]], grown_max: int) -> Row:
    name, at, conduct = row
    before = peak = target.memory()
    doing = threading.Thread(target=contained, args=(conduct, target.address(at)), daemon=True)
    doing.start()
    while doing.is_alive():
        doing.join(0.05)
        peak = max(peak, target.memory())
    return Row(name, "served", is_served(target, at), peak - before, grown_max)


def is_served(target: Target, at: str) -> str:
    with Connection(target.address(at)) as peer:
        return "served" if peer.ask(COURTESY[at]) else "not served"


def contained(conduct: Callable[[Address], None], address: Address) -> None:
    """Misbehave; that the server hangs up on such a peer is one of the good ends."""
    with suppress(OSError):
        conduct(address)
