"""A peer that speaks frames and nothing else: what tests put on a socket, and what comes back.

It shares no code with the servers under test beyond the declarations: frames are packed and cut here, by hand, in
both header encodings.
"""

import asyncio
import itertools
import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import Request, decode_reply, encode

R = TypeVar("R")

RESPONSE, ONEWAY = 1, 2
JSON, BINARY = 0, 1
#: What every wait for a peer is bounded by; nothing in a healthy test comes near it.
TIMEOUT_S = 30.0


@dataclass
class Frame:
    """One frame, either way."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 513
    language: str | int = "JAVA"
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""
    encoding: int = JSON

    def pack(self) -> bytes:
        header = self._json() if self.encoding == JSON else self._binary()
        length = 4 + len(header) + len(self.body)
        return struct.pack(">iI", length, self.encoding << 24 | len(header)) + header + self.body

    def _json(self) -> bytes:
        header: dict[str, Any] = {
            "code": self.code,
            "flag": self.flag,
            "language": self.language,
            "opaque": self.opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": self.version,
        }
        if self.ext is not None:
            header["extFields"] = self.ext
        if self.remark is not None:
            header["remark"] = self.remark
        return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()

    def _binary(self) -> bytes:
        remark = (self.remark or "").encode()
        ext = b"".join(
            struct.pack(">h", len(key.encode()))
            + key.encode()
            + struct.pack(">i", len(value.encode()))
            + value.encode()
            for key, value in (self.ext or {}).items()
        )
        language = self.language if isinstance(self.language, int) else 0
        fixed = struct.pack(">hbhii", self.code, language, self.version, self.opaque, self.flag)
        return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(ext)) + ext

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        """`content` is a frame without its length word."""
        mark = int.from_bytes(content[:4], "big")
        encoding, size = mark >> 24, mark & 0xFF_FFFF
        header, body = content[4 : 4 + size], content[4 + size :]
        made = cls._from_json(header) if encoding == JSON else cls._from_binary(header)
        made.body, made.encoding = body, encoding
        return made

    @classmethod
    def _from_json(cls, header: bytes) -> Self:
        # The standard parser on purpose: what a server sends must be strict.
        found = json.loads(header)
        assert all(isinstance(value, str) for value in found.get("extFields", {}).values()), found
        return cls(
            code=found["code"],
            opaque=found["opaque"],
            flag=found.get("flag", 0),
            version=found.get("version", 0),
            language=found.get("language", ""),
            remark=found.get("remark"),
            ext=found.get("extFields"),
        )

    @classmethod
    def _from_binary(cls, header: bytes) -> Self:
        code, language, version, opaque, flag, size = struct.unpack_from(">hbhiii", header)
        at = struct.calcsize(">hbhiii")
        remark = header[at : at + size].decode() if size else None
        at += size
        (size,) = struct.unpack_from(">i", header, at)
        at += 4
        ext: dict[str, str] = {}
        end = at + size
        while at < end:
            (width,) = struct.unpack_from(">h", header, at)
            key = header[at + 2 : at + 2 + width].decode()
            at += 2 + width
            (width,) = struct.unpack_from(">i", header, at)
            ext[key] = header[at + 4 : at + 4 + width].decode()
            at += 4 + width
        return cls(code, opaque, flag, version, language, remark, ext or None)


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
        """Wait until the other side closes, dropping what it still sends."""
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
