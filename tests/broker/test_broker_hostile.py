"""Hostile input: a broker answers malformed requests of every code, keeps the connection and continues to serve."""

import asyncio
import json
from pathlib import Path

import pytest

from broker.conftest import Cluster, made_broker
from broker.talk import heartbeat, pull, send
from held_reading import reading_held
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.clients import GetConsumerListByGroup
from wire import BINARY, JSON, Peer


def object_of(**members: object) -> bytes:
    return json.dumps(members).encode()


HUGE = "9" * 4_000
BODIES = {
    "no body": b"",
    "zeros": bytes(1_000),
    "not UTF-8": b"\xff\xfe\xfd",
    "half an object": b'{"clientID":"x","consumerDataSet":[{"groupName":',
    "deep lists": b"[" * 50_000,
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a list": b"[1,2,3]",
    "a number": b"7",
    "null": b"null",
    "nulls inside": b'{"clientID":null,"consumerDataSet":null,"producerDataSet":null,"mqSet":null,"groupName":null}',
    "wrong types": b'{"clientID":{},"consumerDataSet":{"a":1},"mqSet":7,"groupName":[],"topicConfigList":"x"}',
    "names from hell": object_of(
        clientID="\u0000\u2028",
        consumerDataSet=[
            {"groupName": "../../etc/passwd", "subscriptionDataSet": [{"topic": "..", "subString": "|| ||"}]},
            {"groupName": "", "subscriptionDataSet": [{"topic": ""}]},
            {"groupName": "g" * 10_000},
        ],
        producerDataSet=[{"groupName": "p\u0000"}],
        groupName="%" * 200,
        topicConfigList=[{"topicName": "a/b"}],
        groupConfigList=[{"groupName": "a/b"}],
    ),
    "numbers out of range": (
        b'{"groupName":"big","retryMaxTimes":' + HUGE.encode() + b',"retryQueueNums":99999999999,"brokerId":-1}'
    ),
    "numbers at the edge": object_of(
        groupName="edge",
        retryMaxTimes=1 << 40,
        retryQueueNums=1 << 20,
        groupSysFlag=1 << 33,
        topicConfigList=[{"topicName": "edge", "readQueueNums": 1 << 30, "topicSysFlag": 1 << 40, "perm": 99}],
        groupConfigList=[{"groupName": "edge", "whichBrokerWhenConsumeSlowly": -1}],
    ),
    "too many groups": object_of(clientID="x", producerDataSet=[{"groupName": f"p{n}"} for n in range(2_000)]),
    "too many topics": object_of(
        clientID="x",
        consumerDataSet=[
            {"groupName": "g", "subscriptionDataSet": [{"topic": f"t{number}"} for number in range(2_000)]}
        ],
    ),
    "half a character": b'{"clientID":"\\ud800","consumerGroup":"\\udfff","clientId":"\\ud800","mqSet":[]}',
    "broken properties": b"a=\\u12zz",
    "properties for what must not change": b"storePathRootDir=/etc\nlistenPort=1\nbrokerName=x",
    "batch of nonsense": (1 << 31).to_bytes(4, "big") + bytes(100),
}  # fmt: skip

EXTS: dict[str, dict[str, str] | None] = {
    "no fields": None,
    "empty": dict.fromkeys(("topic", "group", "consumerGroup", "groupName", "clientID", "queueId", "offset"), ""),
    "sane": {
        "topic": "t", "group": "g", "consumerGroup": "g", "groupName": "g", "clientID": "c", "queueId": "0",
        "offset": "0", "timestamp": "0", "key": "k", "maxNum": "32", "beginTimestamp": "0",
        "endTimestamp": "9000000000000000000", "defaultTopic": "TBW102", "readQueueNums": "4",
        "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
        "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subVersion": "0", "producerGroup": "p",
    },
    "out of range": {
        "topic": "t", "group": "g", "consumerGroup": "g", "groupName": "g", "clientID": "c",
        "queueId": "-2147483649", "offset": "-9223372036854775808", "timestamp": "9223372036854775807",
        "key": "k", "maxNum": "2147483648", "beginTimestamp": "-1", "endTimestamp": "-9", "readQueueNums": "-1",
        "writeQueueNums": HUGE, "perm": "-8", "order": "perhaps", "queueOffset": "-5", "maxMsgNums": "-1",
        "sysFlag": "-1", "commitOffset": "-7", "suspendTimeoutMillis": "-1", "subVersion": "-1",
        "topicSeq": "-5", "maxTopicNum": "-5", "groupSeq": "99999999", "maxGroupNum": "1", "dataVersion": "{{{",
    },
    "odd names": {
        "topic": "../../etc\x00", "group": "\U0001f600", "consumerGroup": "g" * 10_000, "groupName": "a@b",
        "clientID": "c\x01\x02", "key": "k" * 60_000, "defaultTopic": "..", "attributes": "+++,=,-", "queueId": "0",
        "offset": "1", "timestamp": "-1", "readable": "maybe", "topicList": ";;;", "_UNIQUE_KEY_QUERY": "2",
    },
}  # fmt: skip

#: Larger codes exist in JSON frames only.
BINARY_CODE_MAX = 0x7FFF
#: A code that each of these may get; failures of a handler are answered with 1 and logged.
EXPECTED = {0, 1, 3, 13, 14, 16, 17, 19, 20, 21, 22, 23, 24, 26, 29, 206, 208, 604}


@pytest.mark.parametrize("encoding", [JSON, BINARY], ids=["json", "binary"])
@pytest.mark.parametrize("ext", EXTS.values(), ids=EXTS.keys())
async def test_every_hostile_request_is_answered_and_others_are_served(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, ext: dict[str, str] | None, encoding: int
) -> None:
    served = [
        code
        for code, what in cluster.broker.table().items()
        if what != "not served" and (encoding == JSON or code <= BINARY_CODE_MAX)
    ]
    async with (
        await Peer.connect(cluster.broker.address) as sane,
        await Peer.connect(cluster.broker.address) as peer,
    ):
        await send(sane, "orders", b"before")
        await sane.ask(heartbeat("one", "orders", group="sane"))
        for body in BODIES.values():
            for code in served:
                opaque = await peer.send(code, ext, body, encoding=encoding)
                while True:
                    answer = await peer.receive()
                    if answer.opaque == opaque and answer.flag & 1:
                        break
                assert answer.code in EXPECTED, (RequestCode(code).name, answer)
        assert (await sane.ask(GetConsumerListByGroup(consumer_group="sane"))).consumer_id_list == ["one"]
        assert b"before" in (await pull(sane, "sane", "orders")).body
        assert (await send(sane, "orders")).code == 0
    assert [record.message for record in caplog.records if record.exc_info] == [], "refused, not by accident"


async def test_broker_restarts_after_every_accepted_request(tmp_path: Path) -> None:
    changes = (17, 18, 34, 200, 207, 215, 222, 225, 352, 353)
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await send(peer, "orders", b"before")
        for ext in EXTS.values():
            for body in BODIES.values():
                for code in changes:
                    await peer.call(code, ext, body)
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        assert b"before" in (await pull(peer, "sane", "orders")).body


async def test_others_are_answered_while_a_large_heartbeat_is_read(cluster: Cluster) -> None:
    groups = ",".join(f"{{groupName:'g{number}',subscriptionDataSet:[],}}" for number in range(20_000))
    body = f"{{clientID:'x',consumerDataSet:[{groups}]}}".encode()
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as other,
    ):
        with reading_held():
            await peer.send(RequestCode.HEART_BEAT, None, body)
            answer = asyncio.ensure_future(peer.receive())
            for number in range(20):
                await other.ask(heartbeat(f"other-{number}", "orders", group="others"))
            assert not answer.done()
        assert (await answer).code == 29
