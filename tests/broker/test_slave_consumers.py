"""Consumers at a slave: while its master is away, and when it is back."""

import shutil
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import log_end, made_slave, offset
from broker.talk import pull, send
from fakebroker import FakeBroker
from fakebroker import topics as fake_topics
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.groups import (
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.topics import GetAllTopicConfig, UpdateAndCreateTopic
from waiting import until_async
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


async def test_consumer_continues_at_the_slave_and_returns_without_repeats(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.offset_copy.SECONDS", 0.05)
    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as peer:
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        for number in range(3):
            assert (await send(peer, "orders", str(number).encode())).code == 0
    shutil.copytree(tmp_path / "store", tmp_path / "slave")
    monkeypatch.setattr("rmqpy.client.push.engine.COMMIT_S", 0.2)
    consumed: list[str] = []
    config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.2)
    consumer = rmqpy.AsyncPushConsumer("billing", config, start_from="earliest")
    consumer.on("orders", "*", lambda message: consumed.append(message.text()))

    async def count() -> int:
        return len(consumed)

    async with made_slave(tmp_path, namesrv, slaveReadEnable="true") as slave, consumer:
        await until_async(count, lambda found: found >= 3)
        async with await Peer.connect(slave.address) as peer:
            await until_async(lambda: offset(peer), lambda found: found == 3)
        async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as peer:
            await until_async(lambda: offset(peer), lambda found: found == 3)
            for number in (3, 4):
                assert (await send(peer, "orders", str(number).encode())).code == 0
            await until_async(count, lambda found: found >= 5)
            await until_async(lambda: offset(peer), lambda found: found == 5)
            assert consumed == ["0", "1", "2", "3", "4"]
            await consumer.close()


async def test_new_group_starts_at_the_slave_of_a_dead_master(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.offset_copy.SECONDS", 0.05)
    monkeypatch.setattr("rmqpy.client.push.engine.COMMIT_S", 0.2)
    consumed: list[str] = []
    config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.2)
    consumer = rmqpy.AsyncPushConsumer("billing", config, start_from="earliest")
    consumer.on("orders", "*", lambda message: consumed.append(message.text()))

    async def groups(peer: Peer) -> set[str]:
        return set((await peer.ask(GetAllSubscriptionGroupConfig())).body.subscription_group_table)

    async def topics(peer: Peer) -> set[str]:
        return set((await peer.ask(GetAllTopicConfig())).body.topic_config_table)

    async with made_slave(tmp_path, namesrv, slaveReadEnable="true") as slave:
        async with (
            made_broker(tmp_path, namesrv, {}) as master,
            await Peer.connect(master.address) as peer,
            await Peer.connect(slave.address) as at_slave,
        ):
            for number in range(3):
                assert (await send(peer, "orders", str(number).encode())).code == 0
            await until_async(lambda: log_end(at_slave), lambda end: end > 0)
            end = await log_end(peer)
            await until_async(lambda: log_end(at_slave), lambda found: found == end)
            await until_async(lambda: topics(at_slave), lambda found: "orders" in found)
        async with await Peer.connect(slave.address) as at_slave:
            # The slave has noticed that its master is gone.
            await until_async(lambda: pull(at_slave, "another", "orders"), lambda answer: answer.code != 26)
        async with consumer, await Peer.connect(slave.address) as at_slave:
            await until_async(lambda: len(consumed) >= 3)
            await until_async(lambda: offset(at_slave), lambda found: found == 3)
            assert "billing" in await groups(at_slave)
            async with (
                made_broker(tmp_path, namesrv, {}) as master,
                await Peer.connect(master.address) as peer,
            ):
                await until_async(lambda: offset(peer), lambda found: found == 3)
                assert "billing" in await groups(peer)
                await until_async(lambda: groups(at_slave), lambda found: "billing" in found)
                await consumer.close()
    assert sorted(consumed) == ["0", "1", "2"]


async def test_consumers_read_from_a_slave_while_its_master_is_down(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as peer:
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        for _ in range(3):
            assert (await send(peer, "orders")).code == 0
    # As if the slave had followed its master's log.
    shutil.copytree(tmp_path / "store", tmp_path / "slave")
    async with (
        made_slave(tmp_path, namesrv, slaveReadEnable="true") as slave,
        await Peer.connect(slave.address) as peer,
    ):
        found = await pull(peer, "billing", "orders")
        assert (found.code, (found.ext or {})["suggestWhichBrokerId"]) == (0, "0")
        assert (found.ext or {})["nextBeginOffset"] == "3"
        # Beyond its end the slave waits for its log, and corrects nobody.
        beyond = await pull(peer, "billing", "orders", 8)
        assert (beyond.code, (beyond.ext or {})["nextBeginOffset"]) == (19, "8")
        async with made_broker(tmp_path, namesrv, {}):
            back = await until_async(
                lambda: pull(peer, "billing", "orders", 3), lambda answer: answer.code == 20
            )
            assert (back.ext or {})["suggestWhichBrokerId"] == "0"


async def test_member_of_a_new_group_starts_before_the_slave_knows_it(tmp_path: Path, namesrv: str) -> None:
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as elsewhere,
        made_broker(
            tmp_path / "other", elsewhere.address, {"autoCreateSubscriptionGroup": "false"}
        ) as stranger,
        made_broker(tmp_path, namesrv, {}) as master,
        await Peer.connect(namesrv) as at_names,
        await Peer.connect(master.address) as peer,
    ):
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        slave = FakeBroker(
            at_names, broker_id=1, address=stranger.address, topics=fake_topics("orders", "other")
        )
        await slave.register()
        consumer = rmqpy.AsyncPushConsumer("billing", namesrv)
        consumer.on("orders", "*", lambda message: None)
        async with consumer:
            await consumer.close()
