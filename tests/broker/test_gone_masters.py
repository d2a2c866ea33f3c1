"""Unreachable masters: every surface names the master and a remedy; a starting one raises no alarm."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, pair
from broker.test_promises import findings
from broker.test_promotion import filled, state_of
from rmqpy.admin.checks import CheckResult
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from waiting import until_async

pytestmark = pytest.mark.usefixtures("tries_soon")


@asynccontextmanager
async def lone_slave(folder: Path, namesrv: str) -> AsyncIterator[tuple[Broker, str]]:
    """A slave that was in sync with a master, which has stopped; and where that was."""
    async with made_slave(folder, namesrv) as slave:
        async with made_broker(folder, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
            address = master.address
        yield slave, address


async def test_unreachable_master_is_named_with_a_remedy(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with lone_slave(tmp_path, namesrv) as (slave, old), rmqpy.AsyncAdmin(namesrv) as admin:
        wanted = f"broker-a has no master: the one at {old} is unreachable, slave 1 lost it "
        found = await findings(admin)
        assert list(found) == ["master of broker-a"]
        assert found["master of broker-a"].startswith(f"bad: {wanted}")
        assert "rmqpy cluster promote broker-a --id 1" in found["master of broker-a"]
        assert "haListenPort" not in str(found)
        assert (state_of(await admin.replicas(), 1).fault or "").startswith(wanted)
        # The slave reports it once the name servers have, in its log and to `cluster info`.
        await until_async(admin.brokers, lambda states: (states[0].fault or "").startswith(wanted))
        await until_async(lambda: logged(caplog, wanted), bool)
        # It still knows the name after a restart, when no server could report it.
        await slave.stop()
        await slave.start()
        found = await until_async(lambda: findings(admin), lambda found: "master of broker-a" in found)
        assert f"broker-a has no master: the one at {old} is unreachable" in found["master of broker-a"]


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in each.message for each in caplog.records)


async def checks_while(admin: rmqpy.AsyncAdmin, work: asyncio.Task[None]) -> list[CheckResult]:
    """Everything that was not well at any moment until the work was done."""
    bad: list[CheckResult] = []
    while not work.done():
        bad += [each for each in await admin.health(disk_free_min=0) if each.level != "ok"]
    await work
    return bad


async def test_starting_slave_raises_no_alarm(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        end = await filled(master.address, slave.address, 3)
        await slave.stop()
        await until_async(lambda: slave_count(admin), lambda count: count == 0)

        async def start() -> None:
            await slave.start()
            await until_async(
                lambda: admin.replicas(), lambda states: all(each.fault is None for each in states)
            )

        found = await checks_while(admin, asyncio.create_task(start()))
        assert {each.check for each in found} <= {"replicas of broker-a"}, (
            "the master misses its slave meanwhile"
        )
        assert state_of(await admin.replicas(), 1).log_end == end


async def slave_count(admin: rmqpy.AsyncAdmin) -> int | None:
    return state_of(await admin.replicas(), 0).slaves


async def test_slave_without_a_master_raises_an_alarm_later(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made_slave(tmp_path, namesrv), rmqpy.AsyncAdmin(namesrv) as admin:
        monkeypatch.setattr("rmqpy.protocol.replica_findings.START_SECONDS", 0.0)
        found = await until_async(lambda: findings(admin), lambda found: "master of broker-a" in found)
        assert (
            "broker-a has no master: it is unreachable, slave 1 has had no contact"
            in found["master of broker-a"]
        )


async def test_slave_with_the_longest_log_is_advised_to_lead(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_slave(tmp_path / "second", namesrv, brokerId="2") as second,
        lone_slave(tmp_path, namesrv) as (slave, _),
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        await second.stop()
        async with made_broker(tmp_path, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
        await second.start()
        found = await findings(admin)
        assert list(found) == ["master of broker-a"]
        assert "rmqpy cluster promote broker-a --id 1" in found["master of broker-a"]


async def test_master_unreachable_only_for_the_administrator_is_not_reported_lost(tmp_path: Path) -> None:
    """Its slave follows it: another name server has an address at which nothing answers."""
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as server,
        pair(tmp_path, server.address) as (master, slave),
        rmqpy.AsyncAdmin(
            rmqpy.ClientConfig(namesrv=server.address, address_map={master.address: "127.0.0.1:1"})
        ) as admin,
    ):
        await filled_by_name(master, slave)
        found = await findings(admin)
        assert list(found) == [f"broker broker-a at {master.address}"]


async def filled_by_name(master: Broker, slave: Broker) -> None:
    await filled(master.address, slave.address, 3)
