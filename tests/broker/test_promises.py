"""Promises of replies: they survive a change of the master, and every surface reports a weaker one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import _made, made_slave
from broker.talk import send
from broker.test_promotion import epochs, filled, follows, state_of, status
from rmqpy.broker import Broker
from rmqpy.config import properties
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from waiting import until_async
from wire import Peer

pytestmark = pytest.mark.usefixtures("tries_soon")

DONE, REFUSED, NO_SLAVE = 0, 1, 11
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "300", "haSendHeartbeatInterval": "100"}
WEAKER = "replies of broker-a promise 1 copy of a message, and promised 2 before its master was replaced"


@asynccontextmanager
async def sync_pair(folder: Path, namesrv: str, **settings: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """A pair in sync, with a slave that knows its master's promise."""
    async with (
        made_broker(folder, namesrv, {**SYNC, **settings}) as master,
        made_slave(folder, namesrv) as slave,
    ):
        await filled(master.address, slave.address, 0)
        async with await Peer.connect(master.address) as peer:
            await until_async(lambda: send(peer, "orders"), lambda answer: answer.code == DONE)
        await until_async(lambda: remembered(folder), lambda is_there: is_there)
        yield master, slave


async def remembered(folder: Path) -> bool:
    file = folder / "slave" / "rmqpy" / "leadership.json"
    return file.exists() and "SYNC_MASTER" in file.read_text()


async def settings_of(address: str) -> dict[str, str]:
    async with await Peer.connect(address) as peer:
        return properties.parse((await peer.ask(GetBrokerConfig())).body)


async def code_of_send(address: str) -> int:
    async with await Peer.connect(address) as peer:
        return (await send(peer, "orders")).code


async def findings(admin: rmqpy.AsyncAdmin) -> dict[str, str]:
    return {
        each.check: f"{each.level}: {each.found}; {each.advice}"
        for each in await admin.health(disk_free_min=0)
        if each.level != "ok"
    }


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_slave_that_is_promoted_takes_its_masters_role(
    tmp_path: Path, namesrv: str, is_dead: bool
) -> None:
    async with sync_pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        if is_dead:
            # It remembers, also when it has been started since.
            await master.stop()
            await slave.stop()
            await slave.start()
        promoted = await admin.promote("broker-a", 1)
        assert (promoted.role, promoted.copies) == ("SYNC_MASTER", 2)
        assert (await settings_of(slave.address))["brokerRole"] == "SYNC_MASTER"
        assert await code_of_send(slave.address) == NO_SLAVE
        found = await findings(admin)
        assert found["replicas of broker-a"].startswith(
            "bad: 1 of 2 replicas are in sync: messages are stored, and answered with 11 or 12"
        )


async def test_minimum_of_replicas_is_taken_over(tmp_path: Path, namesrv: str) -> None:
    async with (
        sync_pair(tmp_path, namesrv, inSyncReplicas="2", minInSyncReplicas="2") as (_, slave),
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        await admin.promote("broker-a", 1)
        assert await code_of_send(slave.address) == REFUSED


async def test_weaker_promise_is_reported_until_it_is_configured(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with sync_pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        promoted = await admin.promote("broker-a", 1, role="ASYNC_MASTER")
        await master.stop()
        assert (promoted.role, promoted.copies) == ("ASYNC_MASTER", 1)
        found = (await findings(admin))["promise of broker-a"]
        assert found.startswith(f"warn: {WEAKER}")
        assert "brokerRole=SYNC_MASTER" in found
        assert WEAKER in (state_of(await admin.replicas(), 0).fault or "")
        await until_async(lambda: logged(caplog), lambda count: count == 1)
        async with made_broker(tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "2"}) as back:
            await follows(back.address, (await status(slave.address)).master_commit_log_max_offset)
            assert list(await findings(admin)) == ["promise of broker-a"]
    # The leader's file is changed as docs/replicas.md says, but without the role.
    async with led_by_file(tmp_path, namesrv), rmqpy.AsyncAdmin(namesrv) as admin:
        assert WEAKER in (await findings(admin))["promise of broker-a"]
    async with led_by_file(tmp_path, namesrv, inSyncReplicas="1"), rmqpy.AsyncAdmin(namesrv) as admin:
        assert "promise of broker-a" not in await findings(admin)


async def logged(caplog: pytest.LogCaptureFixture) -> int:
    return sum(WEAKER in each.message for each in caplog.records)


@asynccontextmanager
async def led_by_file(folder: Path, namesrv: str, **settings: str) -> AsyncIterator[Broker]:
    async with _made(folder, namesrv, settings) as broker:
        yield broker


async def test_replaced_master_is_reported_missing_until_it_follows(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with made_broker(tmp_path, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
            old = master.address
        promoted = await admin.promote("broker-a", 1)
        assert promoted.role == "ASYNC_MASTER"
        found = (await findings(admin))["replicas of broker-a"]
        assert found.startswith("warn: 0 of 1 slaves are connected")
        assert old in found
        assert "brokerRole=SLAVE brokerId=2" in found
        # It still knows after a restart.
        await slave.stop()
        await slave.start()
        assert old in (await findings(admin))["replicas of broker-a"]
        async with made_broker(tmp_path, namesrv, {"brokerRole": "SLAVE", "brokerId": "2"}):
            await until_async(lambda: findings(admin), lambda found: not found)
        assert (await epochs(slave.address)) is not None
