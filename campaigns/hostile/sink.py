"""A server without any work, which measures the cost of an attack's bytes on this machine.

On one port it discards its input, on the other it answers with as many bytes. It is a separate process, like the
servers under attack; the first line it prints has both ports.
"""

import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from hostile.target import TIMEOUT_S, Address


@dataclass(frozen=True)
class Sink:
    silent: Address
    answering: Address


@contextmanager
def sink() -> Iterator[Sink]:
    with subprocess.Popen(
        [sys.executable, "-m", "campaigns.hostile.sink"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        silent, answering = map(int, process.stdout.readline().split())
        yield Sink(("127.0.0.1", silent), ("127.0.0.1", answering))
        process.terminate()


def pour(content: bytes, address: Address) -> None:
    """Send it all, and wait until it has been read."""
    with suppress(OSError), socket.create_connection(address, TIMEOUT_S) as peer:
        peer.sendall(content)
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)


def main() -> None:
    silent, answers = (socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(2))
    print(silent.getsockname()[1], answers.getsockname()[1], flush=True)
    ready = selectors.DefaultSelector()
    for listener in (silent, answers):
        listener.setblocking(False)
        ready.register(listener, selectors.EVENT_READ)
    answering: set[socket.socket] = set()
    buffer = bytearray(1 << 20)
    while True:
        for key, _ in ready.select():
            with suppress(BlockingIOError):
                if key.data is None:
                    listener = answers if key.fileobj is answers else silent
                    peer, _ = listener.accept()
                    peer.setblocking(False)
                    ready.register(peer, selectors.EVENT_READ, peer)
                    if listener is answers:
                        answering.add(peer)
                elif not (count := read(key.data, buffer)):
                    ready.unregister(key.data)
                    answering.discard(key.data)
                    key.data.close()
                elif key.data in answering:
                    # Ignore what the peer does not read.
                    with suppress(ConnectionError):
                        key.data.send(memoryview(buffer)[:count])


def read(peer: socket.socket, into: bytearray) -> int:
    try:
        return peer.recv_into(into)
    except ConnectionError:
        return 0


if __name__ == "__main__":
    main()
