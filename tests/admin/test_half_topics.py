"""Changes that cannot reach every broker's master: refused as a whole, or reported with the changed brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave
from broker.test_promotion import filled
from commandline import runner
from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.routes import GetClusterInfo
from waiting import until_async
from wire import Peer


class HalfCluster(NamedTuple):
    """`broker-a` has a slave and a dead master; `broker-b` is complete."""

    namesrv: str
    admin: rmqpy.AsyncAdmin


@asynccontextmanager
async def half_cluster(folder: Path, namesrv: str) -> AsyncIterator[HalfCluster]:
    async with (
        made_broker(folder / "b", namesrv, {"brokerName": "broker-b"}),
        made_slave(folder, namesrv) as slave,
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        async with made_broker(folder, namesrv, {}) as master:
            await filled(master.address, slave.address, 3)
            await admin.create_topic("bills")
            await admin.create_group("billing")
        async with await Peer.connect(namesrv) as peer:
            await until_async(
                lambda: peer.ask(GetClusterInfo()),
                lambda told: list(told.broker_addr_table["broker-a"].broker_addrs) == [1],
            )
        yield HalfCluster(namesrv, admin)


async def test_a_topic_is_not_made_on_half_of_the_brokers(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with half_cluster(tmp_path, namesrv) as (_, admin):
        run = runner(namesrv, monkeypatch, capfd)
        code, out, err = await asyncio.to_thread(run, "topic", "create", "refunds")
        assert (code, out) == (1, "")
        assert "broker-a has no master" in err
        assert "--partial" in err
        assert "refunds" not in await admin.topics()
        code, out, err = await asyncio.to_thread(run, "topic", "create", "refunds", "--partial", "-o", "json")
        assert (code, "broker-b" in out, "broker-a" in out) == (0, True, False)
        assert "broker-a has no master" in err, "it is said where it was not made"
        assert "--if-not-exists" in err


CHANGES = {
    "group create": lambda admin: admin.create_group("refunding"),
    "group alter": lambda admin: admin.update_group("billing", retry_max=3),
    "group delete": lambda admin: admin.delete_group("billing"),
    "topic alter": lambda admin: admin.update_topic("bills", perm="R"),
    "clone": lambda admin: admin.clone_offsets("billing", "refunding"),
    "readable": lambda admin: admin.group_readable("billing", "bills", readable=False),
    "reset": lambda admin: admin.reset_offsets("billing", "bills", "end"),
    "skip": lambda admin: admin.skip_backlog("billing"),
    "user": lambda admin: admin.create_user("alice", "secret-of-alice"),
}


async def test_changes_need_the_masters_of_all_brokers(tmp_path: Path, namesrv: str) -> None:
    async with half_cluster(tmp_path, namesrv) as (_, admin):
        before = await state(admin)
        for name, change in CHANGES.items():
            with pytest.raises(RocketMQError, match="broker-a has no master"):
                await change(admin)
            assert await state(admin) == before, name
        # The deletion at one broker stays; the error names the others.
        with pytest.raises(RocketMQError, match="broker-a has no master, and topic 'bills' stays there"):
            await admin.delete_topic("bills")


async def state(admin: rmqpy.AsyncAdmin) -> Any:
    return await admin.topic_settings("bills"), await admin.group("billing"), await admin.groups()


async def test_lists_warn_of_brokers_without_master(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with half_cluster(tmp_path, namesrv):
        run = runner(namesrv, monkeypatch, capfd)
        for words in (["group", "list"], ["topic", "describe", "bills"], ["topic", "list", "--types"]):
            code, out, err = await asyncio.to_thread(run, *words, "-o", "json")
            assert (code, err.count("broker-a has no master")) == (0, 1), words
            assert "broker-a" not in out


async def test_a_topic_of_a_pair_is_deleted_where_both_live(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_broker(tmp_path, namesrv, {}) as master,
        made_slave(tmp_path, namesrv) as slave,
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        await filled(master.address, slave.address, 3)
        assert await admin.delete_topic("orders") == ["broker-a"]
        assert "orders" not in await admin.topics()
