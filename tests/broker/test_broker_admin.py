"""Administration of a running broker: its codes, its runtime information, its settings, and its restart."""

from pathlib import Path
from typing import Any

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.talk import heartbeat, pull, route, route_once, send
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.control.startup.handlers import HOT_CODES
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.brokers import GetBrokerConfig, GetBrokerRuntimeInfo, UpdateBrokerConfig
from rmqpy.protocol.requests.offsets import (
    GetConsumeStats,
    GetEarliestMsgStoreTime,
    GetTopicStatsInfo,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.progress import GetBrokerConsumeStats
from rmqpy.protocol.requests.topics import (
    GetTopicConfig,
)
from rmqpy.protocol.unserved import UNSERVED_BY_BROKER
from wire import Peer


async def test_every_code_is_served_or_listed_as_not_served(cluster: Cluster) -> None:
    table = cluster.broker.table()
    missing = {int(code) for code, what in table.items() if what == "not served"}
    assert missing == UNSERVED_BY_BROKER.keys()
    assert {code for code, what in table.items() if what == "native"} == HOT_CODES
    async with await Peer.connect(cluster.broker.address) as peer:
        for code in sorted(missing):
            answer = await peer.call(code, {})
            assert answer.code == 3
            assert answer.remark is not None
            assert RequestCode(code).name in answer.remark
            assert UNSERVED_BY_BROKER[RequestCode(code)] in answer.remark


#: The keys that brokerStatus, clusterList, the dashboard and the exporter read.
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


async def test_runtime_information_is_complete_and_as_tools_parse_them(cluster: Cluster) -> None:
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
    times = dict(each.rsplit(":", 1) for each in table["putMessageDistributeTime"].split())
    assert len(times) == 13
    assert sum(map(int, times.values())) == 1
    assert 0 < float(table["putLatency99"]) <= float(table["putLatency999"])
    assert int(table["putMessageEntireTimeMax"]) >= 0


async def test_runtime_information_has_the_oldest_message_and_used_delay_levels(
    cluster: Cluster,
) -> None:
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


async def test_rates_of_a_topic_and_of_a_group_in_it_are_among_their_statistics(cluster: Cluster) -> None:
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
        assert (await peer.ask(GetConsumeStats(consumer_group="absent"))).consume_tps == 0
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
        for refused in ("brokerPermission=9", "storePathRootDir=/tmp", "listenPort=1"):
            assert (await peer.call(25, {}, refused.encode())).code == 29
        assert (await peer.call(25, {}, b"rocketmqHome=/")).code == 16


async def test_keys_of_the_block_list_are_not_changed_online(start: Start) -> None:
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


async def test_folder_in_use_is_refused_and_unchanged(tmp_path: Path) -> None:
    async with made_broker(tmp_path, "", {}) as broker:
        with pytest.raises(StoreError):
            async with made_broker(tmp_path, "", {}):
                pass
        async with await Peer.connect(broker.address) as peer:
            assert (await send(peer, "orders")).code == 0


async def test_stop_unregisters_the_broker(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.namesrv) as names:
        await route_once(names, "BenchmarkTest")
        await cluster.broker.stop()
        assert await route(names, "BenchmarkTest") is None
