"""Hostile input: a name server answers malformed requests of every code, keeps the connection and continues to
serve."""

import zlib

import pytest

from fakebroker import BrokerMaker
from wire import BINARY, JSON, Peer

SERVED = (
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 319, 322, 327, 901, 904,
)  # fmt: skip

BODIES = {
    "no body": b"",
    "zeros": bytes(1000),
    "not UTF-8": b"\xff\xfe\xfd",
    "half an object": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{',
    "deep lists": b"[" * 50_000,
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "deep loose objects": b"{a:" * 5_000,
    "a list": b"[1,2,3]",
    "a number": b"7",
    "null": b"null",
    "nulls inside": b'{"topicConfigSerializeWrapper":null,"queueDatas":null,"filterServerList":null}',
    "wrong types": b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]},"queueDatas":{"a":1}}',
    "wrong types deep": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":{}}}},"queueDatas":[7]}',
    "huge number": b'{"counter":' + b"9" * 4_000 + b"}",
    "not a number": b'{"counter":NaN,"timestamp":Infinity}',
    "half a character": b'{"queueDatas":[{"brokerName":"\\ud800"}]}',
    "half a character as key": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud800":{"perm":[]}}}}',
    "a long key": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"'
    + b"k" * 300_000
    + b'":{"perm":[]}}}}',
    "a compressed bomb": zlib.compress(bytes(1 << 24)),
    "a long comment": b"/*" * 100_000,
}

EXTS: dict[str, dict[str, str] | None] = {
    "sane": {
        "topic": "t", "namespace": "n", "key": "k", "value": "v", "cluster": "c", "clusterName": "c",
        "brokerName": "b", "brokerAddr": "10.0.0.2:10911", "brokerId": "0", "haServerAddr": "10.0.0.2:10912",
    },
    "no fields": None,
    "empty": dict.fromkeys(
        ("topic", "namespace", "key", "value", "cluster", "clusterName", "brokerName", "brokerAddr", "brokerId"), ""
    ),
    "odd": {
        "topic": "t\x00\x01\u2028", "namespace": "\U0001f600", "key": "k" * 10_000, "value": "v" * 100_000,
        "cluster": "%", "clusterName": "../..", "brokerName": "b", "brokerAddr": "not an address", "brokerId": "-1",
        "haServerAddr": "", "bodyCrc32": "0", "compressed": "true", "heartbeatTimeoutMillis": "-5",
    },
    "numbers": {"topic": "1", "brokerId": "9" * 30, "compressed": "2", "bodyCrc32": "x", "clusterName": "c",
                "brokerName": "b", "brokerAddr": "a"},
}  # fmt: skip


@pytest.mark.parametrize("encoding", [JSON, BINARY], ids=["json", "binary"])
@pytest.mark.parametrize("ext", EXTS.values(), ids=EXTS.keys())
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_every_request_is_answered(
    peer: Peer,
    broker: BrokerMaker,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    ext: dict[str, str] | None,
    encoding: int,
) -> None:
    sane = await broker()
    await sane.register()
    opaques = [await peer.send(code, ext, body, encoding=encoding) for code in SERVED]
    answers = [await peer.receive() for _ in opaques]
    assert {answer.opaque for answer in answers} == set(opaques)
    assert {answer.code for answer in answers} <= {0, 1, 17, 22, 29}
    route = await sane.peer.call(105, {"topic": "orders"})
    assert (route.code, b"broker-a" in route.body) == (0, True)
    assert [record for record in caplog.records if record.exc_info] == [], "refused, and never by accident"
