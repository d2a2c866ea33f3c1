"""Brokers that join a set of a controller: ids, addresses, and logs that begin with the last file."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.elected_here import NAME, Elected
from broker.talk import send
from rmqpy.broker import Broker
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import (
    ApplyBrokerId,
    CleanBrokerMetadata,
    GetSyncStateData,
    ReplicasInfo,
)
from rmqpy.protocol.requests.leadership import BrokerEpochs, GetBrokerEpochCache
from rmqpy.testing import SMALL
from waiting import anything, until_async
from wire import Peer, Refusal

CLUSTER = "c1"
FILE_BYTES = int(SMALL["mappedFileSizeCommitLog"])


@pytest.fixture
async def elected(tmp_path: Path, namesrv: str) -> AsyncIterator[Elected]:
    async with AsyncExitStack() as stack:
        yield await Elected.start(tmp_path, namesrv, stack)


async def apply(elected: Elected, broker_id: int, check_code: str) -> None:
    """Take an id of the set."""
    async with await Peer.connect(elected.controller) as peer:
        await peer.ask(
            ApplyBrokerId(
                cluster_name=CLUSTER,
                broker_name=NAME,
                applied_broker_id=broker_id,
                register_check_code=check_code,
            )
        )


async def members(elected: Elected) -> dict[int, str]:
    """The addresses of the replicas, by id."""
    async with await Peer.connect(elected.controller) as peer:
        body = (await peer.ask(GetSyncStateData(body=[NAME]))).body
    info = ReplicasInfo() if body is None else body.replicas_info_table.get(NAME, ReplicasInfo())
    return {
        each.broker_id: each.broker_address for each in (*info.in_sync_replicas, *info.not_in_sync_replicas)
    }


def leave_applied(elected: Elected, number: int, broker_id: int, check_code: str) -> Path:
    """Leave the file of a broker that has applied for an id, and knows no answer; return its path."""
    file = elected.store(number) / "brokerIdentity-temp"
    file.parent.mkdir(parents=True)
    file.write_text(f"{CLUSTER}#{NAME}#{broker_id}#{check_code}")
    return file


def identity(elected: Elected, number: int) -> str:
    return (elected.store(number) / "brokerIdentity").read_text()


async def test_a_broker_that_ended_before_the_answer_gets_the_id_that_it_applied_for(
    elected: Elected,
) -> None:
    await apply(elected, 1, "127.0.0.1:1;7")
    left = leave_applied(elected, 1, 1, "127.0.0.1:1;7")
    broker = await elected.broker(1)
    assert identity(elected, 1) == f"{CLUSTER}#{NAME}#1"
    assert not left.exists()
    await until_async(lambda: members(elected), lambda found: found == {1: broker.address})


async def test_a_broker_whose_id_was_given_to_another_one_gets_the_next(elected: Elected) -> None:
    await apply(elected, 1, "127.0.0.1:1;7")
    left = leave_applied(elected, 1, 1, "127.0.0.1:2;8")
    broker = await elected.broker(1)
    assert identity(elected, 1) == f"{CLUSTER}#{NAME}#2"
    assert not left.exists()
    await until_async(lambda: members(elected), lambda found: found.get(2) == broker.address)


async def test_a_broker_with_the_identity_of_another_cluster_does_not_start(elected: Elected) -> None:
    store = elected.store(1)
    store.mkdir(parents=True)
    (store / "brokerIdentity").write_text(f"elsewhere#{NAME}#1")
    broker = elected.made(1)
    with pytest.raises(ConfigError, match=f"identity of {NAME} in cluster elsewhere"):
        await broker.start()
    await broker.stop()
    assert await members(elected) == {}


async def test_a_broker_keeps_its_id_at_another_address(elected: Elected) -> None:
    first = await elected.broker(1)
    before = first.address
    await first.stop()
    again = await elected.broker(1)
    assert again.address != before
    await until_async(lambda: members(elected), lambda found: found == {1: again.address})
    await until_async(elected.info, lambda info: info.master_address == again.address)


async def test_a_broker_that_was_removed_is_not_taken_back_by_its_identity(elected: Elected) -> None:
    master, slave = await elected.pair()
    await slave.stop()
    await elected.wait_in_sync(1)
    clean = CleanBrokerMetadata(cluster_name=CLUSTER, broker_name=NAME, broker_controller_ids_to_clean="2")
    async with await Peer.connect(elected.controller) as peer:
        await until_async(lambda: peer.ask(clean), anything, failing=Refusal)
    back = await elected.broker(2)
    async with await Peer.connect(back.address) as peer:
        refused = await send(peer, "orders")
    assert refused.code == ResponseCode.SYSTEM_BUSY, refused
    assert await members(elected) == {1: master.address}
    assert await elected.in_sync() == [1]


async def epochs(broker: Broker) -> BrokerEpochs:
    async with await Peer.connect(broker.address) as peer:
        return await peer.ask(GetBrokerEpochCache())


async def test_a_new_replica_begins_with_the_last_file_if_it_is_set_so(elected: Elected) -> None:
    # The master's setting counts; all brokers of a set have the same ones.
    master = await elected.broker(1, syncFromLastFile="true")
    async with await Peer.connect(master.address) as peer:
        # It takes messages once it has reported the replicas in sync.
        await until_async(lambda: send(peer, "orders"), lambda answer: answer.code == 0)
        while (await epochs(master)).body.max_offset < 2 * FILE_BYTES:
            assert (await send(peer, "orders", b"x" * (1 << 20))).code == 0
    slave = await elected.broker(2, syncFromLastFile="true")
    await elected.wait_in_sync(1, 2)
    found = (await epochs(slave)).body
    assert (found.min_offset, found.max_offset) == (2 * FILE_BYTES, (await epochs(master)).body.max_offset)
