"""Conduct of clients with valid requests, but too many, too few or too slow, as a table."""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from hostile.cases.case import COURTESY, QUEUES, TOPIC, heartbeat, offset, pull, registration, send
from hostile.cases.registrations import wrapped
from hostile.target import TIMEOUT_S, Address, Connection
from rmqpy.protocol.codes import RequestCode as Code
from wire import ONEWAY, RESPONSE, Frame

#: Seconds that connections are held after they were opened.
HELD_S = 1.0
#: More connections than a server takes.
CONNECTIONS_MAX = 12_000


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
        time.sleep(HELD_S)  # as long as the attack lasts


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
            time.sleep(0.001)  # the server runs on the same cores


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
        time.sleep(HELD_S)  # as long as the attack lasts


def every_descriptor(address: Address) -> None:
    """As many connections with half a frame as the server takes, or this process has descriptors for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as held, suppress(OSError):
            for _ in range(min(CONNECTIONS_MAX, hard - 200)):
                each = held.enter_context(socket.create_connection(address, 1.0))
                each.send(bytes.fromhex("00000040 00000020") + b'{"code":1')
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
                time.sleep(0.001)  # the server runs on the same cores

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


def pouring(frames: Callable[[], Iterable[Frame]]) -> Callable[[Address], None]:
    """Many different frames on one connection, as fast as they are taken; answers are read."""

    def attack(address: Address) -> None:
        with socket.create_connection(address, TIMEOUT_S) as each:
            drain = threading.Thread(target=_drain, args=(each,), daemon=True)
            drain.start()
            for frame in frames():
                each.sendall(frame.pack())
            # What was asked is answered before this one is.
            each.shutdown(socket.SHUT_WR)
            drain.join(TIMEOUT_S)

    return attack


def members() -> Iterator[Frame]:
    """Ten thousand clients, each in a group of its own, that live on one connection."""
    for number in range(10_000):
        body = heartbeat(f"hostile-group-{number}").replace(b'"hostile"', b'"client-%d"' % number)
        yield Frame(Code.HEART_BEAT, body=body)


def values() -> Iterator[Frame]:
    """100 MB for the name server's table, and all of it taken back."""
    for code in (Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG):
        for number in range(5_000):
            ext = {"namespace": "hostile", "key": f"k{number}", "value": "v" * 20_000}
            yield Frame(code, ext=ext)


def brokers() -> Iterator[Frame]:
    """Two thousand brokers with two topics each, which go again."""
    for code in (Code.REGISTER_BROKER, Code.UNREGISTER_BROKER):
        for number in range(2_000):
            ext = registration(brokerName=f"hostile-{number}", brokerAddr=f"127.0.0.1:{number + 1}")
            yield Frame(code, ext=ext, body=wrapped() if code == Code.REGISTER_BROKER else b"")


def unknown_topics() -> Iterator[Frame]:
    """One-way sends to five thousand topics that are not there."""
    for number in range(5_000):
        yield Frame(Code.SEND_MESSAGE_V2, ext=send(b=f"hostile-{number}"), body=b"x", flag=ONEWAY)


def unknown_routes() -> Iterator[Frame]:
    for number in range(20_000):
        yield Frame(Code.GET_ROUTEINFO_BY_TOPIC, ext={"topic": f"hostile-{number}"})


def commits_outside() -> Iterator[Frame]:
    """A hundred thousand one-way commits for queues that are not there."""
    for number in range(100_000):
        ext = offset(queueId=str(QUEUES + number), commitOffset=str(2**63 + number))
        yield Frame(Code.UPDATE_CONSUMER_OFFSET, ext=ext, flag=ONEWAY)


def parked(address: Address) -> None:
    """Ten thousand pulls held for ever, on ten connections, which then go away."""
    fields = pull(sysFlag="6", queueId="3", queueOffset="0", suspendTimeoutMillis="600000")
    packed = Frame(Code.PULL_MESSAGE, ext=fields).pack() * 1000
    with many(address, 10) as sockets:
        for each in sockets:
            drain = threading.Thread(target=_drain, args=(each,), daemon=True)
            drain.start()
            each.sendall(packed)
        time.sleep(HELD_S)  # as long as the attack lasts
        for each in sockets:
            each.shutdown(socket.SHUT_RDWR)


def filtered(terms: int, *, names: int = 32, waiting: bool = False) -> Callable[[Address], None]:
    """Ten thousand pulls with a long SQL92 expression, and five hundred messages that it does not match.

    The pulls wait for the messages, or begin at them.
    """
    expression = " OR ".join(f"a{number % names} = '{number}'" for number in range(terms))
    end = Frame(Code.GET_MAX_OFFSET, opaque=1, ext={"topic": TOPIC, "queueId": "2"})
    sends = Frame(Code.SEND_MESSAGE_V2, ext=send(e="2", i="b\x011"), body=b"x").pack() * 500

    def attack(address: Address) -> None:
        with ExitStack() as open_:
            sender, *pullers = (open_.enter_context(Connection(address)) for _ in range(11))
            sender.socket.settimeout(3.0)
            begin = ""
            with suppress(OSError):
                # A process that throws everything away does not answer.
                begin = sender.answer(end)["offset"]
            fields = pull(sysFlag="6", queueId="2", queueOffset=begin or "0", suspendTimeoutMillis="600000")
            fields |= {"subscription": expression, "expressionType": "SQL92"}
            pulls = Frame(Code.PULL_MESSAGE, ext=fields).pack() * 1000
            if waiting:
                for each in pullers:
                    each.socket.sendall(pulls)
                for each in pullers if begin else ():
                    # It is answered once the pulls before it wait.
                    each.answer(end)
            sender.socket.sendall(sends)
            sender.socket.shutdown(socket.SHUT_WR)
            _drain(sender.socket)
            drains = [threading.Thread(target=_drain, args=(each.socket,), daemon=True) for each in pullers]
            for each, drain in zip(pullers, drains, strict=True):
                drain.start()
                if not waiting:
                    each.socket.sendall(pulls)
                each.socket.shutdown(socket.SHUT_WR)
            for drain in drains:
                drain.join(TIMEOUT_S)

    return attack


def immune_halves() -> Iterator[Frame]:
    """Twenty thousand half messages that ask not to be checked for thirty years."""
    properties = "\x02".join(
        ("TRAN_MSG\x01true", "PGROUP\x01hostile", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01999999999")
    )
    for number in range(20_000):
        ext = send(f="4", i=f"{properties}\x02UNIQ_KEY\x01{number:032X}")
        yield Frame(Code.SEND_MESSAGE_V2, ext=ext, body=b"x")


def half_hellos(address: Address) -> None:
    """Two thousand TLS handshakes that announce a record of 16 KiB and end before its last byte."""
    hello = bytes.fromhex("1603014000 01003ffc 0303") + bytes(16_000)
    with many(address, 2000) as sockets:
        for each in sockets:
            each.setblocking(False)
            with suppress(OSError):
                each.send(hello)
        time.sleep(HELD_S)  # as long as the attack lasts


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
            ("two thousand half TLS handshakes", half_hellos),
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
    ("ten thousand pulls that wait with a long expression", "broker", filtered(32, waiting=True)),
    ("ten thousand pulls with a long expression", "broker", filtered(100)),
    ("ten thousand pulls with an expression that is refused", "broker", filtered(100, names=100)),
    ("twenty thousand halves that no one may check", "broker", pouring(immune_halves)),
    ("ten thousand clients on one connection", "broker", pouring(members)),
    ("five thousand topics that are not there", "broker", pouring(unknown_topics)),
    ("a hundred thousand commits outside", "broker", pouring(commits_outside)),
    ("100 MB of values", "namesrv", pouring(values)),
    ("two thousand brokers", "namesrv", pouring(brokers)),
    ("routes of twenty thousand topics", "namesrv", pouring(unknown_routes)),
    ("pulls and reads nothing", "broker", deaf(Frame(Code.PULL_MESSAGE, ext=pull()))),
)

#: Those that are answered, request by request.
ANSWERED = frozenset(
    name
    for name, _, _ in CONDUCT
    if name.startswith(("a flood of unknown", "a flood of good", "asks", "ten thousand clients"))
    or name in ("100 MB of values", "two thousand brokers", "routes of twenty thousand topics")
)

#: Twice: the memory of so many connections stays with the allocator, and serves the next as many.
CROWDS: tuple[tuple[str, str, Callable[[Address], None]], ...] = tuple(
    (f"every descriptor there is, {again}, {target}", target, every_descriptor)
    for target in ("broker", "namesrv")
    for again in ("once", "again")
)
