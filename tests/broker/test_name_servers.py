"""A broker and its name servers: registrations, and the refusal to replace another broker."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.conftest import Cluster, made_broker
from broker.talk import route, route_once, send
from fakebroker import FakeBroker, members, topics
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import RequestCode
from wire import TIMEOUT_S, Peer


async def test_new_topic_keeps_others_at_a_name_server_that_deletes_missing_ones(
    cluster: Cluster,
) -> None:
    async with (
        await Peer.connect(cluster.namesrv) as namesrv,
        await Peer.connect(cluster.broker.address) as peer,
    ):
        setting = b"deleteTopicWithBrokerRegistration=true\n"
        assert (await namesrv.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, setting)).code == 0
        for name in ("first", "second", "third"):
            await send(peer, name)
            await route_once(namesrv, name)
        assert [await route(namesrv, name) is not None for name in ("first", "second", "TBW102")] == [
            True
        ] * 3


async def test_a_second_broker_of_a_name_does_not_start_while_the_first_one_answers(
    cluster: Cluster, tmp_path: Path
) -> None:
    second = made_broker(tmp_path / "second", cluster.namesrv, {})
    with pytest.raises(ConfigError, match="two brokers are called broker-a") as refused:
        await second.start()
    assert cluster.broker.address in str(refused.value)
    assert "another brokerName" in str(refused.value)
    await second.stop()
    async with await Peer.connect(cluster.namesrv) as namesrv:
        assert await members(namesrv) == {0: cluster.broker.address}
    assert not (tmp_path / "second" / "store" / "commitlog").exists()


async def test_a_broker_starts_in_the_place_of_one_that_does_not_answer(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(await Peer.connect(cluster.namesrv))
        # One is silent, nothing listens at the other's, and the third's has been given to broker-a.
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        stack.push_async_callback(silent.wait_closed)
        stack.callback(silent.close)
        port = silent.sockets[0].getsockname()[1]
        for name, address in (
            ("silent", f"127.0.0.1:{port}"),
            ("gone", "127.0.0.1:1"),
            ("moved", cluster.broker.address),
        ):
            former = await stack.enter_async_context(await Peer.connect(cluster.namesrv))
            await FakeBroker(
                former, name=name, cluster="c1", address=address, topics=topics("a", "b")
            ).register()
            settings = {"brokerName": name, "brokerClusterName": "c1"}
            broker = made_broker(tmp_path / name, cluster.namesrv, settings)
            await stack.enter_async_context(broker)
            async with asyncio.timeout(TIMEOUT_S):
                while (await members(namesrv, name)).get(0) != broker.address:
                    pass
