"""A slave of a running master: its copies, and its refusals."""

import asyncio
import json
import time
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import Cluster, made_broker
from broker.replicas import commit, log_end, made_promoted, made_slave, offset, pair, topics
from broker.talk import beat, heartbeat, pull, send
from rmqpy.admin.replicas import ReplicaState
from rmqpy.errors import ConfigError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.groups import (
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.replicas import (
    GetAllDelayOffset,
    GetBrokerHaStatus,
    GetTimerCheckPoint,
    HaStatus,
)
from rmqpy.protocol.requests.routes import GetClusterInfo, GetRoute
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, GetAllTopicConfig, UpdateAndCreateTopic
from rmqpy.protocol.topics import DataVersion
from waiting import until_async
from wire import TIMEOUT_S, Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


async def test_slave_registers_and_unregisters_independently_of_its_master(
    tmp_path: Path, namesrv: str
) -> None:
    async with await Peer.connect(namesrv) as peer, made_broker(tmp_path, namesrv, {}) as master:
        async with made_slave(tmp_path, namesrv) as slave:
            group = (await peer.ask(GetClusterInfo())).broker_addr_table["broker-a"]
            assert group.broker_addrs == {0: master.address, 1: slave.address}
        group = await until_async(
            lambda: peer.ask(GetClusterInfo()),
            lambda info: len(info.broker_addr_table["broker-a"].broker_addrs) == 1,
        )
        assert group.broker_addr_table["broker-a"].broker_addrs == {0: master.address}


async def test_two_slaves_of_one_id_do_not_both_start(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv):
        second = made_slave(tmp_path / "second", namesrv)
        with pytest.raises(ConfigError, match="brokerId"):
            await second.start()
        await second.stop()
        async with made_slave(tmp_path / "third", namesrv, brokerId="2"):
            pass


async def test_slave_started_first_finds_its_master(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_slave(tmp_path, namesrv) as slave,
        await Peer.connect(slave.address) as peer,
        made_broker(tmp_path, namesrv, {}) as master,
        await Peer.connect(master.address) as at_master,
    ):
        await at_master.ask(UpdateAndCreateTopic(topic="orders"))
        await until_async(lambda: topics(peer), lambda names: "orders" in names)


async def test_topics_and_groups_of_the_master_are_copied_immediately(tmp_path: Path, namesrv: str) -> None:
    async with (
        pair(tmp_path, namesrv) as (master, slave),
        await Peer.connect(master.address) as at_master,
        await Peer.connect(slave.address) as at_slave,
    ):
        await at_master.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=3, write_queue_nums=3))
        await at_master.ask(
            UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing", retry_max_times=3))
        )
        table = (
            await until_async(
                lambda: at_slave.ask(GetAllTopicConfig()),
                lambda told: "orders" in told.body.topic_config_table,
            )
        ).body
        assert table == (await at_master.ask(GetAllTopicConfig())).body
        groups = await until_async(
            lambda: at_slave.ask(GetAllSubscriptionGroupConfig()),
            lambda told: "billing" in told.body.subscription_group_table,
        )
        assert groups.body.subscription_group_table["billing"].retry_max_times == 3
        await at_master.ask(DeleteTopicInBroker(topic="orders"))
        await until_async(lambda: topics(at_slave), lambda names: "orders" not in names)
    saved = json.loads((tmp_path / "slave" / "config" / "topics.json").read_text())
    assert "orders" not in saved["topicConfigTable"]
    assert "TBW102" in saved["topicConfigTable"]


async def test_slave_refuses_messages_and_changes_and_names_its_master(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), await Peer.connect(slave.address) as peer:
        async with await Peer.connect(master.address) as at_master:
            await at_master.ask(UpdateAndCreateTopic(topic="orders"))
        await until_async(lambda: topics(peer), lambda names: "orders" in names)
        for topic in ("orders", "unknown"):
            answer = await send(peer, topic)
            assert (answer.code, "[REJECTREQUEST]" in str(answer.remark)) == (2, True)
        returned = await peer.call(
            RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "billing", "delayLevel": "0"}
        )
        assert returned.code == 2
        ended = await peer.call(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": "p",
                "tranStateTableOffset": "0",
                "commitLogOffset": "0",
                "commitOrRollback": "8",
            },
        )
        assert ended.code == 11
        changed = await peer.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "more", "defaultTopic": "TBW102"}
        )
        assert changed.code == 1
        assert f"is a slave, which takes no changes; ask its master at {master.address}" in str(
            changed.remark
        )
        reset = await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {})
        assert reset.code == 1
        pulled = await pull(peer, "billing", "orders")
        assert (pulled.code, "slaveReadEnable" in str(pulled.remark)) == (2, True)


async def test_clients_of_a_slave_create_no_topics_or_groups(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        pair(tmp_path, namesrv, slaveReadEnable="true") as (master, slave),
        await Peer.connect(slave.address) as peer,
        await Peer.connect(master.address) as at_master,
    ):
        await at_master.ask(UpdateAndCreateTopic(topic="orders"))
        await until_async(lambda: topics(peer), lambda names: "orders" in names)
        assert (await beat(peer, heartbeat("c1", "orders", group="new"))).code == 0
        for _ in range(3):
            assert (await pull(peer, "new", "orders")).code == 26
        # A Java consumer asks again and again, and says nothing.
        [line] = [
            each.getMessage() for each in caplog.records if "group new does not exist" in each.getMessage()
        ]
        assert "rmqpy group create new" in line
        assert await topics(peer) == await topics(at_master)
        groups = (await peer.ask(GetAllSubscriptionGroupConfig())).body.subscription_group_table
        assert "new" not in groups


async def test_offsets_are_copied_to_the_slave_and_its_commits_return(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.offset_copy.SECONDS", 0.05)
    async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
        async with (
            made_broker(tmp_path, namesrv, {}) as master,
            await Peer.connect(master.address) as at_master,
        ):
            await at_master.ask(UpdateAndCreateTopic(topic="orders"))
            await at_master.ask(
                UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing"))
            )
            for _ in range(10):
                assert (await send(at_master, "orders")).code == 0
            await at_master.ask(commit(5))
            await until_async(lambda: offset(at_slave), lambda found: found == 5)
        # The master is away, and the group goes on at the slave.
        await at_slave.ask(commit(9))
        async with (
            made_broker(tmp_path, namesrv, {}) as master,
            await Peer.connect(master.address) as at_master,
        ):
            await until_async(lambda: offset(at_master), lambda found: found == 9)
            # Back is back: where an operator resets the group afterwards, the slave follows.
            await at_master.ask(commit(2))
            await until_async(lambda: offset(at_slave), lambda found: found == 2)
            assert await offset(at_master) == 2


async def test_change_is_confirmed_once_waiting_slaves_have_it(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as slave,
        await Peer.connect(cluster.broker.address) as peer,
    ):

        def waiting(version: DataVersion) -> GetAllTopicConfig:
            text = fastjson.dumps(json_tree(version))
            return GetAllTopicConfig(topic_seq=0, max_topic_num=0, data_version=text, wait_millis=20_000)

        known = (await slave.ask(GetAllTopicConfig())).body.data_version
        first = asyncio.create_task(slave.ask(waiting(known)))
        created = asyncio.create_task(peer.ask(UpdateAndCreateTopic(topic="orders")))
        changed = (await first).body.data_version
        assert changed != known
        assert not created.done()
        last = asyncio.create_task(slave.ask(waiting(changed)))
        await created
        assert not last.done()
        last.cancel()


async def test_hanging_slave_delays_only_one_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.tables.readers.REACH_SECONDS", 0.2)
    async with (
        await Peer.connect(cluster.broker.address) as slave,
        await Peer.connect(cluster.broker.address) as peer,
    ):
        text = fastjson.dumps(json_tree((await slave.ask(GetAllTopicConfig())).body.data_version))
        await slave.ask(GetAllTopicConfig(topic_seq=0, max_topic_num=0, data_version=text, wait_millis=1))
        began = time.monotonic()
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        assert time.monotonic() - began >= 0.2
        monkeypatch.setattr("rmqpy.control.tables.readers.REACH_SECONDS", 2 * TIMEOUT_S)
        await peer.ask(UpdateAndCreateTopic(topic="more"))


async def test_slave_has_its_masters_log_byte_by_byte_and_can_lead_from_it(
    tmp_path: Path, namesrv: str
) -> None:
    """Messages, delayed ones among them, are sent while the slave copies; then its folder becomes a master's."""

    async def status(peer: Peer) -> HaStatus:
        return await peer.ask(GetBrokerHaStatus())

    async with (
        made_broker(tmp_path, namesrv, {}) as master,
        await Peer.connect(master.address) as at_master,
        made_slave(tmp_path, namesrv, slaveReadEnable="true") as slave,
        await Peer.connect(slave.address) as at_slave,
    ):
        for number in range(20):
            assert (await send(at_master, "orders", str(number).encode())).code == 0
        # Delivered after the test, since the delivery makes the log longer.
        delay = "DELAY\x015\x02UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02"
        assert (await send(at_master, "orders", b"delayed", i=delay)).code == 0
        end = await log_end(at_master)
        await until_async(lambda: log_end(at_slave), lambda found: found >= end)
        seen = await until_async(lambda: status(at_master), lambda seen: seen.in_sync_slave_nums == 1)
        [connection] = seen.ha_connection_info
        assert (seen.master, connection.in_sync) == (True, True)
        own = (await status(at_slave)).ha_client_runtime_info
        assert own.is_connected
        assert own.master_addr is not None
        async with rmqpy.AsyncAdmin(namesrv) as admin:
            first, second = await admin.replicas("broker-a")
            checks = {check.check: check.level for check in await admin.health()}
        assert (first.is_master, first.slaves, first.log_end) == (True, 1, end)
        assert (second.broker_id, second.address) == (1, slave.address)
        assert (second.in_sync, second.behind_bytes, second.fault) == (True, 0, None)
        assert second.silent_seconds is not None
        assert checks["slave 1 of broker-a"] == "ok"
        assert own.last_read_timestamp > 0
    ours, theirs = (
        b"".join(path.read_bytes() for path in sorted((tmp_path / folder / "commitlog").iterdir()))
        for folder in ("slave", "store")
    )
    assert ours[:end] == theirs[:end]
    async with made_promoted(tmp_path, namesrv) as promoted, await Peer.connect(promoted.address) as peer:
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        first = await pull(peer, "billing", "orders")
        assert (first.code, (first.ext or {})["maxOffset"]) == (0, "20")
        assert (await send(peer, "orders", b"after")).code == 0


async def test_slave_that_cannot_reach_the_log_port_is_reported(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.progress_copy.SECONDS", 0.02)
    async with (
        made_broker(tmp_path, namesrv, {}) as master,
        await Peer.connect(master.address) as at_master,
        made_slave(tmp_path, namesrv, haMasterAddress="127.0.0.1:1"),
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        assert (await send(at_master, "orders")).code == 0

        async def state() -> ReplicaState:
            return (await admin.replicas("broker-a"))[1]

        found = await until_async(
            state, lambda state: bool(state.behind_bytes and state.behind_seconds and state.fault)
        )
        assert (found.in_sync, "refused" in str(found.fault)) == (False, True)
        bad = {check.check for check in await admin.health() if check.level == "bad"}
        assert "slave 1 of broker-a" in bad


async def test_offsets_are_sent_in_the_form_apaches_slaves_read(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        await peer.ask(commit(7))
        answer = await peer.call(RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        # Quoted queue ids, and no other member: Apache's slaves take nothing else.
        told = json.loads(answer.body)
        assert told.keys() == {"dataVersion", "offsetTable"}
        assert told["offsetTable"]["orders@billing"] == {"0": 7}
        assert len(await peer.ask(GetTimerCheckPoint())) == 56
        assert (await peer.ask(GetAllDelayOffset())).offset_table == {}
        for code in (RequestCode.GET_TIMER_METRICS, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE):
            assert (await peer.call(code, {})).code == 0


async def test_progress_of_delays_waits_for_the_log(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.progress_copy.SECONDS", 0.02)

    async def delayed(peer: Peer) -> int:
        return (await peer.ask(GetAllDelayOffset())).offset_table.get(1, 0)

    delay = "DELAY\x011\x02UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02"
    # A port that nobody listens on: the log does not follow.
    settings = {"messageDelayLevel": "1s"}
    async with (
        made_broker(tmp_path, namesrv, settings) as master,
        await Peer.connect(master.address) as at_master,
    ):
        assert (await send(at_master, "orders", i=delay)).code == 0
        await until_async(lambda: delayed(at_master), lambda found: found == 1)
        # The log does not follow: nobody is there.
        aside = made_slave(tmp_path, namesrv, haMasterAddress="127.0.0.1:1")
        async with aside, await Peer.connect(aside.address) as at_slave:
            await until_async(lambda: topics(at_slave), lambda names: "orders" in names)
            # The message that was delivered is not in this log.
            assert await delayed(at_slave) == 0
        async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
            await until_async(lambda: delayed(at_slave), lambda found: found == 1)
    assert json.loads((tmp_path / "slave" / "config" / "delayOffset.json").read_text())["offsetTable"] == {
        "1": 1
    }


async def test_routes_remain_while_a_slave_lives(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(namesrv) as peer:
        async with (
            made_broker(tmp_path, namesrv, {}) as master,
            await Peer.connect(master.address) as at_master,
        ):
            await at_master.ask(UpdateAndCreateTopic(topic="orders"))
            async with await Peer.connect(slave.address) as at_slave:
                await until_async(lambda: topics(at_slave), lambda names: "orders" in names)
        route = (await peer.ask(GetRoute(topic="orders"))).body
        assert route.broker_datas[0].broker_addrs == {1: slave.address}
