"""Conduct of clients that sends nothing wrong, and yet too much, too little or too slowly, as a table."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hostile.cases import COURTESY, pull, send
from rmqpy.protocol.codes import RequestCode as Code
from wire import RESPONSE, Frame

#: Longest that an answer or a closed connection is waited for; long on a busy machine, short for a hang.
TIMEOUT_S = 20.0

Address = tuple[str, int]


@contextmanager
def many(address: Address, count: int) -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        sockets += [socket.create_connection(address, TIMEOUT_S) for _ in range(count)]
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
        with socket.create_connection(address, TIMEOUT_S) as each:
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
        with socket.create_connection(address, TIMEOUT_S) as each:
            drain = threading.Thread(target=_drain, args=(each,), daemon=True)
            drain.start()
            until = time.monotonic() + 3
            while time.monotonic() < until:
                each.sendall(packed)
            each.shutdown(socket.SHUT_RDWR)
            drain.join(TIMEOUT_S)

    return attack


def _drain(each: socket.socket) -> None:
    with suppress(OSError):
        while each.recv(1 << 20):
            pass


def parked(address: Address) -> None:
    """Ten thousand pulls held for ever, on ten connections, which then go away."""
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
