"""Wire: hand-packed frames, and synchronous requests to servers that may still be starting.

Tests and benchmarks use it without a client of either side: no retry, no waiting. The frames share no code with the
servers.
"""

import json
import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

RESPONSE, ONEWAY = 1, 2
JSON, BINARY = 0, 1

_REGISTER_BROKER = 103
_GET_MAX_OFFSET = 30
_GET_ROUTE = 105
_SEND_MESSAGE_V2 = 310
#: On a busy machine the first reply of Apache's broker takes more than five.
_ANSWER_SECONDS_MAX = 15.0


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


def is_listening(address: str) -> bool:
    """Whether a server accepts connections."""
    try:
        _connect(address).close()
    except OSError:
        return False
    return True


def has_route(namesrv: str, topic: str) -> bool:
    """Whether a name server knows a broker that has `topic`."""
    return _code(namesrv, _GET_ROUTE, {"topic": topic}, b"") == 0


def has_master(namesrv: str, topic: str) -> bool:
    """Whether a name server knows a master that has `topic`. Apache's writes broker ids without quotes."""
    try:
        route = exchange(namesrv, _GET_ROUTE, {"topic": topic}).body
    except OSError:
        return False
    return re.search(rb'[{,]"?0"?:"', route) is not None


def is_accepted(broker: str, topic: str) -> bool:
    """Whether a broker stores a message; a missing topic is created from its template."""
    return send_code(broker, topic) == 0


def send_code(broker: str, topic: str) -> int | None:
    """The code of the response to a send; `None` without a response."""
    fields = {
        "a": "start", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
        "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return _code(broker, _SEND_MESSAGE_V2, fields, b"x" * 128)


def connected(broker: str) -> socket.socket:
    """Open a connection and exchange one request, so that no server closes it as silent."""
    connection = _connect(broker)
    _ask(connection, _GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}, b"")
    return connection


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """The end offset of a broker's queue; 0 for an unknown queue or no response."""
    try:
        answer = exchange(broker, _GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    except OSError:
        return 0
    return int((answer.ext or {}).get("offset", 0))


def register(namesrv: str, name: str, address: str, topics: Iterable[str], queues: int) -> socket.socket:
    """Register a broker with these topics; it is registered until the returned connection is closed."""
    fields = {
        "brokerName": name, "brokerAddr": address, "clusterName": "bench", "brokerId": "0",
        "haServerAddr": "", "compressed": "false",
    }  # fmt: skip
    table = {
        topic: {"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        for topic in topics
    }
    wrapper = {"topicConfigTable": table, "dataVersion": {"timestamp": int(time.time() * 1000), "counter": 1}}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
    connection = _connect(namesrv)
    code = _ask(connection, _REGISTER_BROKER, fields, body).code
    if code != 0:
        connection.close()
        raise RuntimeError(f"{namesrv} refused to register {name}: code {code}")
    return connection


def _code(address: str, code: int, fields: dict[str, str], body: bytes) -> int | None:
    """Return the response code, or None without a response."""
    try:
        return exchange(address, code, fields, body).code
    except OSError:
        return None


def request(code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """Build a request frame."""
    return Frame(code, opaque=1, ext=dict(fields), body=body).pack()


def exchange(address: str, code: int, fields: Mapping[str, str], body: bytes = b"") -> Frame:
    """Send one request on its own connection, and return the response. Raises `OSError`."""
    with _connect(address) as connection:
        return _ask(connection, code, fields, body)


def _ask(connection: socket.socket, code: int, fields: Mapping[str, str], body: bytes) -> Frame:
    connection.sendall(request(code, fields, body))
    (size,) = struct.unpack(">I", read(connection, 4))
    return Frame.unpack(read(connection, size))


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS_MAX)


def read(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes."""
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return bytes(data)
