"""False registrations of brokers, and queries for routes."""

import json
import struct
import zlib
from collections.abc import Iterator

from hostile.cases.case import Case, registration, request
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame


def packed(*topics: str, version: str = '{"counter":1}', count: int | None = None) -> bytes:
    """A compressed body: version, number of topics, topics, filter servers."""

    def part(text: str) -> bytes:
        return struct.pack(">I", len(text.encode())) + text.encode()

    number = struct.pack(">I", len(topics) if count is None else count)
    return zlib.compress(part(version) + number + b"".join(map(part, topics)) + part("[]"))


def wrapped(**topic: object) -> bytes:
    """A plain body with one topic."""
    row = {"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} | topic
    table = {"topicConfigTable": {"t": row, "u": row}, "dataVersion": {"counter": 1, "timestamp": 1}}
    return json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()


def registrations() -> Iterator[Case]:
    plain = {
        "garbage": b"\xff" * 100,
        "deep lists": b"[" * 100_000,
        "deep objects": b'{"a":' * 100_000,
        "a million digits": b'{"topicConfigSerializeWrapper":' + b"9" * 1_000_000 + b"}",
        "a list for an object": b"[]",
    }
    for what, body in plain.items():
        end = 29 if what == "a list for an object" else 1
        yield _register(what, end, body)
    compressed = {
        "compressed garbage": b"\x78\x9cgarbage",
        "compressed, cut short": packed("t 1 1 6 SINGLE_TAG")[:-6],
        "compressed, and nothing inside": zlib.compress(b""),
        "more topics than there are": packed("t 1 1 6 SINGLE_TAG", count=2**32 - 1),
        "a length beyond the body": zlib.compress(struct.pack(">I", 2**32 - 1) + b"{}"),
        "a topic without numbers": packed("t"),
        "a topic with words for numbers": packed("t one one six SINGLE_TAG"),
        "attributes, 100,000 deep": packed("t 1 1 6 SINGLE_TAG " + "[" * 100_000),
        "attributes that are none": packed("t 1 1 6 SINGLE_TAG [1]", "u 1 1 6 SINGLE_TAG"),
        "an unknown kind of filter": packed("t 1 1 6 NO_TAG"),
    }
    for what, body in compressed.items():
        end = 29 if what == "more topics than there are" else 1
        yield _register(what, end, body, compressed="true")
    numbers = {
        "a topic with 4,000 digits": packed(f"t {'9' * 4_000} 1 6 SINGLE_TAG", "u 1 1 6 SINGLE_TAG"),
        "a topic beyond 32 bits": packed("t 4294967296 1 6 SINGLE_TAG", "u 1 1 6 SINGLE_TAG"),
        "a topic with negative queues": packed("t -1 -1 6 SINGLE_TAG", "u 1 1 6 SINGLE_TAG"),
    }
    for what, body in numbers.items():
        yield _register(what, 29, body, compressed="true")
    yield _register("a checksum that does not match", 1, b"{}", bodyCrc32="12345")
    yield request("register a broker: no fields", 1, Frame(Code.REGISTER_BROKER, body=b"{}"), "namesrv")
    topics = {
        "queues beyond 32 bits": {"readQueueNums": 2**31},
        "negative queues": {"writeQueueNums": -1},
        "queues in words": {"readQueueNums": "many"},
        "a permission as an object": {"perm": {}},
    }
    for what, topic in topics.items():
        yield _register(what, 29, wrapped(**topic))


def _register(what: str, end: int, body: bytes, **changes: str) -> Case:
    ext = registration(**changes)
    if "bodyCrc32" not in changes:
        ext["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFF_FFFF)
    return request(
        f"register a broker: {what}", end, Frame(Code.REGISTER_BROKER, ext=ext, body=body), "namesrv"
    )


def routes() -> Iterator[Case]:
    without_fields = (
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_KV_CONFIG,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.UNREGISTER_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
    )
    for code in without_fields:
        yield request(f"{code.name.lower()}: no fields at all", 1, Frame(code), "namesrv")
    for what, version in {"from the future": 32_767, "before the first": -32_768}.items():
        frame = Frame(Code.GET_BROKER_CLUSTER_INFO, version=version)
        yield request(f"cluster: a version {what}", 0, frame, "namesrv")
