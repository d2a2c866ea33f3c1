"""Popped messages and the roles of a broker: open messages survive in the log of any successor."""

import shutil
from pathlib import Path

import pytest

import rmqpy
from rmqpy.broker import Broker
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from waiting import until_async
from wire import Peer

from .conftest import made_broker
from .popping import Popped, ack, messages, pop
from .replicas import made_promoted, made_slave, pair
from .talk import send

pytestmark = pytest.mark.usefixtures("tries_soon")

FLOW_CONTROL, POLLING_TIMEOUT = 2, 210
INVISIBLE_MS = 3_000


async def has_all(slave: Broker, master: Broker) -> None:
    """Wait until the slave's log has all of its master's."""
    async with await Peer.connect(slave.address) as at_slave, await Peer.connect(master.address) as at_master:
        end = (await at_master.ask(GetBrokerHaStatus())).master_commit_log_max_offset
        await until_async(
            lambda: at_slave.ask(GetBrokerHaStatus()),
            lambda told: told.ha_client_runtime_info.max_offset >= end,
        )


async def opened(peer: Peer) -> list[bytes]:
    """Pop ten messages and acknowledge half of them; what is open."""
    for number in range(10):
        assert (await send(peer, "jobs", b"%d" % number)).code == 0
    found: list[Popped] = []
    while len(found) < 10:
        found += messages(await pop(peer, invisible=INVISIBLE_MS, wait=5_000))
    for message in found[::2]:
        assert (await ack(peer, message)).code == 0
    return sorted(message.body for message in found[1::2])


async def popped_again(peer: Peer, count: int) -> list[bytes]:
    found: list[Popped] = []
    while len(found) < count:
        answer = await pop(peer, wait=10_000)
        assert answer.code == 0, "what was open comes again"
        found += messages(answer)
    assert {message.reconsume_times for message in found} == {1}
    assert (await pop(peer, wait=1_000)).code == POLLING_TIMEOUT, "nothing else does"
    return sorted(message.body for message in found)


async def topics_copied(folder: Path) -> None:
    """Wait until the slave has the retry topic: a master that died before would have lost it."""
    table = folder / "slave" / "config" / "topics.json"

    async def text() -> str:
        return table.read_text() if table.exists() else ""

    await until_async(text, lambda text: "%RETRY%workers_jobs" in text)


async def test_a_slave_hands_out_nothing(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), await Peer.connect(master.address) as peer:
        await opened(peer)
        async with await Peer.connect(slave.address) as at_slave:
            assert (await pop(at_slave)).code == FLOW_CONTROL


async def test_open_messages_survive_a_promotion(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave):
        async with await Peer.connect(master.address) as peer:
            left = await opened(peer)
        await has_all(slave, master)
        await topics_copied(tmp_path)
        async with rmqpy.AsyncAdmin(namesrv) as admin:
            await admin.promote("broker-a", 1)
        async with await Peer.connect(slave.address) as peer:
            assert await popped_again(peer, len(left)) == left


async def test_open_messages_survive_the_loss_of_the_master(tmp_path: Path, namesrv: str) -> None:
    async with pair(tmp_path, namesrv) as (master, slave), await Peer.connect(master.address) as peer:
        left = await opened(peer)
        await has_all(slave, master)
        await topics_copied(tmp_path)
    shutil.rmtree(tmp_path / "store")
    async with made_promoted(tmp_path, namesrv) as broker, await Peer.connect(broker.address) as peer:
        assert await popped_again(peer, len(left)) == left


async def test_open_messages_survive_at_a_slave_that_was_wiped(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as peer:
        async with made_slave(tmp_path, namesrv) as slave:
            left = await opened(peer)
            await has_all(slave, master)
        shutil.rmtree(tmp_path / "slave")
        async with made_slave(tmp_path, namesrv) as slave:
            await has_all(slave, master)
            await topics_copied(tmp_path)
    shutil.rmtree(tmp_path / "store")
    async with made_promoted(tmp_path, namesrv) as broker, await Peer.connect(broker.address) as peer:
        assert await popped_again(peer, len(left)) == left


async def test_blocks_of_queues_in_order_are_copied(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.offset_copy.SECONDS", 0.1)
    async with pair(tmp_path, namesrv) as (master, slave), await Peer.connect(master.address) as peer:
        for body in (b"1", b"2"):
            assert (await send(peer, "jobs", body)).code == 0
        [first] = messages(await pop(peer, 1, wait=5_000, order="true"))
        await has_all(slave, master)

        async def has_block() -> bool:
            # Where the block is not copied, the next start has none.
            await slave.stop()
            path = tmp_path / "slave" / "config" / "consumerOrderInfo.json"
            is_there = path.exists() and "jobs@workers" in path.read_text()
            if not is_there:
                await slave.start()
            return is_there

        await until_async(has_block, bool)
    async with made_promoted(tmp_path, namesrv) as broker, await Peer.connect(broker.address) as peer:
        assert (await pop(peer, order="true")).code == POLLING_TIMEOUT
        assert (await ack(peer, first)).code == 0
        assert [message.body for message in messages(await pop(peer, wait=5_000, order="true"))] == [b"2"]
