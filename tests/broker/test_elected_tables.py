"""Topics and groups of an elected master: no acknowledged one is missing on a replica that may be elected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.elected_here import Elected
from rmqpy.broker import Broker
from rmqpy.control.replicas.table_copy import TableCopy
from rmqpy.control.tables.electable import NOT_REPORTED, ElectableReplicas
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.groups import (
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, GetAllTopicConfig, UpdateAndCreateTopic
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused
from waiting import anything, until_async
from wire import Peer, Refusal

#: The shortest time after which a replica that is behind leaves.
SOON = {"haMaxTimeSlaveNotCatchup": "1000"}


@pytest.fixture
def may_copy(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Cleared: slaves begin to copy no topics and groups."""
    allowed, read = asyncio.Event(), TableCopy._pages
    allowed.set()

    async def pages(self: TableCopy[object], master: object) -> object:
        await allowed.wait()
        return await read(self, master)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCopy, "_pages", pages)
    return allowed


@pytest.fixture
async def elected(tmp_path: Path, namesrv: str) -> AsyncIterator[Elected]:
    async with AsyncExitStack() as stack:
        yield await Elected.start(tmp_path, namesrv, stack)


async def topics(broker: Broker) -> set[str]:
    async with await Peer.connect(broker.address) as peer:
        return set((await peer.ask(GetAllTopicConfig())).body.topic_config_table)


async def groups(broker: Broker) -> set[str]:
    async with await Peer.connect(broker.address) as peer:
        return set((await peer.ask(GetAllSubscriptionGroupConfig())).body.subscription_group_table)


async def create(broker: Broker, topic: str) -> None:
    async with await Peer.connect(broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic=topic))


async def has_whole_log(master: Broker) -> bool:
    async with await Peer.connect(master.address) as peer:
        status = await peer.ask(GetBrokerHaStatus())
    return [each.diff for each in status.ha_connection_info] == [0]


async def test_a_slave_joins_the_replicas_in_sync_once_it_follows_topics_and_groups(
    elected: Elected, may_copy: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    master = await elected.broker(1, **SOON)
    await create(master, "orders")
    may_copy.clear()
    slave = await elected.broker(2)
    await until_async(lambda: has_whole_log(master))

    async def joins_or_is_refused() -> bool:
        return "does not copy topics" in caplog.text or await elected.in_sync() == [1, 2]

    await until_async(joins_or_is_refused)
    assert await elected.in_sync() == [1]
    may_copy.set()
    await elected.wait_in_sync(1, 2)
    assert "orders" in await topics(slave)
    await create(master, "invoices")
    # Without a wait: it is there before the acknowledgement.
    assert "invoices" in await topics(slave)


async def test_a_change_that_a_replica_in_sync_lacks_is_not_acknowledged(
    elected: Elected, may_copy: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.tables.electable.REACH_SECONDS", 0.2)
    master, slave = await elected.pair()
    may_copy.clear()
    group = UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing"))
    for _ in range(2):
        async with await Peer.connect(master.address) as peer:
            for ask in (UpdateAndCreateTopic(topic="orders"), group, DeleteTopicInBroker(topic="unknown")):
                with pytest.raises(
                    Refusal, match="replica 2 may be elected and does not have it yet"
                ) as refused:
                    await peer.ask(ask)
                assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert await elected.in_sync() == [1, 2]
    may_copy.set()
    # Both copies go on by themselves; the request confirms them.
    await until_async(lambda: create(master, "orders"), anything, failing=Refusal)
    assert "orders" in await topics(slave)
    async with await Peer.connect(master.address) as peer:
        await until_async(lambda: peer.ask(group), anything, failing=Refusal)
    assert "billing" in await groups(slave)


async def test_a_replica_that_does_not_copy_topics_leaves_the_replicas_in_sync(
    elected: Elected, may_copy: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.tables.electable.REACH_SECONDS", 0.1)
    master, slave = await elected.pair(**SOON)
    may_copy.clear()
    with pytest.raises(Refusal):
        await create(master, "orders")
    await elected.wait_in_sync(1)
    assert "orders" not in await topics(slave)
    await create(master, "orders")
    may_copy.set()
    await elected.wait_in_sync(1, 2)
    assert "orders" in await topics(slave)


async def test_a_replica_follows_the_topics_of_a_new_master_without_a_pause(elected: Elected) -> None:
    master, slave = await elected.pair()
    third = await elected.broker(3)
    await elected.wait_in_sync(1, 2, 3)
    await master.stop()
    info = await until_async(elected.info, lambda info: info.master_broker_id in (2, 3), failing=Refusal)
    leading, following = (slave, third) if info.master_broker_id == 2 else (third, slave)
    # The request to the lost master would be held for 20 s.
    await elected.wait_in_sync(2, 3)
    await elected.wait_leading(leading)
    await create(leading, "orders")
    assert "orders" in await topics(following)


def version(counter: int, timestamp: int = 0) -> DataVersion:
    return DataVersion(counter=counter, timestamp=timestamp)


def test_a_version_of_another_table_does_not_count() -> None:
    replicas = ElectableReplicas(lambda: version(5))
    # A former master, with a change that it never acknowledged.
    replicas.has(2, 1, version(6, timestamp=9))
    assert not replicas.is_read_by(2)
    replicas.has(2, 1, version(5))
    assert replicas.follows(2)
    replicas.forget(1)
    assert not replicas.follows(2)


async def test_nothing_is_confirmed_before_the_replicas_in_sync_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmqpy.control.tables.electable.REACH_SECONDS", 0.05)
    replicas = ElectableReplicas(lambda: version(5))
    with pytest.raises(Refused, match="the controller does not know yet"):
        await replicas.confirm()
    assert replicas.late_seconds(NOT_REPORTED) > 0
    replicas.require([], is_reported=True)
    await replicas.confirm()


async def test_a_change_waits_until_a_replica_has_it_or_is_not_in_sync_any_more() -> None:
    now = version(5)
    replicas = ElectableReplicas(lambda: now)
    replicas.require([2, 3], is_reported=True)
    for replica in (2, 3):
        replicas.has(replica, replica, now)
    before, now = now, version(6)
    waiting = asyncio.create_task(replicas.confirm())
    await asyncio.sleep(0)
    replicas.has(2, 2, now)
    await asyncio.sleep(0)
    assert not waiting.done()
    # It has another connection, and has not read the change.
    replicas.forget(3)
    replicas.has(3, 4, before)
    replicas.require([2], is_reported=True)
    await waiting
