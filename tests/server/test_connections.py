"""Connections of a server in a separate process: the resources each may hold, and for how long."""

import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple
from urllib.request import urlopen

import pytest

from benchmarks.processes import free_ports
from hostile.cases.case import pull, send
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting.admission import ConnectionLimits, Refusals, connection_limits
from waiting import until
from wire import Frame

MIB = 1 << 20
LOOPBACK = "127.0.0.1"
LARGE_LOG = "mappedFileSizeCommitLog=67108864"
#: What a connection may keep once it is idle.
IDLE_BYTES = 64 << 10
PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--log-level", "warning")
#: Every wait is bounded by it; what is waited for here takes up to ten seconds.
TIMEOUT_S = 30.0


class Broker(NamedTuple):
    """A broker in a process of its own."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def started(
    folder: Path, *settings: str, limit: tuple[int, int] | None = None, stderr: IO[str] | None = None
) -> Iterator[Broker]:
    """A broker; `limit` are the soft and hard limit of descriptors it is started with."""
    command = [
        sys.executable,
        "-m",
        "rmqpy",
        "standalone",
        "--data-dir",
        str(folder / "data"),
        *PORTS,
        *settings,
    ]
    if limit is not None:
        command = ["sh", "-c", f'ulimit -Sn {limit[0]}; ulimit -Hn {limit[1]}; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            yield Broker(process, process.stdout.readline().split(" broker ")[1].split(",")[0])
        finally:
            process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with started(tmp_path, LARGE_LOG) as broker:
        yield broker


def own_address() -> str:
    """This machine's address on the way to the outside; asking for a route sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK


def is_open(peer: socket.socket) -> bool:
    """Whether the server answers."""
    try:
        return call(peer, Frame(999_999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    except (OSError, EOFError):
        return False


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def receive(peer: socket.socket) -> Frame:
    def exactly(count: int) -> bytes:
        content = b""
        while len(content) < count:
            read = peer.recv(count - len(content))
            if not read:
                raise EOFError("the server closed the connection")
            content += read
        return content

    return Frame.unpack(exactly(int.from_bytes(exactly(4), "big")))


def call(peer: socket.socket, frame: Frame) -> Frame:
    peer.sendall(frame.pack())
    return receive(peer)


def message(body: bytes) -> Frame:
    return Frame(RequestCode.SEND_MESSAGE_V2, ext=send(b="large"), body=body)


def private_bytes(broker: Broker) -> int:
    rollup = Path(f"/proc/{broker.process.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Anonymous:"))


def metric(port: int, name: str) -> float:
    with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=TIMEOUT_S) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


def batch() -> Frame:
    """4 MiB of messages that are mostly properties."""
    properties = b"k\1" + b"v" * 32_000 + b"\2"
    content = struct.pack(">iiiic", 0, 0, 0, 1, b"x") + struct.pack(">h", len(properties)) + properties
    ext = send(b="large", m="true")
    return Frame(
        RequestCode.SEND_BATCH_MESSAGE, ext=ext, body=(struct.pack(">i", 4 + len(content)) + content) * 130
    )


def test_idle_connection_releases_its_buffers(tmp_path: Path) -> None:
    count = 40
    port = free_ports(1)
    with started(tmp_path, f"httpPort={port}", LARGE_LOG) as broker:
        with ExitStack() as stack:
            for _ in range(count):
                peer = stack.enter_context(connect(broker))
                assert call(peer, batch()).code == ResponseCode.SUCCESS
            until(lambda: metric(port, "rmqpy_buffer_bytes") <= count * IDLE_BYTES)
            idle = private_bytes(broker)
        until(lambda: metric(port, "rmqpy_connections") == 0)
        kept = idle - private_bytes(broker)
        assert kept <= count * IDLE_BYTES, f"{kept / count / 1024:.0f} KiB each"


def test_memory_of_a_large_batch_is_freed_with_its_answer(tmp_path: Path) -> None:
    count = 20
    port = free_ports(1)
    with started(tmp_path, f"httpPort={port}", LARGE_LOG) as broker, ExitStack() as stack:
        for _ in range(count):
            peer = stack.enter_context(connect(broker))
            assert call(peer, batch()).code == ResponseCode.SUCCESS
        assert metric(port, "rmqpy_buffer_bytes") <= count * 2 * MIB, "4 MiB more each until they are idle"


def test_slow_large_frames_do_not_delay_others(broker: Broker) -> None:
    whole = message(b"x" * (16 * MIB - 1024)).pack()
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(broker)) for _ in range(2)]
        for peer in slow:
            assert call(peer, message(b"first")).code == ResponseCode.SUCCESS
            peer.sendall(whole[: 512 << 10])
        is_over = threading.Event()

        def trickle() -> None:
            # More than is asked of any open frame.
            rest = 512 << 10
            while not is_over.wait(0.1):
                for peer in slow:
                    with suppress(OSError):
                        peer.sendall(whole[rest : rest + 1024])
                rest += 1024

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            good = stack.enter_context(connect(broker))
            for _ in range(3):
                assert call(good, message(b"x" * MIB)).code == ResponseCode.SUCCESS
        finally:
            is_over.set()
            trickling.join()
        assert not any(map(is_open, slow))


def test_connections_are_limited_by_the_settings(tmp_path: Path) -> None:
    address = own_address()
    if address == LOOPBACK:
        pytest.skip("this machine has loopback alone, which is excepted")
    settings = ("bindAddress=0.0.0.0", "maxConnections=8", "maxConnectionsPerAddress=3")
    with started(tmp_path, *settings) as broker, ExitStack() as stack:
        port = int(broker.address.rpartition(":")[2])
        far = [stack.enter_context(socket.create_connection((address, port), TIMEOUT_S)) for _ in range(5)]
        near = [stack.enter_context(socket.create_connection((LOOPBACK, port), TIMEOUT_S)) for _ in range(7)]
        assert [is_open(peer) for peer in far] == [True] * 3 + [False] * 2
        assert [is_open(peer) for peer in near] == [True] * 5 + [False] * 2
        far[0].close()
        near[0].close()
        again = [(address, True), (address, False), (LOOPBACK, True), (LOOPBACK, False)]
        for host, is_taken in again:
            # The places of those that left are free as soon as the server has noticed.
            peer = stack.enter_context(socket.create_connection((host, port), TIMEOUT_S))
            until = time.monotonic() + TIMEOUT_S
            while is_taken and not is_open(peer) and time.monotonic() < until:
                peer = stack.enter_context(socket.create_connection((host, port), TIMEOUT_S))
            assert is_open(peer) == is_taken, host


def test_connections_leave_descriptors_to_the_store(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        started(tmp_path, limit=(64, 400), stderr=stderr) as broker,
        ExitStack() as stack,
    ):
        limits = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
        assert limits == (400, 400), "the soft limit is raised"
        peers = [stack.enter_context(connect(broker)) for _ in range(390)]
        taken = [peer for peer in peers if is_open(peer)]
        assert 100 < len(taken) < 200
        # Files of queues are made and read while no further connection is taken.
        for number in range(25):
            sent = Frame(
                RequestCode.SEND_MESSAGE_V2, ext=send(b=f"topic-{number}", e=str(number % 4)), body=b"x"
            )
            assert call(taken[number], sent).code == ResponseCode.SUCCESS
        for number in range(25):
            found = call(
                taken[0],
                Frame(RequestCode.PULL_MESSAGE, ext=pull(topic=f"topic-{number}", queueId=str(number % 4))),
            )
            assert found.code == ResponseCode.SUCCESS
    assert (
        "maxConnections=10000 is reduced to 200: the process may open 400 descriptors" in errors.read_text()
    )


def test_descriptor_table_is_sized_in_advance(tmp_path: Path) -> None:
    """Whenever it grows the kernel holds the server's threads up for some ten milliseconds."""
    with started(tmp_path, "maxConnections=3000") as broker:

        def table() -> int:
            status = Path(f"/proc/{broker.process.pid}/status").read_text("ascii")
            return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize:"))

        at_start = table()
        assert at_start >= 2 * 3000
        with ExitStack() as stack:
            peers = [stack.enter_context(connect(broker)) for _ in range(600)]
            assert is_open(peers[-1])
            assert table() == at_start


def test_refused_connections_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counts = {"refused_connections": 3, "refused_of_address": 0}
    refusals = Refusals(ConnectionLimits(100, 50, 7_500), lambda: counts, list)
    refusals.log()
    refusals.log()
    counts["refused_connections"] = 5
    counts["refused_of_address"] = 1
    refusals.log()
    assert [record.getMessage() for record in caplog.records] == [
        "3 connections were refused: 100 are open, the limit (maxConnections)",
        "2 connections were refused: 100 are open, the limit (maxConnections)",
        "1 connections were refused: their address has 50 open (maxConnectionsPerAddress)",
    ]


def test_one_address_may_use_half_of_all_connections_by_default() -> None:
    assert connection_limits(100, 0)[:2] == (100, 50)
    assert connection_limits(1, 0)[:2] == (1, 1)
    assert connection_limits(100, 80)[:2] == (100, 80)
