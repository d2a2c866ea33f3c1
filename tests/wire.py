"""An asynchronous peer of the servers under test: it sends hand-packed frames, and reads the replies."""

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.wire import BINARY, JSON, ONEWAY, RESPONSE, Frame
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import Request, decode_reply, encode

__all__ = ["BINARY", "JSON", "ONEWAY", "RESPONSE", "TIMEOUT_S", "Frame", "Peer", "Refusal", "loose"]

R = TypeVar("R")

#: The bound of every wait for a peer; a healthy test never comes near it.
TIMEOUT_S = 30.0


class Refusal(Exception):
    """A typed call was answered with another code than 0."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(f"code {frame.code}: {frame.remark}")
        self.frame = frame
        self.code = frame.code


@dataclass
class Peer:
    """One connection. `async with await Peer.connect("127.0.0.1:9876") as peer: ...`"""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    version: int = 513
    encoding: int = JSON
    #: Requests the server has sent to us, oldest first.
    pushed: list[Frame] = field(default_factory=list)
    _opaques: "itertools.count[int]" = field(default_factory=itertools.count)

    @classmethod
    async def connect(cls, address: str, *, version: int = 513, encoding: int = JSON) -> Self:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), TIMEOUT_S)
        return cls(reader, writer, version, encoding)

    async def call(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", **changes: Any
    ) -> Frame:
        """Send a request and return its answer, whatever its code."""
        opaque = await self.send(code, ext, body, **changes)
        while True:
            frame = await self.receive()
            if not frame.flag & RESPONSE:
                self.pushed.append(frame)
            elif frame.opaque == opaque:
                return frame

    async def ask(self, request: Request[R], **changes: Any) -> R:
        """The same for a declared request. Raises `Refusal` for every code but 0."""
        ext, body = encode(request)
        frame = await self.call(request.code, ext, body or b"", **changes)
        if frame.code != 0:
            raise Refusal(frame)
        return decode_reply(type(request), frame.ext or {}, frame.body)

    async def send(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", **changes: Any
    ) -> int:
        """Send a request and do not wait; its opaque."""
        opaque = next(self._opaques)
        options = {"version": self.version, "encoding": self.encoding, "opaque": opaque} | changes
        frame = Frame(code, ext=dict(ext) if ext is not None else None, body=body, **options)
        await self.raw(frame.pack())
        return frame.opaque

    async def raw(self, content: bytes) -> None:
        """Put bytes on the wire as they are."""
        self.writer.write(content)
        await asyncio.wait_for(self.writer.drain(), TIMEOUT_S)

    async def receive(self) -> Frame:
        """The next frame, request or answer."""
        word = await asyncio.wait_for(self.reader.readexactly(4), TIMEOUT_S)
        content = await asyncio.wait_for(self.reader.readexactly(int.from_bytes(word, "big")), TIMEOUT_S)
        return Frame.unpack(content)

    async def is_closed_by_server(self) -> bool:
        """Wait until the other side closes, and discard further data."""
        try:
            while await asyncio.wait_for(self.reader.read(65_536), TIMEOUT_S):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def loose(body: bytes) -> Any:
    """A body with bare keys, as a tree."""
    return fastjson.loads(body)
