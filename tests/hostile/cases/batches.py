"""Batches that lie about their messages, and bodies that are small until they are unpacked."""

import gzip
import struct
import zlib
from collections.abc import Iterator

from hostile.cases.case import MIB, Case, registration, request, send
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame


def message(body: bytes = b"x", properties: bytes = b"", **lies: int) -> bytes:
    """Return one message of a batch, with its actual lengths unless `lies` has others."""
    size = lies.get("size", 22 + len(body) + len(properties))
    body_bytes, properties_bytes = (
        lies.get("body_bytes", len(body)),
        lies.get("properties_bytes", len(properties)),
    )
    head = struct.pack(">iiiii", size, 0, 0, 0, body_bytes)
    return head + body + struct.pack(">h", properties_bytes) + properties


def batches() -> Iterator[Case]:
    good = message()
    bad = {
        "garbage": b"garbage",
        "empty": b"",
        "zeros": bytes(1000),
        "length 0": message(size=0) * 1000,
        "length -1": message(size=-1),
        "least length": message(size=-(2**31)),
        "greatest length": message(size=2**31 - 1),
        "one byte too long": good + message(size=24),
        "one byte too short": good + message(size=22) + good,
        "negative body": message(body_bytes=-1),
        "body beyond the batch": message(body_bytes=MIB),
        "greatest body": message(body_bytes=2**31 - 1),
        "negative properties": message(properties_bytes=-1),
        "properties beyond the message": message(properties_bytes=32_767),
        "cut short": good * 3 + good[:-1],
        "cut inside a length": good * 3 + good[:3],
        "more than any client sends": good * 40_000,
    }
    for what, body in bad.items():
        yield request(f"batch: {what}", 13, Frame(Code.SEND_BATCH_MESSAGE, ext=send(m="true"), body=body))
    # Stored as they are: Apache's broker does not look at bodies inside.
    yield request(
        "batch: an empty message inside",
        0,
        Frame(Code.SEND_BATCH_MESSAGE, ext=send(m="true"), body=good + message(b"")),
    )
    yield request("batch: of one, right", 0, Frame(Code.SEND_BATCH_MESSAGE, ext=send(m="true"), body=good))
    retry = send(b="%RETRY%hostile-group", m="true")
    yield request("batch: to a retry topic", 13, Frame(Code.SEND_BATCH_MESSAGE, ext=retry, body=good))


def bombs() -> dict[str, tuple[int, bytes]]:
    """Return system flag and body that a consumer would unpack to a thousand times its size, or to garbage."""
    zeros = bytes(64 * MIB)
    return {
        "zlib": (1 | 3 << 8, zlib.compress(zeros, 9)),
        "zlib, without a kind": (1, zlib.compress(zeros, 9)),
        "gzip": (1 | 3 << 8, gzip.compress(zeros, 9)),
        # A frame of LZ4 that announces 8 EiB, and one of Zstandard that announces 16 EiB.
        "lz4": (1 | 1 << 8, bytes.fromhex("04224d186c40") + b"\x7f" * 8 + bytes(64)),
        "zstd": (1 | 2 << 8, bytes.fromhex("28b52ffde0") + b"\xff" * 8 + bytes(64)),
        "a kind nobody knows": (1 | 7 << 8, bytes(100)),
    }


def compressed() -> Iterator[Case]:
    # The broker stores bodies as they are, and unpacks none.
    for what, (flag, body) in bombs().items():
        yield request(f"a bomb: {what}", 0, Frame(Code.SEND_MESSAGE_V2, ext=send(f=str(flag)), body=body))
    # The name server unpacks registrations.
    for what, size in {"64 MiB": 64 * MIB, "300 MiB": 300 * MIB}.items():
        frame = Frame(
            Code.REGISTER_BROKER, ext=registration(compressed="true"), body=zlib.compress(bytes(size), 9)
        )
        yield request(f"register a broker: a bomb of {what}", 1, frame, "namesrv")
