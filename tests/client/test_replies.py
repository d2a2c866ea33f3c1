"""Replies as brokers send them, frame by frame: valid ones reach the requester, others disturb nothing."""

import json
import threading
import zlib
from collections.abc import Iterator

import pytest

import rmqpy
from golden import golden_frame
from rmqpy import errors
from rmqpy.protocol.codes import RequestCode
from waiting import until
from wire import RESPONSE, Frame

from .fakes import Broker, Brokers, NameServer
from .live import WAIT_S


@pytest.fixture
def producer(name_server: NameServer, brokers: Brokers) -> Iterator[rmqpy.Producer]:
    """A producer whose name server lists both brokers."""

    def cluster(ask: Frame) -> Frame:
        table = {
            broker.name: {"brokerAddrs": {"0": broker.address}, "brokerName": broker.name, "cluster": "c"}
            for broker in brokers
        }
        body = {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}}
        return Frame(0, body=json.dumps(body).encode())

    name_server.handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = cluster
    for broker in brokers:
        broker.handlers[RequestCode.UNREGISTER_CLIENT] = lambda ask: Frame(0)
    with rmqpy.Producer(name_server.address, group="requesters") as producer:
        yield producer
    until(lambda: not {"rmqpy-replies", "rmqpy-requests"} & {each.name for each in threading.enumerate()})


def sent(brokers: Brokers) -> list[dict[str, str]]:
    """The properties of the messages that were sent, in any order."""
    codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
    frames = [frame for broker in brokers for frame in broker.asked if frame.code in codes]
    return [
        dict(entry.split("\x01") for entry in (frame.ext or {})["i"].split("\x02") if entry)
        for frame in frames
    ]


def reply(correlation_id: str, body: bytes = b"replybody", **changes: str) -> Frame:
    """Return the push of Apache's broker for this request."""
    golden = golden_frame("client_326_rpc_B2C", "request")
    ext = dict(golden.ext or {})
    known = dict(entry.split("\x01") for entry in ext["properties"].split("\x02") if entry)
    known |= {"CORRELATION_ID": correlation_id}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in known.items())
    return Frame(golden.code, opaque=708, ext=ext | {"properties": properties} | changes, body=body)


def answers(broker: Broker) -> list[Frame]:
    """Return the clients' replies to the broker."""
    return [frame for frame in broker.asked if frame.flag & RESPONSE]


def test_request_carries_requester_and_timeout_and_every_broker_is_notified(
    producer: rmqpy.Producer, brokers: Brokers
) -> None:
    future = producer.submit_request("orders", b"how much?", timeout=WAIT_S, properties={"colour": "red"})
    until(lambda: sent(brokers))
    [properties] = sent(brokers)
    assert properties["TTL"] == str(round(WAIT_S * 1_000))
    assert properties["colour"] == "red"
    for broker in brokers:
        beats = [json.loads(frame.body) for frame in broker.asked if frame.code == RequestCode.HEART_BEAT]
        assert {beat["clientID"] for beat in beats} == {properties["REPLY_TO_CLIENT"]}
        assert {"groupName": "requesters"} in beats[-1]["producerDataSet"]
    brokers[1].push(reply(properties["CORRELATION_ID"]))
    got = future.result(WAIT_S)
    assert (got.body, got.topic, got.queue.queue_id) == (b"replybody", "C1_REPLY_TOPIC", 0)
    assert (got.born_host, got.store_host) == ("127.0.0.1:58134", "127.0.0.1:48911")
    assert got.message_id == "FD0000000000000000000000000000023C0C30946E09694F14B10005"
    assert int(got.properties["ARRIVE_TIME"]) > int(got.properties["PUSH_REPLY_TIME"])


@pytest.mark.parametrize(
    ("changes", "body", "born_host"),
    [
        ({"sysFlag": str(0x301)}, zlib.compress(b"replybody"), "127.0.0.1:58134"),
        ({"bornHost": "0:0:0:0:0:0:0:1:5000"}, b"replybody", "[::1]:5000"),
        ({"bornHost": "[::1]:5000"}, b"replybody", "[::1]:5000"),
        ({"bornHost": "/10.0.0.9:5000"}, b"replybody", "10.0.0.9:5000"),
        ({"bornHost": "nowhere"}, b"replybody", "0.0.0.0:0"),
    ],
    ids=["compressed", "java-ipv6", "ipv6", "slash", "nonsense"],
)
def test_replies_of_any_broker_are_read(
    producer: rmqpy.Producer, brokers: Brokers, changes: dict[str, str], body: bytes, born_host: str
) -> None:
    future = producer.submit_request("orders", b"how much?", timeout=WAIT_S)
    until(lambda: sent(brokers))
    brokers[0].push(reply(sent(brokers)[0]["CORRELATION_ID"], body, **changes))
    got = future.result(WAIT_S)
    assert (got.body, got.born_host) == (b"replybody", born_host)


def test_unexpected_reply_is_counted_and_ignored(producer: rmqpy.Producer, brokers: Brokers) -> None:
    future = producer.submit_request("orders", b"how much?", timeout=WAIT_S)
    until(lambda: sent(brokers))
    correlation_id = sent(brokers)[0]["CORRELATION_ID"]
    before = producer.late_replies
    brokers[0].push(reply("somebody else's"))
    brokers[0].push(Frame(326, opaque=1, ext={"topic": "C1_REPLY_TOPIC"}, body=b"x"))
    brokers[0].push(reply(correlation_id))
    brokers[0].push(reply(correlation_id, b"a second one"))
    assert future.result(WAIT_S).body == b"replybody"
    until(lambda: producer.late_replies == before + 2)
    until(lambda: len(answers(brokers[0])) == 4)
    # The unreadable one is refused, the others are accepted.
    assert sorted(frame.code != 0 for frame in answers(brokers[0])) == [False, False, False, True]


def test_unsent_request_raises_send_error(producer: rmqpy.Producer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda ask: Frame(13, remark="too large")
    with pytest.raises(errors.SendError, match="too large"):
        producer.request("orders", b"how much?", timeout=WAIT_S)
    failed = producer.submit_request("orders", b"how much?", timeout=WAIT_S)
    with pytest.raises(errors.SendError, match="too large"):
        failed.result(WAIT_S)
