"""Applications: a client of each kind that sends one message after the other, and consumes all of them.

No client is started again; a failed send is noted, and the next one follows.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import rmqpy
from benchmarks import wire
from benchmarks.processes import Child, free_ports
from interop.clients import ProcessClient, start_go, start_java
from interop.messages import MessageSpec
from interop.toolchain import JAVA_CLIENTS, Originals

KINDS = ("rmqpy", *(f"java-{version}" for version in reversed(JAVA_CLIENTS)), "go", "grpc")
#: The producer and the consumer of 5.x, which run in separate processes.
PROGRAM = Path(__file__).parents[1] / "grpc" / "clients.py"
START_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.01
FAILED_SECONDS = 0.05
END_SECONDS_MAX = 120.0


class Application:
    """One client: the times and bodies of its accepted sends, and the bodies that it consumed."""

    def __init__(self, name: str, consumed: Callable[[], Iterable[bytes]]) -> None:
        self.name = name
        self.accepted: list[tuple[float, bytes]] = []
        self.failures: list[str] = []
        #: Ends a program that sends by itself.
        self.on_end: Callable[[], None] = lambda: None
        self._consumed = consumed
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, send: Callable[[bytes], None]) -> None:
        """Send until `end`; `send` returns once the message is accepted."""
        self._thread = threading.Thread(target=self._run, args=(send,))
        self._thread.start()

    def end(self) -> None:
        """Stop sending. Idempotent."""
        self._ending.set()
        self.on_end()
        if self._thread is not None:
            self._thread.join(END_SECONDS_MAX)

    def bodies(self) -> set[bytes]:
        """The bodies of its accepted sends."""
        return {body for _, body in self.accepted}

    def consumed(self) -> Counter[bytes]:
        """How often each body was consumed, of all clients'."""
        return Counter(self._consumed())

    def silence(self, since: float, until: float) -> float:
        """The longest time without an accepted send that ended after `since`."""
        times = [at for at, _ in self.accepted if at <= until]
        before = max((at for at in times if at <= since), default=since)
        around = [before, *(at for at in times if at > since), until]
        return max(later - earlier for earlier, later in itertools.pairwise(around))

    def _run(self, send: Callable[[bytes], None]) -> None:
        for number in itertools.count():
            if self._ending.is_set():
                return
            body = f"{self.name}-{number}".encode()
            try:
                send(body)
            except Exception as error:
                self.failures.append(str(error)[:200])
                time.sleep(FAILED_SECONDS)
            else:
                self.accepted.append((time.time(), body))
                time.sleep(PAUSE_SECONDS)


def start(
    name: str, namesrv: str, topic: str, folder: Path, originals: Originals, undo: ExitStack
) -> Application:
    """Start a client of this kind; `undo` ends it."""
    if name == "grpc":
        return _behind_proxy(name, namesrv, topic, folder, undo)
    if name == "rmqpy":
        producer = undo.enter_context(rmqpy.Producer(namesrv))
        bodies: list[bytes] = []
        consumer = rmqpy.PushConsumer(_group(name), namesrv, start_from="earliest")
        consumer.on(topic, "*", lambda message: bodies.append(message.body))
        undo.enter_context(consumer)
        made = Application(name, lambda: list(bodies))
        made.send(lambda body: _expect_stored(producer.send(topic, body).status.name))
    else:
        build = originals.folder(name)
        version = name.removeprefix("java-")
        peer = start_go(build, folder, name) if name == "go" else start_java(build, version, folder, name)
        undo.callback(peer.close)
        listener = peer.listen(namesrv, topic, _group(name))
        made = Application(name, lambda: [message.body for message in listener.consumed()])
        made.send(lambda body: _expect_stored(_sent(peer, namesrv, topic, body)))
    undo.callback(made.end)
    return made


def _behind_proxy(name: str, namesrv: str, topic: str, folder: Path, undo: ExitStack) -> Application:
    """The Python client of 5.x: a producer and a consumer, each a process, behind `rmqpy proxy`."""
    port = free_ports(1)
    settings = (f"grpcServerPort={port}", "httpPort=-1")
    command = [sys.executable, "-m", "rmqpy", "proxy", "-n", namesrv, *settings]
    address = f"127.0.0.1:{port}"
    proxy = undo.enter_context(Child("proxy", command, folder))
    proxy.wait_until(lambda: wire.is_listening(address), START_SECONDS_MAX)
    bodies: list[bytes] = []
    made = Application(name, lambda: list(bodies))
    for work, last in (("produce", name), ("consume", _group(name))):
        program = [sys.executable, str(PROGRAM), work, address, topic, last]
        child = Child(f"{name}-{work}", program, folder, is_piped=True)
        undo.callback(child.kill)
        threading.Thread(target=_read, args=(child, made, bodies), daemon=True).start()
        if work == "produce":
            made.on_end = child.kill
    return made


def _read(child: Child, made: Application, bodies: list[bytes]) -> None:
    """Read what a program of `campaigns.grpc.clients` prints."""
    for line in child.stdout:
        word, _, rest = line.decode(errors="replace").strip().partition(" ")
        at, _, text = rest.partition(" ")
        if word == "sent":
            made.accepted.append((float(at), text.encode()))
        elif word == "got":
            bodies.append(text.encode())
        elif word == "failed":
            made.failures.append(text)
    made.failures.append(f"the program has ended: {child.log_tail()}")


def _sent(peer: ProcessClient, namesrv: str, topic: str, body: bytes) -> str:
    return peer.send(namesrv, topic, [MessageSpec(body)])[0].status


def _expect_stored(status: str) -> None:
    if status != "SEND_OK":
        raise RuntimeError(status)


def _group(name: str) -> str:
    return f"readers-{name}".replace(".", "_")
