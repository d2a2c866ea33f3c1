"""Attacks on running servers: the cases are carried out, and their ends compared with the expected ones.

Also a command, for a broker started in any way::

    PYTHONPATH=tests python -m hostile.attack --broker 127.0.0.1:10911 --namesrv 127.0.0.1:9876 --pid 4711

A good citizen is served all the while on connections of its own; how long it waits is part of the result. Memory is
private memory (RssAnon) of the process. Everything has a time limit; nothing is retried.
"""

import argparse
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hostile.cases import BYTES, COURTESY, GROUP, REQUESTS, TOPIC, Case, send, topic
from hostile.conduct import CONDUCT, TIMEOUT_S, Address
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

#: How long a server has to prove that it waits.
GLANCE = 0.05
#: Private memory that a case may leave behind.
GROWTH_MAX = 64 << 20


def parsed(address: str) -> Address:
    host, _, port = address.rpartition(":")
    return host, int(port)


@dataclass
class Target:
    """The servers under attack; one process."""

    broker: Address
    namesrv: Address
    pid: int

    def address(self, name: str) -> Address:
        return self.namesrv if name == "namesrv" else self.broker

    def memory(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))

    def prepare(self) -> None:
        """Make the topic and the group the cases speak of."""
        with Connection(self.broker) as peer:
            four_queues = topic(TOPIC, readQueueNums="4", writeQueueNums="4")
            assert peer.ask(Frame(Code.UPDATE_AND_CREATE_TOPIC, ext=four_queues))
            group = b'{"groupName":"%s"}' % GROUP.encode()
            assert peer.ask(Frame(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))
            assert peer.ask(Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"first"))


class Connection:
    """One blocking connection."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> Frame | None:
        """The next frame; `None` when the server closed."""
        word = self._exactly(4)
        content = self._exactly(int.from_bytes(word, "big")) if word else b""
        return Frame.unpack(content) if content else None

    def ask(self, frame: Frame) -> bool:
        """Whether it was served."""
        self.socket.sendall(frame.pack())
        answer = self.receive()
        return answer is not None and answer.code == 0

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = self.socket.recv(min(size, 1 << 20))
            except ConnectionError:
                return b""
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


# ----------------------------------------------------------------------------------------------------------------
# One case
# ----------------------------------------------------------------------------------------------------------------


def attempt(case: Case, address: Address, courtesy: Frame) -> str:
    """Send it all; how that ended, in the words of the tables."""
    with Connection(address) as peer:
        sending = threading.Thread(target=_pour, args=(peer.socket, case.content), daemon=True)
        sending.start()
        try:
            return _ending(case, peer, courtesy)
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


def _ending(case: Case, peer: Connection, courtesy: Frame) -> str:
    if case.end == "waits":
        peer.socket.settimeout(GLANCE)
        try:
            return "closed" if not peer.socket.recv(1) else "answered"
        except TimeoutError:
            return "waits"
    if case.end == "ignored":
        return "ignored" if peer.ask(courtesy) else "not served afterwards"
    answer = peer.receive()
    if answer is None:
        return "closed"
    if not peer.ask(courtesy):
        return "not served afterwards"
    if case.end == "answered":
        return "answered"
    return "served" if answer.code == 0 else "refused"


# ----------------------------------------------------------------------------------------------------------------
# All of them
# ----------------------------------------------------------------------------------------------------------------


@dataclass
class Citizen:
    """Asks something sensible all the time and notes how long the answers take."""

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
                    if not peer.ask(COURTESY[name]):
                        self.failures.append(f"{name} did not serve")
                        return
                    self.waits.append(time.monotonic() - began)
        except OSError as error:
            self.failures.append(f"{name}: {error}")


@dataclass(frozen=True)
class Row:
    """What became of one case."""

    name: str
    expected: str
    end: str
    grown: int

    @property
    def is_right(self) -> bool:
        return self.end == self.expected and self.grown <= GROWTH_MAX

    def __str__(self) -> str:
        mark = "  " if self.is_right else "!!"
        return f"{mark} {self.end:<10} {self.grown >> 10:>8}  {self.name}"


HEADING = f"   {'end':<10} {'RSS +KiB':>8}  attack"


def attack(target: Target, cases: Iterable[Case]) -> Iterator[Row]:
    """Carry out cases of the tables. Growth is against the beginning, so a leak adds up."""
    before = target.memory()
    for case in cases:
        name = "broker" if case.target == "any" else case.target
        end = attempt(case, target.address(name), COURTESY[name])
        yield Row(case.name, case.end, end, target.memory() - before)


def misbehave(target: Target) -> Iterator[Row]:
    """Carry out what is wrong by its conduct. Growth is the peak of each; the last row is what all of them left."""
    beginning = target.memory()
    for name, at, conduct in CONDUCT:
        before = peak = target.memory()
        doing = threading.Thread(target=_contained, args=(conduct, target.address(at)), daemon=True)
        doing.start()
        while doing.is_alive():
            doing.join(0.05)
            peak = max(peak, target.memory())
        with Connection(target.address(at)) as peer:
            end = "served" if peer.ask(COURTESY[at]) else "not served"
        yield Row(name, "served", end, peak - before)
    # Two servers were attacked, each with bounds of its own, and the allocator keeps what they gave back.
    yield Row("left behind, by each server", "served", "served", (target.memory() - beginning) // 2)


def _contained(conduct: Callable[[Address], None], address: Address) -> None:
    # That the server hangs up on such a peer is one of the good ends.
    with suppress(OSError):
        conduct(address)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", type=parsed, required=True, metavar="HOST:PORT")
    parser.add_argument("--namesrv", type=parsed, required=True, metavar="HOST:PORT")
    parser.add_argument("--pid", type=int, required=True, help="the process whose private memory is watched")
    asked = parser.parse_args()
    target = Target(asked.broker, asked.namesrv, asked.pid)
    target.prepare()
    citizen = Citizen(target)
    wrong = 0
    print(HEADING)
    with citizen.about():
        for rows in (attack(target, BYTES), attack(target, REQUESTS), misbehave(target)):
            for row in rows:
                print(row, flush=True)
                wrong += not row.is_right
    waits = sorted(citizen.waits)
    print(f"{wrong} wrong. A good citizen asked {len(waits)} times and waited", end=" ")
    print(
        f"{statistics.median(waits) * 1e3:.1f} ms, 1 in 100 {waits[-len(waits) // 100] * 1e3:.1f} ms,",
        end=" ",
    )
    print(f"at most {waits[-1] * 1e3:.1f} ms. {'; '.join(citizen.failures)}")
    return 1 if wrong or citizen.failures else 0


if __name__ == "__main__":
    sys.exit(main())
