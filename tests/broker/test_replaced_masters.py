"""A master that was replaced: every surface says so, with the epoch, and says how it follows."""

from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, pair, until
from broker.test_promotion import epochs, fill, filled, follows, status
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.registration import RegisterBroker
from rmqpy.protocol.requests.routes import GetClusterInfo
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")


def check_advice(text: str, successor: str, epoch: int) -> None:
    """The sentence names who leads, since when, and the way back; it does not part the pair."""
    assert f"replaced as master of broker-a by the one at {successor}, epoch {epoch}" in text
    assert "brokerRole=SLAVE brokerId=2" in text, "1 is that of the broker that leads"
    assert "rmqpy cluster promote broker-a --id 2" in text
    assert "brokerName" not in text
    assert "stop" not in text


async def test_a_master_that_returns_is_told_who_leads_and_how_to_follow(
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
        # What it was told to do works.
        await fill(slave.address, 2)
        async with made_broker(tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "2"}) as back:
            await follows(back.address, (await status(slave.address)).master_commit_log_max_offset)


async def test_a_master_that_is_replaced_while_it_runs_says_the_same_then_and_when_it_starts(
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


async def test_the_broker_that_leads_starts_beside_the_master_that_it_replaced_and_ends_its_time(
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
                brokers = await until(
                    lambda: peer.ask(GetClusterInfo()),
                    lambda told: told.broker_addr_table["broker-a"].broker_addrs == {0: leading.address},
                )
            assert not brokers.duplicate_broker_addrs
            assert (await status(stale.address)).master is False or stale.address != leading.address


async def test_doctor_tells_two_masters_of_one_name_apart_by_their_epochs(
    tmp_path: Path, namesrv: str
) -> None:
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


async def test_a_new_broker_of_a_name_is_not_told_to_take_the_place_of_a_master_that_lives(
    tmp_path: Path, namesrv: str
) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        await filled(master.address, slave.address, 3)
        stranger = made_broker(tmp_path / "stranger", namesrv, {})
        with pytest.raises(ConfigError, match="two brokers are called broker-a") as refused:
            await stranger.start()
        await stranger.stop()
        assert "promote" not in str(refused.value)


async def test_an_empty_master_beside_a_slave_with_a_log_is_told_to_let_that_lead(
    tmp_path: Path, namesrv: str
) -> None:
    """Its machine was lost, and it was set up again."""
    async with made_slave(tmp_path, namesrv) as slave:
        async with made_broker(tmp_path, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
        empty = made_broker(tmp_path / "again", namesrv, {})
        with pytest.raises(ConfigError, match=f"slave 1 of broker-a at {slave.address} has a log") as refused:
            await empty.start()
        await empty.stop()
        assert "rmqpy cluster promote broker-a --id 1" in str(refused.value)
