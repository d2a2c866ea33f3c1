"""Administration of topics and groups of a running broker."""

import json
from pathlib import Path

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.talk import route, route_once, send
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import json_tree, read_json
from rmqpy.protocol.requests.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndGetGroupForbidden,
)
from rmqpy.protocol.requests.offsets import (
    GetMaxOffset,
)
from rmqpy.protocol.requests.topics import (
    CleanUnusedTopic,
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    UpdateAndCreateTopic,
)
from rmqpy.protocol.topics import TopicTable
from wire import Peer, Refusal

# ---- topics ----


async def test_send_to_an_unknown_topic_creates_and_registers_it(
    cluster: Cluster,
) -> None:
    """P1: a confirmed creation includes the topic."""
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        assert (await send(peer, "orders")).code == 0
        stored = json.loads((cluster.folder / "config/topics.json").read_text())
        assert stored["topicConfigTable"]["orders"]["writeQueueNums"] == 4
        found = await route_once(names, "orders")
        assert [(queue.read_queue_nums, queue.perm) for queue in found.queue_datas] == [(4, 6)]
        assert [data.broker_addrs for data in found.broker_datas] == [{0: cluster.broker.address}]


async def test_without_auto_creation_an_unknown_topic_is_refused(start: Start) -> None:
    cluster = await start(autoCreateTopicEnable="false")
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        assert (await send(peer, "orders")).code == 17
        assert await route(names, "TBW102") is None


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn-hangzhou"])
async def test_the_first_trace_makes_its_topic_as_any_send_does(start: Start, topic: str) -> None:
    """Java, Spring and Go do not notice: a trace is sent once, and its failure is not reported."""
    cluster = await start()
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        assert await route(names, topic) is None
        answer = await send(peer, topic, b"Pub\x011\x02")
        assert answer.code == 0, answer.remark
        [queues] = (await route_once(names, topic)).queue_datas
        assert (queues.write_queue_nums, queues.perm) == (4, 6)
        stored = json.loads((cluster.folder / "config/topics.json").read_text())
        assert stored["topicConfigTable"][topic]["writeQueueNums"] == 4


async def test_other_system_names_create_no_topic(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        for topic in ("CHECKPOINT_TOPIC", "rmq_sys_anything"):
            assert (await send(peer, topic)).code == 17


async def test_trace_topic_can_be_configured_without_auto_creation(start: Start) -> None:
    cluster = await start(autoCreateTopicEnable="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "RMQ_SYS_TRACE_TOPIC")).code == 17
    cluster = await start(
        autoCreateTopicEnable="false", traceTopicEnable="true", storePathRootDir=f"{cluster.folder}-2"
    )
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "RMQ_SYS_TRACE_TOPIC")).code == 0


async def test_a_topic_is_created_changed_listed_and_deleted(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        create = UpdateAndCreateTopic(
            topic="orders", read_queue_nums=3, write_queue_nums=2, attributes="+message.type=FIFO"
        )
        await peer.ask(create)
        found = await route_once(names, "orders")
        assert [(one.read_queue_nums, one.write_queue_nums) for one in found.queue_datas] == [(3, 2)]
        config = await peer.ask(GetTopicConfig(topic="orders"))
        assert config.attributes == {"message.type": "FIFO"}
        listed = await peer.ask(GetAllTopicConfig())
        assert listed.total_topic_num == len(listed.body.topic_config_table)
        assert "orders" in listed.body.topic_config_table
        await send(peer, "orders")
        await peer.ask(DeleteTopicInBroker(topic="orders"))
        assert (await peer.call(351, {"topic": "orders"})).code == 17
        assert (await peer.ask(GetMaxOffset(topic="orders", queue_id=0))).offset == 0
        await peer.ask(DeleteTopicInBroker(topic="orders"))


async def test_queues_of_topics_that_are_not_configured_are_cleaned_away(
    start: Start, tmp_path: Path
) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        for topic in ("orders", "stays"):
            await peer.ask(UpdateAndCreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1))
            await send(peer, topic)
    await cluster.broker.stop()
    file = cluster.folder / "config" / "topics.json"
    table = read_json(TopicTable, file.read_text())
    del table.topic_config_table["orders"]
    file.write_text(fastjson.dumps(json_tree(table)))
    async with (
        made_broker(tmp_path, cluster.namesrv, {}) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        left = GetMaxOffset(topic="orders", queue_id=0)
        assert (await peer.ask(left)).offset == 1
        await peer.ask(CleanUnusedTopic())
        assert (await peer.ask(left)).offset == 0
        assert (await peer.ask(GetMaxOffset(topic="stays", queue_id=0))).offset == 1


@pytest.mark.parametrize(
    "change",
    [
        {"topic": ""},
        {"topic": "../escape"},
        {"topic": "x" * 128},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "rmq_sys_anything"},
        {"topic": "c1"},
        {"perm": "8"},
        {"perm": "-1"},
        {"readQueueNums": "-1"},
        {"writeQueueNums": "1000000"},
        {"topicFilterType": "ODD"},
        {"attributes": "+message.type=MIXED"},
    ],
)
async def test_invalid_topic_is_refused(cluster: Cluster, change: dict[str, str]) -> None:
    ext = {
        "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await peer.call(17, ext | change)).code == 29


async def test_long_lists_come_in_pages(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        whole = await peer.ask(GetAllTopicConfig())
        version = json.dumps(
            {
                "counter": whole.body.data_version.counter,
                "stateVersion": 0,
                "timestamp": whole.body.data_version.timestamp,
            }
        )
        seen: list[str] = []
        while len(seen) < len(whole.body.topic_config_table):
            ask = GetAllTopicConfig(topic_seq=len(seen), max_topic_num=5, data_version=version)
            page = (await peer.ask(ask)).body.topic_config_table
            assert 0 < len(page) <= 5
            seen += page
        assert sorted(seen) == sorted(whole.body.topic_config_table)
        stale = GetAllTopicConfig(topic_seq=5, max_topic_num=5, data_version="{}")
        assert list((await peer.ask(stale)).body.topic_config_table) == seen[:5]


async def test_system_topics_are_named(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        names = (await peer.ask(GetSystemTopicListFromBroker())).topic_list
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "c1", "broker-a", "c1_REPLY_TOPIC"} <= set(names)


async def test_topics_of_a_group_are_made_for_the_group_whatever_the_template(cluster: Cluster) -> None:
    """A client's retry carries its own template and counts; the group's configuration decides."""
    async with await Peer.connect(cluster.broker.address) as peer:
        group = SubscriptionGroup(group_name="billing", retry_queue_nums=2)
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=group))
        assert (await send(peer, "%RETRY%billing")).code == 0
        assert (await peer.ask(GetTopicConfig(topic="%RETRY%billing"))).write_queue_nums == 2
        assert (await send(peer, "%RETRY%billing", j="17")).code == 0
        assert (await peer.ask(GetTopicConfig(topic="%DLQ%billing"))).write_queue_nums == 1


# ---- groups ----


async def test_a_group_is_created_forbidden_listed_and_deleted(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(
            UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing", retry_max_times=3))
        )
        asked = UpdateAndGetGroupForbidden(group="billing", topic="orders", readable=False)
        assert not (await peer.ask(asked)).readable
        table = (await peer.ask(GetAllSubscriptionGroupConfig())).body
        assert table.subscription_group_table["billing"].retry_max_times == 3
        assert table.forbidden_table == {"billing": {"orders": 4}}
        await peer.ask(DeleteSubscriptionGroup(group_name="billing", clean_offset=True))
        table = (await peer.ask(GetAllSubscriptionGroupConfig())).body
        assert "billing" not in table.subscription_group_table
        assert table.forbidden_table == {}
        with pytest.raises(Refusal) as refused:
            await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="bad name")))
        assert refused.value.code == 29


async def test_forbidden_topics_need_an_existing_group_and_are_bounded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.groups.table.FORBIDDEN_TOPICS_MAX", 2)

    async def forbid(group: str, topic: str) -> int:
        ask = {"group": group, "topic": topic, "readable": "false"}
        return (await peer.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ask)).code

    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        asked = [("nobody", "orders"), ("billing", "no name"), *(("billing", f"t{n}") for n in range(3))]
        assert [await forbid(*each) for each in asked] == [26, 29, 0, 0, 29]
