"""Promotion: the slave leads with its master's log, the old master stops, and diverged logs are reported."""

import asyncio
import json
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_promoted, made_slave, pair
from broker.talk import send
from rmqpy._native import StoppedStore
from rmqpy.admin.replicas import ReplicaState
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.leadership import EpochCache, GetBrokerEpochCache, NotifyBrokerRoleChanged
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from waiting import anything, until_async
from wire import Peer, Refusal

pytestmark = pytest.mark.usefixtures("tries_soon")


async def epochs(address: str) -> EpochCache | None:
    try:
        async with await Peer.connect(address) as peer:
            return (await peer.ask(GetBrokerEpochCache())).body
    except (OSError, EOFError):
        return None


async def status(address: str) -> HaStatus:
    """Of a broker that may be about to start again."""

    async def ask() -> HaStatus:
        async with await Peer.connect(address) as peer:
            return await peer.ask(GetBrokerHaStatus())

    return await until_async(ask, wanted=anything, failing=(OSError, EOFError, Refusal))


async def fill(address: str, bodies: int, body: bytes = b"hello") -> None:
    async with await Peer.connect(address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        for _ in range(bodies):
            assert (await send(peer, "orders", body)).code == 0


async def follows(slave: str, end: int) -> None:
    """The slave has the log up to there, and is connected."""
    await until_async(
        lambda: status(slave),
        lambda told: bool(
            told.ha_client_runtime_info.is_connected and told.ha_client_runtime_info.max_offset == end
        ),
    )


async def filled(master: str, slave: str, bodies: int) -> int:
    """The end of a log that both have."""
    await fill(master, bodies)
    end = (await status(master)).master_commit_log_max_offset
    await follows(slave, end)
    return end


async def diverged(slave: str) -> str:
    """Why a slave does not follow."""
    told = await until_async(
        lambda: status(slave), lambda told: bool(told.ha_client_runtime_info.is_diverged)
    )
    return told.ha_client_runtime_info.fault or ""


def log_of(folder: Path, end: int) -> bytes:
    files = sorted((folder / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


def cut(folder: Path, at: int) -> None:
    store = StoppedStore(StoreConfig(root=str(folder)), exclusive=True)
    store.cut(at)
    store.release()


async def test_promoted_slave_leads_and_the_old_master_refuses_messages(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        end = await filled(master.address, slave.address, 20)
        old = master.address
        promoted = await admin.promote("broker-a", 1)
        assert (promoted.address, promoted.log_end) == (slave.address, end)
        assert (promoted.replaced, promoted.is_told) == (old, True)
        brokers = (await admin.brokers())[0]
        assert (brokers.address, brokers.broker_id) == (slave.address, 0)
        async with await Peer.connect(old) as peer:
            assert (await send(peer, "orders")).code in (2, 14), "it may not store what nobody copies"
        await fill(slave.address, 5)
        found = await epochs(slave.address)
        assert found is not None
        assert [entry.start_offset for entry in found.epoch_list] == [0, end]


async def test_messages_of_an_uncopied_topic_are_readable_after_a_promotion(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        await filled(master.address, slave.address, 20)
        table = tmp_path / "slave" / "config" / "topics.json"
        await until_async(lambda: "orders" in table.read_text())
    # As if the master had died between the messages and the topic.
    content = json.loads(table.read_text())
    del content["topicConfigTable"]["orders"]
    table.write_text(json.dumps(content))
    async with made_slave(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
        await admin.promote("broker-a", 1)
        async with await Peer.connect(slave.address) as peer:
            stats = await peer.ask(GetTopicStatsInfo(topic="orders"))
            assert (await send(peer, "orders")).code == 0
    assert sum(queue.max_offset for queue in stats.offset_table.values()) == 20
    assert "did not replicate" in caplog.text
    assert "orders" in caplog.text


async def test_replaced_master_returns_as_a_slave_and_drops_its_extra_log(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    master = made_broker(tmp_path, namesrv, {})
    slave = made_slave(tmp_path, namesrv)
    async with slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with master:
            end = await filled(master.address, slave.address, 20)
        await admin.promote("broker-a", 1)
        await fill(slave.address, 7, b"of the new master")
        # As if it had taken messages that no slave had when it died.
        async with (
            NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as elsewhere,
            made_broker(tmp_path, elsewhere.address, {}) as alone,
        ):
            await fill(alone.address, 30, b"nobody else has it")
        again = made_broker(tmp_path, namesrv, {})
        with pytest.raises(ConfigError):
            await again.start()
        await again.stop()
        async with made_broker(
            tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
        ) as back:
            now = (await status(slave.address)).master_commit_log_max_offset
            await follows(back.address, now)
            assert "never had them" in caplog.text
            assert str(end) in caplog.text
            await fill(slave.address, 3)
            now = (await status(slave.address)).master_commit_log_max_offset
            await follows(back.address, now)
            told = [await epochs(each.address) for each in (slave, back)]
            assert told[0] is not None
            assert told[1] is not None
            assert told[0].epoch_list == told[1].epoch_list
    assert log_of(tmp_path / "slave", now) == log_of(tmp_path / "store", now)


async def test_unreachable_replaced_master_is_notified_later(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        await filled(master.address, slave.address, 5)
        # The operator cannot reach the master, and promotes the slave.
        async with await Peer.connect(slave.address) as peer:
            await peer.ask(
                NotifyBrokerRoleChanged(master_broker_id=1, master_epoch=97, master_address=slave.address)
            )
        found = await until_async(
            lambda: epochs(slave.address), lambda told: told is not None and told.broker_id == 0
        )
        assert found is not None
        assert found.epoch == 97
        async with await Peer.connect(master.address) as peer:
            assert (await send(peer, "orders")).code in (2, 14)
            with pytest.raises(Refusal) as refused:
                await peer.ask(NotifyBrokerRoleChanged(master_broker_id=0, master_epoch=33))
            assert refused.value.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        await fill(slave.address, 1)
        async with await Peer.connect(namesrv) as peer:
            group = (await peer.ask(GetClusterInfo())).broker_addr_table["broker-a"]
            assert group.broker_addrs == {0: slave.address}
    again = made_broker(tmp_path, namesrv, {})
    with pytest.raises(ConfigError, match="replaced as master"):
        await again.start()
    await again.stop()


async def test_master_with_an_older_epoch_than_its_slave_does_not_start(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path / "second", namesrv, brokerId="2") as second:
        async with pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
            await filled(master.address, slave.address, 5)
            await master.stop()
            await admin.promote("broker-a", 1)
            await fill(slave.address, 3)
            await follows(second.address, (await status(slave.address)).master_commit_log_max_offset)
        # The new master is away, too: another slave knows.
        again = made_broker(tmp_path, namesrv, {})
        with pytest.raises(ConfigError, match="epoch"):
            await again.start()
        await again.stop()


async def test_promoted_slave_replaced_while_offline_follows_again(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_slave(tmp_path / "second", namesrv, brokerId="2") as second,
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        async with pair(tmp_path, namesrv) as (master, slave):
            await filled(master.address, slave.address, 5)
            await master.stop()
            await admin.promote("broker-a", 1)
            await filled(slave.address, second.address, 3)
        await admin.promote("broker-a", 2)
        await fill(second.address, 2)
        async with made_slave(tmp_path, namesrv) as back:
            await follows(back.address, (await status(second.address)).master_commit_log_max_offset)


async def test_promoted_slave_leads_after_a_restart_and_can_be_replaced_again(
    tmp_path: Path, namesrv: str
) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, rmqpy.AsyncAdmin(namesrv) as admin:
        async with made_slave(tmp_path, namesrv) as slave:
            await filled(master.address, slave.address, 5)
            await admin.promote("broker-a", 1)
            await master.stop()
        async with (
            made_slave(tmp_path, namesrv) as slave,
            made_broker(tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "2"}) as second,
        ):
            await filled(slave.address, second.address, 5)
            promoted = await admin.promote("broker-a", 2)
            assert promoted.address == second.address
            # The one that led is a slave by its configuration, and becomes that again.
            end = (await status(second.address)).master_commit_log_max_offset
            await until_async(
                lambda: epochs(slave.address), lambda told: told is not None and told.broker_id == 1
            )
            await follows(slave.address, end)
            await fill(second.address, 2)


async def test_slave_configured_as_master_begins_one_epoch(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        end = await filled(master.address, slave.address, 5)
    for _ in range(2):
        async with made_promoted(tmp_path, namesrv) as leading:
            found = await epochs(leading.address)
            assert found is not None
            assert [entry.start_offset for entry in found.epoch_list] == [0, end]
            await fill(leading.address, 1)


async def test_slave_with_a_shorter_log_is_not_promoted(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_slave(tmp_path / "second", namesrv, brokerId="2") as second,
        pair(tmp_path, namesrv) as (master, slave),
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        end = await filled(master.address, slave.address, 5)
        await follows(second.address, end)
        await second.stop()
        await fill(master.address, 5)
        await follows(slave.address, (await status(master.address)).master_commit_log_max_offset)
        await master.stop()
        async with made_slave(tmp_path / "second", namesrv, brokerId="2"):
            with pytest.raises(RocketMQError, match="lacks"):
                await admin.promote("broker-a", 2)
            with pytest.raises(ConfigError, match="no slave 3"):
                await admin.promote("broker-a", 3)
            assert (await admin.promote("broker-a", 1)).epoch % 16 == 1


@pytest.mark.parametrize("more", [0, 40])
async def test_slave_does_not_follow_a_master_with_a_shorter_log_and_reports_it(
    tmp_path: Path, namesrv: str, more: int
) -> None:
    slave = made_slave(tmp_path, namesrv, slaveReadEnable="true")
    async with slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with made_broker(tmp_path, namesrv, {}) as master:
            end = await filled(master.address, slave.address, 20)
            record = end // 20
        await slave.stop()
        cut(tmp_path / "store", end - 3 * record)
        async with made_broker(tmp_path, namesrv, {}) as master:
            if more:
                # It has written something else where its end was.
                await fill(master.address, more, b"other")
            async with made_slave(tmp_path, namesrv, slaveReadEnable="true") as slave:
                fault = await diverged(slave.address)
                assert ("differ before" if more else "has lost its end") in fault
                states = await admin.replicas("broker-a")
                assert [state.is_diverged for state in states if not state.is_master] == [True]
                assert [state.in_sync for state in states if not state.is_master] == [False]
                checks = [check for check in await admin.health() if check.level == "bad"]
                assert any("rmqpy store compare" in (check.advice or "") for check in checks)


def state_of(states: list[ReplicaState], broker_id: int) -> ReplicaState:
    return next(state for state in states if state.broker_id == broker_id)


async def test_apache_slave_with_a_longer_log_is_reported_by_its_master(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, rmqpy.AsyncAdmin(namesrv) as admin:
        await fill(master.address, 5)
        host, _, port = master.replica_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((1 << 30).to_bytes(8, "big"))
        assert await reader.read() == b""
        writer.close()
        state = state_of(await admin.replicas("broker-a"), 0)
        assert state.is_diverged
        assert "one of them has lost data" in (state.fault or "")
        assert any("broker-a" in check.check for check in await admin.health() if check.level == "bad")
