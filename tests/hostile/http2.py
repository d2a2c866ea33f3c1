"""HTTP/2 as bytes: frames and calls of gRPC, right and wrong ones, without a library that would refuse to send them."""

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SERVICE = "/apache.rocketmq.v2.MessagingService/"
#: The field `code` with the value OK, 20000.
OK = b"\x08\xa0\x9c\x01"
TIMEOUT_S = 20.0


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def packed(fields: Iterable[tuple[str, str]]) -> bytes:
    """A block of headers, each literal and not indexed."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: str) -> bytes:
    content = text.encode()
    if len(content) < 127:
        return bytes([len(content)]) + content
    size, out = len(content) - 127, [127]
    while size >= 128:
        out.append(size % 128 | 128)
        size //= 128
    return bytes([*out, size]) + content


def fields(method: str, client_id: str = "hostile", *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"), ("x-mq-client-id", client_id), *more,
    ]  # fmt: skip


def opening(stream: int, method: str, client_id: str = "hostile", *more: tuple[str, str]) -> bytes:
    """The headers of a call whose body follows."""
    return frame(HEADERS, END_HEADERS, stream, packed(fields(method, client_id, *more)))


def message(content: bytes) -> bytes:
    """A message as gRPC frames it."""
    return b"\0" + struct.pack(">I", len(content)) + content


def part(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    size, out = len(content), []
    while size >= 128:
        out.append(size % 128 | 128)
        size //= 128
    return bytes([number << 3 | 2, *out, size]) + content


def resource(number: int, name: str) -> bytes:
    return part(number, part(2, name.encode()))


def call(stream: int, method: str, content: bytes, client_id: str = "hostile") -> bytes:
    """A whole call."""
    return opening(stream, method, client_id) + frame(DATA, END_STREAM, stream, message(content))


class Connection:
    """One blocking connection."""

    def __init__(self, address: tuple[str, int], *, greets: bool = True) -> None:
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = -1
        self._rest = b""
        if greets:
            self.socket.sendall(PREFACE + frame(SETTINGS))

    def ask(self, method: str, content: bytes, client_id: str = "good") -> bytes:
        """The data of the answer to a whole call."""
        self._stream += 2
        self.socket.sendall(call(self._stream, method, content, client_id))
        data = b""
        for kind, flags, stream, payload in self.frames():
            if stream == self._stream and kind == DATA:
                data += payload
            if stream == self._stream and (kind == RST_STREAM or flags & END_STREAM):
                return data
            assert kind != GOAWAY, payload
        raise ConnectionError("the server hung up")

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Frames until the server closes; settings and pings are answered."""
        while len(head := self._exactly(9)) == 9:
            kind, flags = head[3], head[4]
            payload = self._exactly(int.from_bytes(head[:3], "big"))
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA and payload:
                grown = struct.pack(">I", len(payload))
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, grown))
            yield kind, flags, struct.unpack(">I", head[5:])[0], payload

    def closes(self, seconds: float = TIMEOUT_S) -> bool:
        """Whether the server closes, and in time."""
        self.socket.settimeout(1.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if not self.socket.recv(1 << 20):
                    return True
            except TimeoutError:
                continue
            except OSError:
                return True
        return False

    def pour(self, chunks: Iterable[bytes], seconds: float) -> int:
        """Send until the server closes or the time is over, and read nothing; return the number of bytes."""
        sent, end = 0, time.monotonic() + seconds
        self.socket.settimeout(0.5)
        try:
            for chunk in chunks:
                if time.monotonic() > end:
                    break
                self.socket.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        return sent

    def _exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            try:
                received = self.socket.recv(1 << 16)
            except ConnectionError:
                return b""
            if not received:
                return b""
            self._rest += received
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
