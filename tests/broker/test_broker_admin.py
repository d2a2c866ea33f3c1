"""Administration of a running broker, and what of it outlives a restart."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.talk import heartbeat, pull, route, route_once, send
from rmqpy.broker import HOT_CODES, Broker
from rmqpy.config import broker as broker_config
from rmqpy.control.unserved import UNSERVED
from rmqpy.errors import StoreError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import json_tree, read_json
from rmqpy.protocol.requests.brokers import GetBrokerConfig, GetBrokerRuntimeInfo, UpdateBrokerConfig
from rmqpy.protocol.requests.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndGetGroupForbidden,
)
from rmqpy.protocol.requests.messages import QueryMessage, ViewMessageById
from rmqpy.protocol.requests.offsets import (
    GetConsumeStats,
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    GetTopicStatsInfo,
    InvokeBrokerToResetOffset,
    QueryConsumerOffset,
    QueryTopicConsumeByWho,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.progress import GetBrokerConsumeStats
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


async def test_every_code_is_served_or_listed_as_not_served(cluster: Cluster) -> None:
    table = cluster.broker.table()
    missing = {int(code) for code, what in table.items() if what == "not served"}
    assert missing == UNSERVED.keys()
    assert {code for code, what in table.items() if what == "native"} == HOT_CODES
    async with await Peer.connect(cluster.broker.address) as peer:
        for code in sorted(missing):
            answer = await peer.call(code, {})
            assert answer.code == 3
            assert answer.remark is not None
            assert RequestCode(code).name in answer.remark
            assert UNSERVED[RequestCode(code)] in answer.remark


# ---- topics ----


async def test_a_send_to_an_unknown_topic_creates_it_durably_and_tells_the_name_server(
    cluster: Cluster,
) -> None:
    """P1: what the answer promises includes the topic."""
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
async def test_a_topic_that_cannot_be_is_refused(cluster: Cluster, change: dict[str, str]) -> None:
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


# ---- offsets ----


async def test_limits_and_times_of_a_queue(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        queue: dict[str, Any] = {"topic": "orders", "queue_id": 0}
        assert (await peer.ask(GetEarliestMsgStoreTime(**queue))).timestamp == -1
        for _ in range(3):
            await send(peer, "orders")
        assert (await peer.ask(GetMinOffset(**queue))).offset == 0
        assert (await peer.ask(GetMaxOffset(**queue))).offset == 3
        first = (await peer.ask(GetEarliestMsgStoreTime(**queue))).timestamp
        assert first > 1_700_000_000_000
        assert (await peer.ask(SearchOffsetByTimestamp(**queue, timestamp=first))).offset == 0
        assert (await peer.ask(SearchOffsetByTimestamp(**queue, timestamp=first + 3_600_000))).offset == 3
        assert (await peer.call(30, {"topic": "orders", "queueId": "-1"})).code == 29


async def test_tables_keyed_by_queue_are_written_as_fastjson_writes_them(cluster: Cluster) -> None:
    """T34, and T23: Go cuts this text by hand."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1))
        stats = await peer.call(202, {"topic": "orders"})
        assert stats.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
        )
        await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        ask = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=1)
        await peer.ask(ask)
        progress = await peer.call(208, {"consumerGroup": "billing"})
        assert progress.body.startswith(
            b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
            b'{"brokerOffset":1,"consumerOffset":1,"lastTimestamp":1'
        )
        assert (await peer.call(202, {"topic": "missing"})).code == 17
        who = (await peer.ask(QueryTopicConsumeByWho(topic="orders"))).group_list
        assert who == ["billing"]


async def test_a_reset_moves_the_next_pull_and_survives_stale_commits(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        for _ in range(3):
            await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        where: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=3))
        reset = InvokeBrokerToResetOffset(group="billing", topic="orders", timestamp=-1, queue_id=0, offset=1)
        assert list((await peer.ask(reset)).offset_table.values()) == [1]
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=3))
        moved = await pull(peer, "billing", "orders", 3)
        assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (21, "1")
        assert (await peer.ask(QueryConsumerOffset(**where))).offset == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "missing"}, 17),
        ({"group": "missing"}, 26),
        ({"queueId": "0", "offset": "99"}, 1),
    ],
)
async def test_a_reset_that_cannot_be_is_refused(cluster: Cluster, change: dict[str, str], code: int) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        ext = {"group": "TOOLS_CONSUMER", "topic": "orders", "timestamp": "-1", "isForce": "true"}
        assert (await peer.call(222, ext | change)).code == code


# ---- messages ----


async def test_messages_are_found_by_position_and_by_key(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        sent = await send(peer, "orders", b"first")
        position = int((sent.ext or {})["msgId"][-16:], 16)
        record = (await peer.ask(ViewMessageById(offset=position))).body
        assert b"first" in record
        ask = QueryMessage(topic="orders", key="k1", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
        assert (await peer.ask(ask)).body == record
        ext = {"topic": "orders", "key": "none", "maxNum": "32", "beginTimestamp": "0"}
        assert (await peer.call(12, ext | {"endTimestamp": str(1 << 62)})).code == 22
        for offset in (1 << 40, -1, position + 1):
            assert (await peer.call(33, {"offset": str(offset)})).code == 1


# ---- the broker itself ----

#: What brokerStatus, clusterList, the dashboard and the exporter read.
RUNTIME_KEYS = [
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "getTransferedTps",
    "putLatency99",
    "putLatency999",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "brokerActive",
    "brokerVersionDesc",
    "brokerVersion",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToCommit",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
]


async def test_runtime_figures_are_complete_and_as_tools_parse_them(cluster: Cluster) -> None:
    """T35."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        table = (await peer.ask(GetBrokerRuntimeInfo())).table
    assert [key for key in RUNTIME_KEYS if key not in table] == []
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert table["msgPutTotalTodayNow"] == "1"
    assert len([float(rate) for rate in table["putTps"].split()]) == 3
    _, _, total, unit, _, _, _, free, _ = table["commitLogDirCapacity"].replace(",", " ,").split()
    assert float(total) >= float(free) or unit != "B"
    number, unit = table["remainHowManyDataToFlush"].split()
    assert number.isdigit()
    assert unit == "B"
    assert len(table["putMessageDistributeTime"].split()) == 13


async def test_runtime_figures_tell_the_oldest_message_and_every_delay_level_in_use(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        empty = (await peer.ask(GetBrokerRuntimeInfo())).table
        assert empty["earliestMessageTimeStamp"] == "-1"
        assert not any(key.startswith("scheduleMessageOffset") for key in empty)
        await send(peer, "orders")
        await send(peer, "orders", i="DELAY\x0118\x02")
        stored = await peer.ask(GetEarliestMsgStoreTime(topic="orders", queue_id=0))
        table = (await peer.ask(GetBrokerRuntimeInfo())).table
        assert table["earliestMessageTimeStamp"] == str(stored.timestamp)
        delays = {key: text for key, text in table.items() if key.startswith("scheduleMessageOffset")}
        assert delays == {"scheduleMessageOffset_18": "0,1"}


async def test_rates_of_a_topic_and_of_a_group_in_it_are_among_their_figures(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        for _ in range(3):
            await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        await pull(peer, "billing", "orders")
        where = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=3))
        assert (await peer.ask(GetTopicStatsInfo(topic="orders"))).topic_put_tps > 0
        assert (await peer.ask(GetTopicStatsInfo(topic="BenchmarkTest"))).topic_put_tps == 0
        assert (await peer.ask(GetConsumeStats(consumer_group="billing"))).consume_tps > 0
        assert (await peer.ask(GetConsumeStats(consumer_group="nobody"))).consume_tps == 0
        [billing] = (await peer.ask(GetBrokerConsumeStats())).consume_stats_list
        assert [stats.consume_tps > 0 for stats in billing["billing"]] == [True]


async def test_settings_are_read_and_the_listed_ones_changed(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        await send(peer, "orders")
        await route_once(names, "orders")
        await peer.ask(UpdateBrokerConfig(body="brokerPermission=4\n"))
        lines = (await peer.ask(GetBrokerConfig())).body.splitlines()
        assert "brokerPermission=4" in lines
        assert "brokerName=broker-a" in lines
        await route_once(names, "orders", perm=4)
        for refused in ("brokerPermission=9", "storePathRootDir=/tmp", "rocketmqHome=/", "listenPort=1"):
            assert (await peer.call(25, {}, refused.encode())).code == 16


async def test_keys_of_the_block_list_are_changed_by_nobody_online(start: Start) -> None:
    cluster = await start(configBlackList="configBlackList; fileReservedTime")
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateBrokerConfig(body="deleteWhen=05\n"))
        for refused in ("fileReservedTime=1", "configBlackList=", "deleteWhen=06\nfileReservedTime=1"):
            answer = await peer.call(25, {}, refused.encode())
            assert answer.code == 16
            assert "black list" in (answer.remark or "")
        lines = (await peer.ask(GetBrokerConfig())).body.splitlines()
        assert {"deleteWhen=05", "fileReservedTime=72"} <= set(lines)


async def test_changed_settings_are_written_into_the_file(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# ours\nbrokerName=broker-b\nlistenPort=0\n" + f"storePathRootDir={tmp_path}/b\nmaxIndexNum=1000\n"
    )
    started = Broker(broker_config.load(path).config, path=path)
    async with started as broker, await Peer.connect(broker.address) as peer:
        await peer.ask(UpdateBrokerConfig(body="splitMetadataSize=7\n"))
    assert path.read_text().splitlines()[0] == "# ours"
    assert broker_config.load(path).config.metadata_page == 7


async def test_topics_groups_offsets_and_messages_survive_a_restart(tmp_path: Path) -> None:
    where: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await send(peer, "orders", b"kept")
        await peer.ask(heartbeat("one", "orders"))
        await peer.ask(UpdateConsumerOffset(**where, commit_offset=1))
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        assert (await peer.ask(GetTopicConfig(topic="orders"))).write_queue_nums == 4
        assert (await peer.ask(QueryConsumerOffset(**where))).offset == 1
        assert b"kept" in (await pull(peer, "billing", "orders")).body


async def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with made_broker(tmp_path, "", {}) as broker:
        with pytest.raises(StoreError):
            async with made_broker(tmp_path, "", {}):
                pass
        async with await Peer.connect(broker.address) as peer:
            assert (await send(peer, "orders")).code == 0


async def test_a_stop_takes_the_broker_off_its_name_server(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.namesrv) as names:
        await route_once(names, "BenchmarkTest")
        await cluster.broker.stop()
        assert await route(names, "BenchmarkTest") is None
