"""Replaced masters: every surface reports them with the epoch, and the way to follow."""

from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, pair
from broker.test_promotion import epochs, fill, filled, follows, status
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.registration import RegisterBroker
from rmqpy.protocol.requests.routes import GetClusterInfo
from waiting import until_async
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


def check_advice(text: str, successor: str, epoch: int) -> None:
    """The sentence names the leader, the epoch, and the way back, without separating the pair."""
    assert f"replaced as master of broker-a by the one at {successor}, epoch {epoch}" in text
    assert "brokerRole=SLAVE brokerId=2" in text, "1 is that of the broker that leads"
    assert "rmqpy cluster promote broker-a --id 2" in text
    assert "brokerName" not in text
    assert "stop" not in text


async def test_returning_master_learns_the_leader_and_the_way_to_follow(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    master = made_broker(tmp_path, namesrv, {})
    async with made_slave(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with master:
            await filled(master.address, slave.address, 5)
        epoch = (await admin.promote("broker-a", 1)).epoch
        again = made_broker(tmp_path, namesrv, {})
        with pytest.raises(ConfigError) as refused:
            await again.start()
        await again.stop()
        check_advice(str(refused.value), slave.address, epoch)
        # Following the advice works.
        await fill(slave.address, 2)
        async with made_broker(tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "2"}) as back:
            await follows(back.address, (await status(slave.address)).master_commit_log_max_offset)


async def test_running_replaced_master_reports_it_now_and_at_the_next_start(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        await filled(master.address, slave.address, 5)
        epoch = (await admin.promote("broker-a", 1)).epoch
        warned = [each.message for each in caplog.records if "was replaced as master" in each.message]
        assert len(warned) == 1
        check_advice(warned[0], slave.address, epoch)
        address = slave.address
    again = made_broker(tmp_path, namesrv, {})
    with pytest.raises(ConfigError) as refused:
        await again.start()
    await again.stop()
    check_advice(str(refused.value), address, epoch)


async def test_leader_starts_next_to_its_replaced_master_and_notifies_it(
    tmp_path: Path, namesrv: str
) -> None:
    """The old master came back at another address while its successor was away: it knew of none."""
    async with rmqpy.AsyncAdmin(namesrv) as admin:
        async with made_slave(tmp_path, namesrv) as slave:
            async with made_broker(tmp_path, namesrv, {}) as master:
                await filled(master.address, slave.address, 5)
            await admin.promote("broker-a", 1)
            await fill(slave.address, 5)
        async with made_broker(tmp_path, namesrv, {}) as stale, made_slave(tmp_path, namesrv) as leading:
            found = await epochs(leading.address)
            assert found is not None
            assert found.broker_id == 0
            async with await Peer.connect(namesrv) as peer:
                brokers = await until_async(
                    lambda: peer.ask(GetClusterInfo()),
                    lambda told: told.broker_addr_table["broker-a"].broker_addrs == {0: leading.address},
                )
            assert not brokers.duplicate_broker_addrs
            assert (await status(stale.address)).master is False or stale.address != leading.address


async def test_doctor_distinguishes_masters_of_one_name_by_epoch(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with made_broker(tmp_path, namesrv, {}) as master:
            await filled(master.address, slave.address, 5)
        epoch = (await admin.promote("broker-a", 1)).epoch
        # The old master is cut off from its successor, and not from the name server.
        async with (
            NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as elsewhere,
            made_broker(tmp_path, elsewhere.address, {}) as stale,
            await Peer.connect(namesrv) as peer,
        ):
            await peer.ask(
                RegisterBroker(
                    cluster_name="c1",
                    broker_name="broker-a",
                    broker_addr=stale.address,
                    broker_id=0,
                    ha_server_addr="",
                    body=b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":{}}}}',
                )
            )
            (check,) = [each for each in await admin.health() if each.check == "broker broker-a"]
            assert check.level == "bad"
            assert stale.address in check.found
            check_advice(f"{check.found}; {check.advice}", slave.address, epoch)


async def test_new_broker_is_not_advised_to_replace_a_live_master(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        await filled(master.address, slave.address, 3)
        stranger = made_broker(tmp_path / "stranger", namesrv, {})
        with pytest.raises(ConfigError, match="two brokers are called broker-a") as refused:
            await stranger.start()
        await stranger.stop()
        assert "promote" not in str(refused.value)


async def test_empty_master_is_advised_to_let_its_slave_lead(tmp_path: Path, namesrv: str) -> None:
    """Its machine was lost, and it was set up again."""
    async with made_slave(tmp_path, namesrv) as slave:
        async with made_broker(tmp_path, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
        empty = made_broker(tmp_path / "again", namesrv, {})
        with pytest.raises(ConfigError, match=f"slave 1 of broker-a at {slave.address} has a log") as refused:
            await empty.start()
        await empty.stop()
        assert "rmqpy cluster promote broker-a --id 1" in str(refused.value)
