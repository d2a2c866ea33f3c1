"""Probes of a server that may still be starting: does it listen, is a topic routed, is a send accepted?

Raw frames on purpose: no client of either side, no retry, no waiting of its own.
"""

import json
import re
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

_REGISTER_BROKER = 103
_GET_MAX_OFFSET = 30
_GET_ROUTE = 105
_SEND_MESSAGE_V2 = 310
_ANSWER_SECONDS_MAX = 5.0


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
    """Whether a name server knows a master that has `topic`. Apache's writes ids of brokers without quotes."""
    try:
        with _connect(namesrv) as connection:
            route = _asked(connection, _GET_ROUTE, {"topic": topic}, b"")[1]
    except OSError:
        return False
    return re.search(rb'[{,]"?0"?:"', route) is not None


def is_accepted(broker: str, topic: str) -> bool:
    """Whether a broker stores a message; the topic is made from its template when it does not exist."""
    fields = {
        "a": "start", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
        "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return _code(broker, _SEND_MESSAGE_V2, fields, b"x" * 128) == 0


def connected(broker: str) -> socket.socket:
    """A connection on which one request was answered: no server closes it for having sent nothing."""
    connection = _connect(broker)
    _ask(connection, _GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}, b"")
    return connection


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """Messages that a queue of a broker ever had; 0 where it has no such queue, or does not answer."""
    try:
        with _connect(broker) as connection:
            answer = _ask(connection, _GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}, b"")
    except OSError:
        return 0
    return int((answer.get("extFields") or {}).get("offset", 0))


def register(namesrv: str, name: str, address: str, topics: Iterable[str], queues: int) -> socket.socket:
    """Register a broker with these topics: the connection on which it is registered, until that is closed."""
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
    code = int(_ask(connection, _REGISTER_BROKER, fields, body)["code"])
    if code != 0:
        connection.close()
        raise RuntimeError(f"{namesrv} refused to register {name}: code {code}")
    return connection


def _code(address: str, code: int, fields: dict[str, str], body: bytes) -> int | None:
    """The code of the answer; None when there is none."""
    try:
        with _connect(address) as connection:
            return int(_ask(connection, code, fields, body)["code"])
    except OSError:
        return None


def request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """A frame that asks."""
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 513, "extFields": fields}
    encoded = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def answer_of(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and body of an answer, whose frame begins behind its first length."""
    (header_size,) = struct.unpack_from(">I", frame)
    end = 4 + (header_size & 0xFFFFFF)
    return json.loads(frame[4:end]), frame[end:]


def _ask(connection: socket.socket, code: int, fields: dict[str, str], body: bytes) -> dict[str, Any]:
    """The header of the answer."""
    return _asked(connection, code, fields, body)[0]


def _asked(
    connection: socket.socket, code: int, fields: dict[str, str], body: bytes
) -> tuple[dict[str, Any], bytes]:
    """Header and body of the answer."""
    connection.sendall(request(code, fields, body))
    (size,) = struct.unpack(">I", _read(connection, 4))
    return answer_of(_read(connection, size))


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS_MAX)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return bytes(data)
