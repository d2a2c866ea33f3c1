"""Memory of 5.x clients that do nothing: `make campaign NAME=grpc-idle`.

A broker is measured at rest without and with the gRPC port, then with 1,000 and 5,000 clients. Each client has a
connection and a telemetry stream with settings, as Apache's clients have it while they wait.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from hostile.http2 import DATA, Connection, frame, message, opening, part, resource
from hostile.target import parsed
from rmqpy.load import machine

SERVER = """
import asyncio, sys
from rmqpy.server import Standalone, serve

settings = {"mappedFileSizeCommitLog": 16 << 20, "grpcServerPort": int(sys.argv[2])}
server = Standalone(sys.argv[1], namesrv_port=0, broker_port=0, **settings)
asyncio.run(serve(server, lambda: print(server.grpc, flush=True)))
"""
OFF, FREE = -1, 0
#: Seconds after the start or the last client, in which allocators calm down.
CALM_S = 5.0
MIB = 1 << 20
GROWTH_MAX = 8 * MIB


class Broker:
    """A broker in a separate process."""

    def __init__(self, folder: Path, port: int) -> None:
        command = [sys.executable, "-c", SERVER, str(folder), str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.grpc = self.process.stdout.readline().strip()

    def memory(self) -> int:
        """Private memory after a while."""
        time.sleep(CALM_S)  # what is measured is the state at rest
        return machine.private_bytes(self.process.pid) or 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def idle(address: str, number: int, settings: bytes) -> Connection:
    """A client with a stream of telemetry whose settings were answered."""
    peer = Connection(parsed(address))
    command = frame(DATA, 0, 1, message(part(2, settings)))
    peer.socket.sendall(opening(1, "Telemetry", f"idle-{number}") + command)
    for kind, _, stream, _ in peer.frames():
        if (kind, stream) == (DATA, 1):
            return peer
    raise ConnectionError("the server hung up")


def producer(address: str, number: int) -> Connection:
    """A producer without topics: its stream alone is measured."""
    return idle(address, number, b"\x08\x01" + part(5, b""))


def consumer(address: str, number: int) -> Connection:
    """A member of a group of ten, registered at the broker."""
    subscription = resource(1, f"idle-{number // 10}") + part(2, resource(1, "idle-topic"))
    return idle(address, number, b"\x08\x03" + part(6, subscription))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 5_000])
    asked = parser.parse_args()
    at_rest = {}
    for port in (OFF, FREE):
        with tempfile.TemporaryDirectory(prefix="rmqpy-grpc-") as folder:
            broker = Broker(Path(folder), port)
            at_rest[port] = broker.memory()
            broker.stop()
    grown = at_rest[FREE] - at_rest[OFF]
    print(
        f"at rest: {at_rest[OFF] / MIB:.1f} MiB without gRPC, {at_rest[FREE] / MIB:.1f} MiB with it "
        f"(+{grown / MIB:.1f} MiB)"
    )
    for what, start in (("producers", producer), ("consumers", consumer)):
        with tempfile.TemporaryDirectory(prefix="rmqpy-grpc-") as folder, ExitStack() as stack:
            broker = Broker(Path(folder), FREE)
            stack.callback(broker.stop)
            before, count = broker.memory(), 0
            for clients in sorted(asked.clients):
                while count < clients:
                    stack.enter_context(start(broker.grpc, count))
                    count += 1
                memory = broker.memory()
                each = (memory - before) / clients / 1024
                print(f"{clients:,} {what}: {memory / MIB:.1f} MiB, +{each:.1f} KiB a client")
    assert grown <= GROWTH_MAX


if __name__ == "__main__":
    main()
