"""Failed saves: no part of the change remains, and the request is answered with an error.

The temporary file of a save is a pipe here: a save waits until the test reads it, and fails when the reader closes it.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.talk import heartbeat, pull, route, route_once, send
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.groups import (
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndGetGroupForbidden,
)
from rmqpy.protocol.requests.kv import GetKv, PutKv
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, GetAllTopicConfig, UpdateAndCreateTopic
from waiting import until_async
from wire import TIMEOUT_S, Peer, Refusal

HALF = b'"\\ud800"'


def in_file(folder: Path, name: str) -> Any:
    return json.loads((folder / "config" / name).read_text())


@contextmanager
def broken(folder: Path, name: str) -> Iterator[None]:
    """No save of this file succeeds."""
    (folder / "config" / f"{name}.tmp").mkdir()
    yield
    (folder / "config" / f"{name}.tmp").rmdir()


@asynccontextmanager
async def held(folder: Path, name: str) -> AsyncIterator[None]:
    """The next save of this file waits until the end of the block, and then fails."""
    pipe = folder / "config" / f"{name}.tmp"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        reader = await asyncio.wait_for(asyncio.to_thread(os.open, pipe, os.O_RDONLY), TIMEOUT_S)
        os.close(reader)
        pipe.unlink()


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (200, {}, b'{"groupName":"evil","attributes":{"+lite.bind.topic":%s}}' % HALF),
        (200, {}, b"{groupName:'evil',attributes:{'+lite.bind.topic':'\\ud800'}}"),
        (200, {}, b'{"groupName":"evil","subscriptionDataSet":[{"topic":%s}]}' % HALF),
        (200, {}, b'{"groupName":"evil","groupRetryPolicy":{"type":%s}}' % HALF),
        (225, {}, b'{"groupConfigList":[{"groupName":"evil","groupRetryPolicy":{"type":%s}}]}' % HALF),
        (34, {}, b'{"clientID":%s,"consumerDataSet":[{"groupName":"evil"}]}' % HALF),
    ],
    ids=["attribute", "another dialect", "subscription", "policy", "list", "heartbeat"],
)
async def test_lone_surrogate_is_refused_and_groups_can_still_be_saved(
    cluster: Cluster, code: int, ext: dict[str, str], body: bytes
) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await peer.call(code, ext, body)
        assert answer.code == 1
        assert "lone surrogate" in (answer.remark or "")
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        groups = in_file(cluster.folder, "subscriptionGroup.json")["subscriptionGroupTable"]
        assert "billing" in groups
        assert "evil" not in groups


async def test_lone_surrogate_in_a_header_does_not_break_files(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        for code, fields in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, '"topic":"\\ud800","defaultTopic":"TBW102","perm":"6"'),
            (
                RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
                '"group":"\\ud800","topic":"\\udfff","readable":"false"',
            ),
            (RequestCode.UPDATE_CONSUMER_OFFSET, '"consumerGroup":"\\ud800","topic":"a","queueId":"0"'),
        ):
            header = (
                f'{{"code":{int(code)},"flag":0,"opaque":7,"version":1,"extFields":{{{fields}}}}}'.encode()
            )
            peer.writer.write((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            await peer.receive()
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
    assert "billing" in in_file(cluster.folder, "subscriptionGroup.json")["subscriptionGroupTable"]


async def test_topic_is_invisible_before_its_save_and_after_a_failed_one(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as admin,
        await Peer.connect(cluster.namesrv) as namesrv,
    ):
        async with held(cluster.folder, "topics.json"):
            creating = asyncio.create_task(peer.ask(UpdateAndCreateTopic(topic="orders")))
            # Anything that makes the broker register everything meanwhile.
            await admin.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
            await route_once(namesrv, "BenchmarkTest", perm=4)
            assert await route(namesrv, "orders") is None
            assert "orders" not in (await admin.ask(GetAllTopicConfig())).body.topic_config_table
            await admin.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
            await route_once(namesrv, "BenchmarkTest")
            assert await route(namesrv, "orders") is None
        with pytest.raises(Refusal, match=r"cannot write .*topics\.json"):
            await creating
        assert "orders" not in (await admin.ask(GetAllTopicConfig())).body.topic_config_table
        await admin.ask(UpdateAndCreateTopic(topic="refunds"))
        await route_once(namesrv, "refunds")
        assert await route(namesrv, "orders") is None
        assert "orders" not in in_file(cluster.folder, "topics.json")["topicConfigTable"]

        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await route_once(namesrv, "orders")


async def test_dependent_changes_are_reverted_with_a_failed_one(cluster: Cluster) -> None:
    changed = {"topic": "orders", "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=2))
        async with held(cluster.folder, "topics.json"):
            opaques = [
                await peer.send(
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    changed | {"readQueueNums": queues, "writeQueueNums": queues},
                )
                for queues in ("3", "4", "5")
            ]
            # Taken in order: the third has been when this is answered.
            await peer.call(RequestCode.GET_BROKER_CONFIG)
        answers = {frame.opaque: frame.code for frame in [await peer.receive() for _ in opaques]}
        assert answers == dict.fromkeys(opaques, 1)
        assert (await peer.ask(GetAllTopicConfig())).body.topic_config_table["orders"].write_queue_nums == 2
        await peer.ask(UpdateAndCreateTopic(topic="refunds"))
        assert in_file(cluster.folder, "topics.json")["topicConfigTable"]["orders"]["writeQueueNums"] == 2


async def test_topic_with_an_unsaved_removal_still_exists(start: Start) -> None:
    cluster = await start(autoCreateTopicEnable="false")
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as namesrv,
    ):
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await send(peer, "orders", b"kept")
        with broken(cluster.folder, "topics.json"), pytest.raises(Refusal, match="cannot write"):
            await peer.ask(DeleteTopicInBroker(topic="orders"))
        assert (await send(peer, "orders")).code == 0
        assert b"kept" in (await pull(peer, "billing", "orders")).body
        assert await route_once(namesrv, "orders")
        await peer.ask(DeleteTopicInBroker(topic="orders"))
        assert "orders" not in in_file(cluster.folder, "topics.json")["topicConfigTable"]


async def test_failed_save_restores_forbidden_topics_and_groups(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        forbid = UpdateAndGetGroupForbidden(group="billing", topic="orders", readable=False)
        with broken(cluster.folder, "subscriptionGroup.json"):
            with pytest.raises(Refusal, match="cannot write"):
                await peer.ask(forbid)
            assert (await pull(peer, "billing", "orders", sysFlag="0")).code == 0
            with pytest.raises(Refusal, match="cannot write"):
                await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="audit")))
            deletion = {"groupName": "billing", "removeOffset": "false"}
            assert (await peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, deletion)).code == 1
        found = await peer.ask(GetAllSubscriptionGroupConfig())
        assert "billing" in found.body.subscription_group_table
        assert "audit" not in found.body.subscription_group_table
        assert not found.body.forbidden_table
        assert not (await peer.ask(forbid)).readable
        assert (await pull(peer, "billing", "orders", sysFlag="0")).code == 16
        assert in_file(cluster.folder, "subscriptionGroup.json")["forbiddenTable"]


async def test_progress_of_delayed_delivery_is_saved_once_a_save_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "store"
    settings = {"flushDelayOffsetInterval": "100", "messageDelayLevel": "100ms 1s"}
    async with made_broker(tmp_path, "", settings) as broker, await Peer.connect(broker.address) as peer:
        with broken(folder, "delayOffset.json"):
            await send(peer, "orders", i="DELAY\x011\x02")
            await until_async(lambda: "delayOffset.json" in caplog.text)
        assert (await pull(peer, "billing", "orders")).code == 0, (
            "the save that failed is the one of its delivery"
        )
        await until_async((folder / "config/delayOffset.json").exists)
        assert in_file(folder, "delayOffset.json")["offsetTable"] == {"1": 1}


async def test_a_value_that_the_name_server_cannot_save_is_not_set(tmp_path: Path) -> None:
    config = NameServerConfig(listen_port=0, kv_path=str(tmp_path / "config/kv.json"), store_path="")
    (tmp_path / "config/kv.json.tmp").mkdir(parents=True)
    async with NameServer(config) as server, await Peer.connect(server.address) as peer:
        with pytest.raises(Refusal):
            await peer.ask(PutKv(namespace="n", key="k", value="v"))
        with pytest.raises(Refusal):
            await peer.ask(GetKv(namespace="n", key="k"))
