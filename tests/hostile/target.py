"""The servers under attack, in a separate process, and connections to them."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from hostile.cases.case import (
    COURTESY,
    GROUP,
    HONEST_TOPIC,
    QUEUES,
    QUIET_TOPIC,
    RESET_GROUP,
    TOPIC,
    send,
    topic,
)
from rmqpy.protocol.codes import RequestCode as Code
from waiting import until
from wire import RESPONSE, Frame

#: Longest that an answer or a closed connection is waited for; long on a busy machine, short for a hang.
TIMEOUT_S = 20.0
#: What is never the answer to an attack: a handler failed, and nobody had thought of it.
ACCIDENT = "Traceback"

Address = tuple[str, int]

SERVER = """
import asyncio, sys
from rmqpy.server import Standalone, serve

server = Standalone(sys.argv[1], namesrv_port=0, broker_port=0, mappedFileSizeCommitLog=int(sys.argv[2]))
asyncio.run(serve(server, lambda: print(server.broker, server.namesrv, flush=True)))
"""


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

    @cached_property
    def _status(self) -> int:
        """Opened once: an attack may take every descriptor that this process has, too."""
        return os.open(f"/proc/{self.pid}/status", os.O_RDONLY)

    def memory(self) -> int:
        """Private memory (RssAnon)."""
        status = os.pread(self._status, 16_384, 0).decode("ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))

    def prepare(self) -> None:
        """Make the topics and the groups the cases speak of."""
        queues = str(QUEUES)
        with Connection(self.broker) as peer:
            for name, count in ((TOPIC, queues), (QUIET_TOPIC, "1"), (HONEST_TOPIC, "1")):
                ext = topic(name, readQueueNums=count, writeQueueNums=count)
                assert peer.ask(Frame(Code.UPDATE_AND_CREATE_TOPIC, ext=ext))
            for name in (GROUP, RESET_GROUP):
                body = b'{"groupName":"%s"}' % name.encode()
                assert peer.ask(Frame(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
            assert peer.ask(Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"first"))
        with Connection(self.namesrv) as peer:
            until(lambda: peer.refusal(COURTESY["namesrv"]), wanted=lambda refusal: not refusal)


@contextmanager
def running(folder: Path, segment_bytes: int = 16 << 20) -> Iterator[Target]:
    """Servers of their own, prepared. That they stop in order, and failed at nothing, is seen at the end."""
    log = folder / "server.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(folder / "data"), str(segment_bytes)],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            broker, namesrv = process.stdout.readline().split()
            target = Target(parsed(broker), parsed(namesrv), process.pid)
            target.prepare()
            yield target
        finally:
            process.terminate()
            status = process.wait(60)
    assert status == 0, "it stops in order after all that"
    text = log.read_text(errors="replace")
    assert ACCIDENT not in text, text[max(0, text.index(ACCIDENT) - 500) :][:5_000]


class Connection:
    """One blocking connection."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> Frame | None:
        """The next answer; requests of the server are passed over. `None` when the server closed."""
        while True:
            word = self._exactly(4)
            content = self._exactly(int.from_bytes(word, "big")) if word else b""
            if not content:
                return None
            frame = Frame.unpack(content)
            if frame.flag & RESPONSE:
                return frame

    def ask(self, frame: Frame) -> bool:
        """Whether it was served."""
        return not self.refusal(frame)

    def answer(self, frame: Frame) -> dict[str, str]:
        """The fields of the next answer after this request."""
        self.socket.sendall(frame.pack())
        answer = self.receive()
        assert answer is not None, "the server hung up"
        assert answer.code == 0, answer
        return answer.ext or {}

    def refusal(self, frame: Frame) -> str:
        """Why it was not served; empty when it was."""
        self.socket.sendall(frame.pack())
        answer = self.receive()
        if answer is None:
            return "the server hung up"
        return f"{answer.code}: {answer.remark}" if answer.code else ""

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
