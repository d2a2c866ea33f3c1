"""Backups at a master: they read its log and count nowhere."""

import asyncio
from pathlib import Path

from broker.replicas import made_slave
from broker.talk import send
from broker.test_sync_master import DONE, NO_SLAVE, SYSTEM_ERROR, sync_master, until_code
from rmqpy.backup.run import back_up
from rmqpy.config.client import ClientConfig
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo, GetBrokerHaStatus
from rmqpy.protocol.requests.routes import GetClusterInfo
from wire import Peer


async def replies_during_backups(peer: Peer, namesrv: str, backup: Path) -> set[int]:
    """The codes of sends while backups run, one after the other."""
    codes: set[int] = set()
    for _ in range(3):
        running = asyncio.create_task(back_up(ClientConfig(namesrv=namesrv), None, backup))
        while not running.done():
            codes.add((await send(peer, "orders")).code)
            # The backup runs on this loop, too.
            await asyncio.sleep(0.001)
        await running
    return codes


async def test_backup_is_no_copy_for_acknowledgements(tmp_path: Path, namesrv: str) -> None:
    async with sync_master(tmp_path, namesrv) as (_, peer):
        for _ in range(100):
            await send(peer, "orders", b"x" * 10_000)
        assert await replies_during_backups(peer, namesrv, tmp_path / "backup") == {NO_SLAVE}
        status = await peer.ask(GetBrokerHaStatus())
        assert (status.in_sync_slave_nums, status.slaves_expected, status.ha_connection_info) == (0, 0, [])
        async with await Peer.connect(namesrv) as names:
            known = (await names.ask(GetClusterInfo())).broker_addr_table
            assert set(known["broker-a"].broker_addrs) == {0}, "consumers cannot find it"


async def test_backup_is_not_in_sync_and_a_slave_still_is(tmp_path: Path, namesrv: str) -> None:
    async with sync_master(tmp_path, namesrv, minInSyncReplicas="2") as (_, peer):
        assert await replies_during_backups(peer, namesrv, tmp_path / "backup") == {SYSTEM_ERROR}
        async with made_slave(tmp_path, namesrv):
            await until_code(peer, DONE)
            assert await replies_during_backups(peer, namesrv, tmp_path / "backup") == {DONE}


async def test_master_confirms_that_it_counts_no_observer(tmp_path: Path, namesrv: str) -> None:
    async with sync_master(tmp_path, namesrv) as (_, peer):
        observer = await peer.ask(ExchangeBrokerHaInfo(wants_ticket=True, is_observer=True))
        slave = await peer.ask(ExchangeBrokerHaInfo(wants_ticket=True))
        assert (observer.is_observer, slave.is_observer) == (True, None)
        assert observer.ticket != slave.ticket
