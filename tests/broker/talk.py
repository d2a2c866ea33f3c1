"""Requests of clients to a broker, frame by frame."""

import asyncio
from typing import Any

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import encode, read_json
from rmqpy.protocol.requests.clients import (
    ConsumerData,
    HeartBeat,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmqpy.protocol.requests.routes import TopicRoute
from wire import TIMEOUT_S, Frame, Peer


async def send(peer: Peer, topic: str, body: bytes = b"hello", **changes: str) -> Frame:
    """SEND_MESSAGE_V2, as a Java producer sends it."""
    ext = {
        "a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02KEYS\x01k1\x02", "j": "0", "k": "false",
        "l": "0", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return await peer.call(RequestCode.SEND_MESSAGE_V2, ext | changes, body)


async def pull(peer: Peer, group: str, topic: str, offset: int = 0, **changes: str) -> Frame:
    """PULL_MESSAGE that carries its subscription and does not wait."""
    ext = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return await peer.call(RequestCode.PULL_MESSAGE, ext | changes)


def heartbeat(
    client_id: str, *topics: str, group: str = "billing", producer: str = "", **changes: Any
) -> HeartBeat:
    """The heartbeat of a client with one consumer, or one producer."""
    consumers = [
        ConsumerData(
            group_name=group,
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics
            ],
        )
    ]
    return HeartBeat(
        body=HeartbeatData(
            client_id=client_id,
            consumer_data_set=consumers if topics else [],
            producer_data_set=[ProducerData(group_name=producer)] if producer else [],
            **changes,
        )
    )


async def beat(peer: Peer, heartbeat: HeartBeat) -> Frame:
    """Send a heartbeat; the answer as it came."""
    sent = encode(heartbeat)
    return await peer.call(RequestCode.HEART_BEAT, sent.ext, sent.body or b"")


async def route(peer: Peer, topic: str) -> TopicRoute | None:
    """The route of a topic at the name server now."""
    answer = await peer.call(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
    )
    if answer.code == 17:
        return None
    assert answer.code == 0
    return read_json(TopicRoute, answer.body)


async def route_once(peer: Peer, topic: str, *, perm: int = 6) -> TopicRoute:
    """The route of a topic as soon as it has that permission: registration does not hold up answers."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await route(peer, topic)
            if found is not None and all(queue.perm == perm for queue in found.queue_datas):
                return found


async def pushed(peer: Peer) -> Frame:
    """The next request of the broker to this client."""
    return peer.pushed.pop(0) if peer.pushed else await peer.receive()
