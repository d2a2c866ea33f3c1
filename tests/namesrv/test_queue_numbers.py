"""Routes with no more queues than clients support."""

import json
from pathlib import Path

import pytest

import rmqpy
from fakebroker import BrokerMaker, Connect, StartNameServer, topics
from rmqpy.errors import DecodeError
from wire import Peer


@pytest.mark.parametrize(
    "configured",
    ["broker-a:3000000", "broker-a:4;broker-b:131069", "broker-a:" + "9" * 5_000, "broker-a: 3000000"],
)
async def test_an_order_configuration_of_too_many_queues_is_refused(peer: Peer, configured: str) -> None:
    ext = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": configured}
    answer = await peer.call(100, ext)
    assert (answer.code, answer.remark) == (
        29,
        "the order configuration of orders has more than 131072 queues",
    )
    assert (await peer.call(100, ext | {"value": "broker-a:4;broker-b:131068"})).code == 0
    assert (await peer.call(100, ext | {"namespace": "another"})).code == 0


async def test_client_refuses_a_route_with_too_many_queues(
    start: StartNameServer, connect: Connect, broker: BrokerMaker, tmp_path: Path
) -> None:
    path = tmp_path / "order.json"
    table = {"orders": "broker-a:3000000", "payments": "broker-a:" + "9" * 5_000}
    path.write_text(json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": table}}))
    server = await start(order_topics_to_clients=True, kv_path=str(path))
    a = await broker(server=server)
    a.topics |= topics("many", queues=(1 << 31) - 1)
    await a.register()
    async with rmqpy.AsyncProducer(server.address) as producer:
        for topic in ("orders", "payments", "many"):
            with pytest.raises(DecodeError, match=f"{topic} has more than 131072 queues in its route"):
                await producer.send(topic, b"x")
