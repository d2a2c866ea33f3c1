"""Progress copied by a slave: it applies once the log has reached it, so that a promoted slave skips nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, topics
from broker.talk import send
from broker.test_transactions import COMMIT, HALF, MARKS, end, half, saved, stored
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.control.replicas.offset_copy import OffsetCopy
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from rmqpy.remoting.client import Peer as BrokerPeer
from waiting import until_async
from wire import Peer, Refusal

pytestmark = pytest.mark.usefixtures("tries_soon")

#: Nothing listens there, so the log does not follow.
ASIDE = "127.0.0.1:1"


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Grows with each copy of the offsets."""
    monkeypatch.setattr("rmqpy.control.replicas.offset_copy.SECONDS", 0.05)
    done: list[float] = []
    copy = OffsetCopy.copy

    async def counted(self: OffsetCopy, master: BrokerPeer) -> float:
        pause = await copy(self, master)
        done.append(pause)
        return pause

    monkeypatch.setattr(OffsetCopy, "copy", counted)
    return done


async def some(rounds: list[float]) -> None:
    """Wait for rounds that began after this call."""
    before = len(rounds)
    await until_async(lambda: len(rounds) >= before + 3)


async def has_all(slave: Peer, master: Peer) -> bool:
    theirs = (await master.ask(GetBrokerHaStatus())).master_commit_log_max_offset
    return (await slave.ask(GetBrokerHaStatus())).ha_client_runtime_info.max_offset == theirs


@asynccontextmanager
async def aside(folder: Path, namesrv: str) -> AsyncIterator[Broker]:
    """A slave whose log stops following while everything else is copied."""
    async with made_slave(folder, namesrv, haMasterAddress=ASIDE) as slave:
        yield slave


async def test_half_message_ended_beyond_a_promoted_slaves_log_is_open_there(
    tmp_path: Path, namesrv: str, rounds: list[float]
) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as at_master:
        async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
            decided = await half(at_master)
            await until_async(lambda: has_all(at_slave, at_master), bool)
        async with aside(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
            assert (await end(at_master, decided, COMMIT)).code == 0
            await saved(at_master, HALF, 1)
            await saved(at_master, MARKS, 1)
            await some(rounds)
            await master.stop()
            await admin.promote("broker-a", 1)
            async with await Peer.connect(slave.address) as promoted:
                assert (await end(promoted, decided, COMMIT)).code == 0
                assert [record.body for record in await stored(promoted, "orders")] == [b"hello"]


async def test_committed_offsets_wait_for_the_log(tmp_path: Path, namesrv: str, rounds: list[float]) -> None:
    async def offset(peer: Peer) -> int | None:
        ask = QueryConsumerOffset(
            consumer_group="billing", topic="orders", queue_id=0, set_zero_if_not_found=False
        )
        try:
            return (await peer.ask(ask)).offset
        except Refusal:
            return None

    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as at_master:
        group = SubscriptionGroup(group_name="billing")
        await at_master.ask(UpdateAndCreateSubscriptionGroup(body=group))
        for _ in range(5):
            assert (await send(at_master, "orders")).code == 0
        ask = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=5)
        await at_master.ask(ask)
        async with aside(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
            await some(rounds)
            assert await offset(at_slave) is None
        async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as at_slave:
            await until_async(lambda: offset(at_slave), lambda found: found == 5)


async def test_cut_log_rebuilds_its_transactions(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: OffsetCopy, master: BrokerPeer) -> float:
        await asyncio.Event().wait()
        return 0.0

    back_as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    async with made_slave(tmp_path, namesrv) as slave, rmqpy.AsyncAdmin(namesrv) as admin:
        async with (
            made_broker(tmp_path, namesrv, {}) as master,
            await Peer.connect(master.address) as at_master,
            await Peer.connect(slave.address) as at_slave,
        ):
            decided = await half(at_master)
            await until_async(lambda: has_all(at_slave, at_master), bool)
        await admin.promote("broker-a", 1)
        # The decision reaches only the master that was replaced.
        async with (
            NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as elsewhere,
            made_broker(tmp_path, elsewhere.address, {}) as alone,
            await Peer.connect(alone.address) as peer,
        ):
            assert (await end(peer, decided, COMMIT)).code == 0
            await saved(peer, HALF, 1)
        # The copy of the offsets is too late.
        monkeypatch.setattr(OffsetCopy, "copy", never)
        async with made_broker(tmp_path, namesrv, back_as_slave) as back:
            async with await Peer.connect(slave.address) as peer:
                assert (await send(peer, "orders")).code == 0
                theirs = (await peer.ask(GetBrokerHaStatus())).master_commit_log_max_offset
            await until_async(lambda: follows(back, theirs), bool)
            async with await Peer.connect(back.address) as peer:
                await until_async(lambda: topics(peer), lambda found: "orders" in found)
            await slave.stop()
            await admin.promote("broker-a", 1)
            async with await Peer.connect(back.address) as promoted:
                assert (await end(promoted, decided, COMMIT)).code == 0


async def follows(slave: Broker, theirs: int) -> bool:
    """Return whether it has the log up to this position; it may be about to restart."""
    try:
        async with await Peer.connect(slave.address) as peer:
            told = (await peer.ask(GetBrokerHaStatus())).ha_client_runtime_info
    except (OSError, EOFError, Refusal):
        return False
    return bool(told.is_connected) and told.max_offset == theirs
