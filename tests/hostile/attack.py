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
from rmqpy.protocol.codes import RequestCode as Code
from wire import RESPONSE, Frame

#: Longest that an answer or a closed connection is waited for; long on a busy machine, short for a hang.
PATIENCE = 20.0
#: How long a server has to prove that it waits.
GLANCE = 0.05
#: Private memory that a case may leave behind.
GROWTH_MAX = 64 << 20

Address = tuple[str, int]


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
        with Line(self.broker) as line:
            four_queues = topic(TOPIC, readQueueNums="4", writeQueueNums="4")
            assert line.ask(Frame(Code.UPDATE_AND_CREATE_TOPIC, ext=four_queues))
            group = b'{"groupName":"%s"}' % GROUP.encode()
            assert line.ask(Frame(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))
            assert line.ask(Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"first"))


class Line:
    """One blocking connection."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, PATIENCE)
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
    with Line(address) as line:
        sending = threading.Thread(target=_pour, args=(line.socket, case.content), daemon=True)
        sending.start()
        try:
            return _ending(case, line, courtesy)
        except TimeoutError:
            return "no end"
        finally:
            with suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
            sending.join(PATIENCE)


def _pour(to: socket.socket, content: bytes) -> None:
    # The server may hang up in the middle; that is seen on the other side.
    with suppress(OSError):
        to.sendall(content)


def _ending(case: Case, line: Line, courtesy: Frame) -> str:
    if case.end == "waits":
        line.socket.settimeout(GLANCE)
        try:
            return "closed" if not line.socket.recv(1) else "answered"
        except TimeoutError:
            return "waits"
    if case.end == "ignored":
        return "ignored" if line.ask(courtesy) else "not served afterwards"
    answer = line.receive()
    if answer is None:
        return "closed"
    if not line.ask(courtesy):
        return "not served afterwards"
    if case.end == "answered":
        return "answered"
    return "served" if answer.code == 0 else "refused"


# ----------------------------------------------------------------------------------------------------------------
# Conduct: what is wrong with it is how it goes on
# ----------------------------------------------------------------------------------------------------------------


@contextmanager
def many(address: Address, count: int) -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        sockets += [socket.create_connection(address, PATIENCE) for _ in range(count)]
        yield sockets
    finally:
        for each in sockets:
            each.close()


def half_frames(address: Address) -> None:
    """A thousand connections that announce the largest frame and begin it."""
    with many(address, 1000) as sockets:
        for each in sockets:
            each.sendall(bytes.fromhex("00fffffc 00000010") + b'{"code":')
        time.sleep(1)


def large_halves(address: Address) -> None:
    """Twenty frames of 16 MiB, all but the last byte of each, as far as the server takes them."""
    with many(address, 20) as sockets:
        for each in sockets:
            each.setblocking(False)
        head = bytes.fromhex("00fffffc 00000002") + b"{}"
        rests = [memoryview(head + b"x" * ((16 << 20) - len(head) - 1)) for _ in sockets]
        until = time.monotonic() + 3
        while time.monotonic() < until and any(rests):
            for index, each in enumerate(sockets):
                with suppress(OSError):
                    rests[index] = rests[index][each.send(rests[index][: 1 << 20]) :]
            time.sleep(0.001)


def trickle(address: Address) -> None:
    """Fifty frames, byte by byte."""
    frame = Frame(999_999, body=b"x" * 100).pack()
    with many(address, 50) as sockets:
        for byte in frame:
            for each in sockets:
                each.sendall(bytes([byte]))


def idlers(address: Address) -> None:
    """Two thousand connections that say nothing."""
    with many(address, 2000):
        time.sleep(1)


def churn(address: Address) -> None:
    """Three thousand connections, one after the other, some with a word, some reset."""
    for number in range(3000):
        with socket.create_connection(address, PATIENCE) as each:
            if number % 3 == 1:
                each.sendall(b"\0\0\0")
            elif number % 3 == 2:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def deaf(frame: Frame) -> Callable[[Address], None]:
    def attack(address: Address) -> None:
        packed = frame.pack() * 200
        with many(address, 10) as sockets:
            for each in sockets:
                each.setblocking(False)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                for each in sockets:
                    with suppress(OSError):
                        each.send(packed)
                time.sleep(0.001)

    return attack


def flood(frame: Frame) -> Callable[[Address], None]:
    def attack(address: Address) -> None:
        packed = frame.pack() * 1000
        with socket.create_connection(address, PATIENCE) as each:
            drain = threading.Thread(target=_drain, args=(each,), daemon=True)
            drain.start()
            until = time.monotonic() + 3
            while time.monotonic() < until:
                each.sendall(packed)
            each.shutdown(socket.SHUT_RDWR)
            drain.join(PATIENCE)

    return attack


def _drain(each: socket.socket) -> None:
    with suppress(OSError):
        while each.recv(1 << 20):
            pass


def parked(address: Address) -> None:
    """Ten thousand pulls held for ever, on ten connections, which then go away."""
    from hostile.cases import pull

    fields = pull(sysFlag="6", queueId="3", queueOffset="0", suspendTimeoutMillis="600000")
    packed = Frame(Code.PULL_MESSAGE, ext=fields).pack() * 1000
    with many(address, 10) as sockets:
        for each in sockets:
            drain = threading.Thread(target=_drain, args=(each,), daemon=True)
            drain.start()
            each.sendall(packed)
        time.sleep(1)
        for each in sockets:
            each.shutdown(socket.SHUT_RDWR)


ONEWAY_UNKNOWN = Frame(999_999, flag=2)
BULKY = {
    "broker": Frame(Code.GET_ALL_TOPIC_CONFIG),
    "namesrv": Frame(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
}

#: Name, target, attack.
CONDUCT: tuple[tuple[str, str, Callable[[Address], None]], ...] = (
    *(
        (f"{name}, {target}", target, attack)
        for target in ("broker", "namesrv")
        for name, attack in (
            ("a thousand half frames", half_frames),
            ("twenty large frames without an end", large_halves),
            ("frames byte by byte", trickle),
            ("two thousand idlers", idlers),
            ("three thousand connections in a row", churn),
            ("asks much and reads nothing", deaf(BULKY[target])),
            ("asks nonsense and reads nothing", deaf(Frame(999_999))),
            ("a flood of unknown requests", flood(Frame(999_999))),
            ("a flood of one-way requests", flood(ONEWAY_UNKNOWN)),
            ("a flood of responses", flood(Frame(0, flag=RESPONSE))),
            ("a flood of good requests", flood(COURTESY[target])),
        )
    ),
    ("ten thousand pulls for ever", "broker", parked),
    ("pulls and reads nothing", "broker", deaf(Frame(Code.PULL_MESSAGE, ext=send()))),
)


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
                thread.join(PATIENCE)

    def _live(self, name: str) -> None:
        try:
            with Line(self.target.address(name)) as line:
                while not self._is_over.wait(0.01):
                    began = time.monotonic()
                    if not line.ask(COURTESY[name]):
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
        with Line(target.address(at)) as line:
            end = "served" if line.ask(COURTESY[at]) else "not served"
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
