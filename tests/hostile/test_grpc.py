"""Attacks on the gRPC port of a broker in a separate process: bounded memory, and a good client is served meanwhile."""

import itertools
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hostile import http2
from hostile.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Connection,
    frame,
    message,
    opening,
    resource,
)
from hostile.target import ACCIDENT, parsed
from waiting import until

SERVER = """
import asyncio, sys
import rmqpy
from rmqpy.server import Standalone, serve

settings = {"mappedFileSizeCommitLog": 16 << 20, "grpcServerPort": 0}
server = Standalone(sys.argv[1], namesrv_port=0, broker_port=0, **settings)
asyncio.run(serve(server, lambda: print(server.grpc, server.namesrv, flush=True)))
"""
TOPIC = "good"
#: Private memory that an attack may take while it lasts, and that all of them may leave behind.
GROWTH_MAX = 64 << 20
#: The longest that the good client may wait for one answer: it shows that it is not locked out.
WAIT_MAX_S = 5.0
#: The longest that one attack lasts.
ATTACK_S = 1.0

pytestmark = pytest.mark.timeout(120)


@dataclass
class Target:
    """The server under attack."""

    address: tuple[str, int]
    pid: int

    def memory(self) -> int:
        """Private memory (RssAnon)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    import rmqpy

    folder = tmp_path_factory.mktemp("grpc")
    log = folder / "server.log"
    command = [sys.executable, "-c", SERVER, str(folder / "data")]
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, env=os.environ
        ) as process,
    ):
        try:
            assert process.stdout is not None
            grpc, namesrv = process.stdout.readline().split()
            with rmqpy.Admin(namesrv) as admin:
                admin.create_topic(TOPIC, write_queues=1, read_queues=1)
            yield Target(parsed(grpc), process.pid)
        finally:
            process.terminate()
            status = process.wait(60)
    assert status == 0
    assert ACCIDENT not in log.read_text(errors="replace")


@dataclass
class Citizen:
    """A good client on one connection: it asks for a route again and again."""

    address: tuple[str, int]
    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def live(self) -> None:
        try:
            with Connection(self.address) as peer:
                while not self._is_over.wait(0.01):
                    began = time.monotonic()
                    answer = peer.ask("QueryRoute", resource(1, TOPIC))
                    self.waits.append(time.monotonic() - began)
                    if http2.OK not in answer:
                        self.failures.append(repr(answer))
        except (OSError, AssertionError) as error:
            self.failures.append(repr(error))

    @contextmanager
    def about(self) -> Iterator[None]:
        thread = threading.Thread(target=self.live, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(http2.TIMEOUT_S)


#: Bytes after which the connection is closed.
MALFORMED: dict[str, bytes] = {
    "no preface": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100,
    "zeros": bytes(1_000),
    "a frame of 16 MB": PREFACE + frame(SETTINGS) + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100_000),
    "settings of five bytes": PREFACE + frame(SETTINGS, 0, 0, bytes(5)),
    "settings on a stream": PREFACE + frame(SETTINGS) + frame(SETTINGS, 0, 1, bytes(6)),
    "a window of 0": PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "a window beyond the limit": PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "a ping of seven bytes": PREFACE + frame(SETTINGS) + frame(PING, 0, 0, bytes(7)),
    "data without a call": PREFACE + frame(SETTINGS) + frame(DATA, 0, 1, b"x"),
    "a call of the server": PREFACE + frame(SETTINGS) + opening(2, "QueryRoute"),
    "a call on stream 0": PREFACE + frame(SETTINGS) + opening(0, "QueryRoute"),
    "a continuation without headers": PREFACE + frame(SETTINGS) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
    "another frame between headers": (
        PREFACE + frame(SETTINGS) + frame(HEADERS, 0, 1, http2.packed(http2.fields("QueryRoute")))
        + frame(DATA, 0, 1, b"x")
    ),
    "an index beyond the table": PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\x0f"),
    "a bad Huffman code": PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\0\x84\xff\xff\xff\xff\0"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bytes_end_the_connection(target: Target, name: str) -> None:
    with Connection(target.address, greets=False) as peer:
        peer.socket.sendall(MALFORMED[name])
        assert peer.closes()


def endless(chunk: bytes) -> Iterator[bytes]:
    return itertools.repeat(chunk)


def resets() -> Iterator[bytes]:
    """Rapid reset: calls that are taken back before they are answered."""
    for first in itertools.count(1, 200):
        streams = range(first, first + 200, 2)
        if first > 2**31 - 1_000:
            return
        yield b"".join(
            http2.call(stream, "QueryRoute", resource(1, TOPIC)) + frame(RST_STREAM, 0, stream, bytes(4))
            for stream in streams
        )


def open_calls() -> Iterator[bytes]:
    """Calls whose body never comes."""
    for first in range(1, 100_000, 200):
        yield b"".join(opening(stream, "SendMessage") for stream in range(first, first + 200, 2))


def headers_without_end() -> Iterator[bytes]:
    """A flood of continuations."""
    yield frame(HEADERS, 0, 1, http2.packed(http2.fields("QueryRoute")))
    yield from endless(frame(CONTINUATION, 0, 1, http2.packed([("x", "y" * 16_000)])))


def huge_metadata() -> Iterator[bytes]:
    """Calls of 1 MB of metadata each."""
    for stream in range(1, 20_000, 2):
        block = http2.packed(http2.fields("QueryRoute") + [(f"x-{n}", "y" * 10_000) for n in range(100)])
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        yield frame(HEADERS, 0, stream, pieces[0])
        for piece in pieces[1:-1]:
            yield frame(CONTINUATION, 0, stream, piece)
        yield frame(CONTINUATION, END_HEADERS | END_STREAM, stream, pieces[-1])


def telemetry() -> Iterator[bytes]:
    """Settings again and again, whose answers are not read."""
    yield opening(1, "Telemetry")
    # Settings of a producer of one topic.
    settings = b"\x08\x01" + http2.part(5, resource(1, TOPIC))
    yield from endless(frame(DATA, 0, 1, message(http2.part(2, settings)) * 50))


def large_messages() -> Iterator[bytes]:
    """Messages that announce 4 GB, in all streams that there may be."""
    head = b"\0" + struct.pack(">I", 2**32 - 1)
    for stream in range(1, 200_000, 2):
        yield opening(stream, "SendMessage") + frame(DATA, 0, stream, head + bytes(1_000))


def half_bodies() -> Iterator[bytes]:
    """Messages of 15 MB without their last byte, as far as windows allow."""
    head = b"\0" + struct.pack(">I", 15 << 20)
    for stream in itertools.count(1, 2):
        yield opening(stream, "SendMessage") + frame(DATA, 0, stream, head)
        yield from itertools.repeat(frame(DATA, 0, stream, bytes(16_000)), 60)


def unknown_methods() -> Iterator[bytes]:
    for first in itertools.count(1, 200):
        yield b"".join(http2.call(stream, "NoSuchMethod", b"") for stream in range(first, first + 200, 2))


def client_ids() -> Iterator[bytes]:
    """Heartbeats of ever new clients."""
    for first in itertools.count(1, 100):
        yield b"".join(
            http2.call(stream, "Heartbeat", resource(1, "group") + b"\x10\x03", f"hostile-{stream}")
            for stream in range(first, first + 100, 2)
        )


FLOODS: dict[str, Callable[[], Iterable[bytes]]] = {
    "rapid resets": resets,
    "settings": lambda: endless(frame(SETTINGS, 0, 0, b"\0\3\0\0\0\x64" * 10) * 100),
    "pings": lambda: endless(frame(PING, 0, 0, bytes(8)) * 500),
    "priorities": lambda: endless(frame(PRIORITY, 0, 1, bytes(5)) * 500),
    "unknown frames": lambda: endless(frame(200, 0, 0, bytes(1_000)) * 50),
    "empty frames of data": lambda: itertools.chain(
        [opening(1, "SendMessage")], endless(frame(DATA, 0, 1) * 500)
    ),
    "calls without an end": open_calls,
    "continuations": headers_without_end,
    "huge metadata": huge_metadata,
    "endless telemetry": telemetry,
    "messages of 4 GB": large_messages,
    "half bodies": half_bodies,
    "unknown methods": unknown_methods,
    "ever new clients": client_ids,
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_takes_bounded_memory_and_locks_no_client_out(target: Target, name: str) -> None:
    citizen = Citizen(target.address)
    before = peak = target.memory()
    with citizen.about(), ExitStack() as stack:
        peers = [stack.enter_context(Connection(target.address)) for _ in range(4)]
        threads = [
            threading.Thread(target=peer.pour, args=(FLOODS[name](), ATTACK_S), daemon=True) for peer in peers
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, target.memory())
            time.sleep(0.01)  # the peak is what is measured
    assert not citizen.failures
    assert citizen.waits
    print(f"\n{name}: +{(peak - before) >> 10} KiB, slowest answer {max(citizen.waits) * 1e3:.0f} ms")
    assert peak - before < GROWTH_MAX
    assert max(citizen.waits) < WAIT_MAX_S


def test_all_of_it_leaves_no_memory_behind(target: Target) -> None:
    with Connection(target.address) as peer:
        assert http2.OK in peer.ask("QueryRoute", resource(1, TOPIC))
    until(target.memory, wanted=lambda size: size < 256 << 20)
