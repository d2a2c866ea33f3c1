"""Event streams: the cost of the console's event streams to a broker under load (`python -m
benchmarks.event_streams`).

Method: one broker with a console and a load of sends, 4 connections with 64 in flight each, measured in pairs:
without streams, and with ten open streams of `/api/v1/overview/events`, each read by an idle client. The order within
a pair alternates, so that other load affects both. The result is the median of the pairs' differences in the broker's
processor time per message.
"""

import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click

from benchmarks import wire
from benchmarks.processes import free_ports
from benchmarks.servers import Rmqpy

STREAMS: Final = 10
PATH: Final = "/api/v1/overview/events"
WAIT_S: Final = 30.0


class Shown(Rmqpy):
    """A broker with a console."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.http_port = free_ports(1)

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + f"httpPort={self.http_port}\n"

    def start(self, *, is_sync_flush: bool = False) -> None:
        super().start(is_sync_flush=is_sync_flush)
        assert self._broker is not None
        self._broker.wait_until(lambda: wire.is_listening(f"127.0.0.1:{self.http_port}"), WAIT_S)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Read one event stream; it has begun when this is entered."""
        ask = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{self.http_port}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.http_port), timeout=WAIT_S) as stream:
            stream.sendall(ask.encode())
            begin = b""
            while b"\n\n" not in begin:
                begin += stream.recv(1 << 16)
                assert begin.startswith(b"HTTP/1.1 200"), begin

            def read() -> None:
                with suppress(OSError):
                    while stream.recv(1 << 16):
                        pass

            reader = threading.Thread(target=read)
            reader.start()
            try:
                yield
            finally:
                stream.shutdown(socket.SHUT_RDWR)
                reader.join()

    def load(self, seconds: float, streams: int) -> dict[str, Any]:
        """The results of one load with this many streams."""
        with ExitStack() as stack:
            for _ in range(streams):
                stack.enter_context(self.stream())
            options = ["-c", "4", "-w", "64", "-d", str(seconds), "--pid", str(self.pid)]
            command = self.load_command("produce", "events", *options)
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        measured: dict[str, Any] = json.loads(done.stdout)
        return measured

    def cost(self, seconds: float, streams: int) -> float:
        """Microseconds of the broker per message of such a load."""
        measured = self.load(seconds, streams)
        return 1e6 * float(sum(measured["cpu"]["watched_s"])) / int(measured["messages"])


@click.command()
@click.option("--pairs", type=click.IntRange(1), default=7, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5), default=10.0, show_default=True, help="Of each load.")
def main(pairs: int, seconds: float) -> None:
    """Measure the cost of ten open event streams per message."""
    without: list[float] = []
    loaded: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as folder:
        side = Shown(Path(folder))
        side.start()
        try:
            # The first load creates the topic, and the first stream imports the console.
            side.load(1.0, 1)
            for pair in range(pairs):
                for streams in (0, STREAMS) if pair % 2 else (STREAMS, 0):
                    (loaded if streams else without).append(side.cost(seconds, streams))
        finally:
            side.stop()
    more = statistics.median(100 * (two / one - 1) for one, two in zip(without, loaded, strict=True))
    click.echo(
        f"broker's processor time per message, medians of {pairs} pairs of {seconds:g} s at 4 x 64; load average "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n"
        f"without {statistics.median(without):.2f} µs, with {STREAMS} streams {statistics.median(loaded):.2f} µs: "
        f"{more:+.1f} % (median of the pairs)"
    )


if __name__ == "__main__":
    main()
