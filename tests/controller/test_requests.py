"""Requests of brokers and tools to a controller, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakereplica import CLUSTER, NAME, Replica, StartController
from rmqpy.config.controller import ControllerConfig
from rmqpy.controller import ControllerServer
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.controller import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerMetadata,
    ElectMaster,
    GetControllerConfig,
    GetControllerMetadata,
    GetNextBrokerId,
    GetReplicaInfo,
    GetSyncStateData,
    RegisterReplica,
    SyncStateSet,
    UpdateControllerConfig,
)
from waiting import anything, until_async
from wire import Peer, Refusal, loose

Connect = Callable[..., Awaitable[Replica]]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not await condition():
            pass


async def refusal(peer: Peer, ask: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await peer.ask(ask)
    return caught.value


async def test_ids_are_handed_out_and_kept(controller: ControllerServer, replica: Connect) -> None:
    async with await Peer.connect(controller.address) as peer:
        next_id = GetNextBrokerId(cluster_name=CLUSTER, broker_name=NAME)
        assert (await peer.ask(next_id)).next_broker_id == 1
        early = ApplyBrokerId(
            cluster_name=CLUSTER, broker_name=NAME, applied_broker_id=2, register_check_code="a:1;1"
        )
        refused = await refusal(peer, early)
        assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert refused.frame.ext == {"clusterName": CLUSTER, "brokerName": NAME}
        await replica(controller, 1)
        assert (await peer.ask(next_id)).next_broker_id == 2


async def test_a_first_master_is_elected_and_members_come_in_both_shapes(
    controller: ControllerServer, replica: Connect
) -> None:
    first = await replica(controller, 1)
    ask = ElectMaster(cluster_name=CLUSTER, broker_name=NAME, broker_id=1)
    frame = await first.peer.call(ask.code, {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": "1"})
    assert frame.code == 0
    assert frame.ext == {
        "masterBrokerId": "1",
        "masterAddress": first.address,
        "masterEpoch": "1",
        "syncStateSetEpoch": "1",
    }
    members = {"brokerAddrs": {"1": first.address}, "brokerName": NAME, "cluster": CLUSTER}
    assert loose(frame.body) == members | {"brokerMemberGroup": members, "syncStateSet": [1]}
    assert b'"1":' in frame.body, "Apache's tool reads quoted keys only"
    again = await first.peer.call(ask.code, {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": "1"})
    assert again.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert again.ext is not None
    assert again.ext["masterBrokerId"] == "1"
    assert loose(again.body) == {"syncStateSet": [1]}


async def test_registration_names_a_living_master_only(
    controller: ControllerServer, replica: Connect
) -> None:
    first, second = await replica(controller, 1, oneway=True), await replica(controller, 2, oneway=True)
    register = RegisterReplica(
        cluster_name=CLUSTER, broker_name=NAME, broker_id=2, broker_address=second.address
    )
    assert (await second.peer.ask(register)).master_broker_id is None
    await first.elect()
    found = await second.peer.ask(register)
    assert (found.master_broker_id, found.master_epoch) == (1, 1)
    assert found.body == SyncStateSet(sync_state_set=[1], sync_state_set_epoch=1)
    unknown = RegisterReplica(
        cluster_name=CLUSTER, broker_name=NAME, broker_id=7, broker_address="127.0.0.1:7"
    )
    refused = await refusal(second.peer, unknown)
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


async def test_a_killed_master_is_replaced_and_the_slave_is_notified(
    controller: ControllerServer, replica: Connect
) -> None:
    first, second = await replica(controller, 1, oneway=True), await replica(controller, 2, oneway=True)
    await first.elect()
    wanted = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=1)
    alter = AlterSyncStateSet(broker_name=NAME, master_broker_id=1, master_epoch=1, body=wanted)
    altered = await first.peer.ask(alter)
    assert altered.new_sync_state_set_epoch == 2
    await first.peer.close()

    async def is_replaced() -> bool:
        return (await second.peer.ask(GetReplicaInfo(broker_name=NAME))).master_broker_id == 2

    await until(is_replaced)
    info = await second.peer.ask(GetReplicaInfo(broker_name=NAME))
    assert (info.master_epoch, info.body) == (2, SyncStateSet(sync_state_set=[2], sync_state_set_epoch=3))


async def test_a_master_with_a_lease_is_replaced_after_it(start: StartController, replica: Connect) -> None:
    controller = await start(lease_ms=600)
    first, second = await replica(controller, 1), await replica(controller, 2)
    await first.elect()
    wanted = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=1)
    await first.peer.ask(AlterSyncStateSet(broker_name=NAME, master_broker_id=1, master_epoch=1, body=wanted))
    beaten = await first.beat()
    sent = asyncio.get_running_loop().time()
    assert (beaten.lease_millis, beaten.master_epoch) == (600, 1)
    assert (await second.beat()).lease_millis is None
    await first.peer.close()

    async def is_replaced() -> bool:
        return (await second.peer.ask(GetReplicaInfo(broker_name=NAME))).master_broker_id == 2

    await until(is_replaced)
    assert asyncio.get_running_loop().time() - sent >= 0.6


async def test_a_lost_master_that_waits_for_all_replicas_is_replaced_within_its_lease(
    start: StartController, replica: Connect
) -> None:
    controller = await start(lease_ms=60_000)
    first, second = await replica(controller, 1), await replica(controller, 2)
    await first.elect()
    wanted = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=1)
    await first.peer.ask(
        AlterSyncStateSet(
            broker_name=NAME,
            master_broker_id=1,
            master_epoch=1,
            all_ack_in_sync_state_set=True,
            body=wanted,
        )
    )
    assert (await first.beat()).lease_millis == 60_000
    await first.peer.close()

    async def is_replaced() -> bool:
        await second.beat()
        return (await second.peer.ask(GetReplicaInfo(broker_name=NAME))).master_broker_id == 2

    await until(is_replaced)


async def test_a_designated_election_withdraws_the_lease(start: StartController, replica: Connect) -> None:
    controller = await start(lease_ms=60_000)
    first, second = await replica(controller, 1), await replica(controller, 2)
    await first.elect()
    wanted = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=1)
    await first.peer.ask(AlterSyncStateSet(broker_name=NAME, master_broker_id=1, master_epoch=1, body=wanted))
    assert (await first.beat()).lease_millis == 60_000
    electing = asyncio.create_task(second.elect(designated=True))

    async def is_withdrawn() -> bool:
        return (await first.beat()).lease_millis == 0

    await until(is_withdrawn)
    assert not electing.done()
    await first.beat(release_lease=True)
    assert (await electing).master_broker_id == 2


async def test_only_another_replica_in_sync_and_alive_is_elected_by_a_tool(
    controller: ControllerServer, replica: Connect
) -> None:
    first, second = await replica(controller, 1, oneway=True), await replica(controller, 2)
    await first.elect()

    async def code(which: Replica) -> int:
        frame = await first.peer.call(
            ElectMaster.code, {"brokerName": NAME, "brokerId": str(which.broker_id), "designateElect": "true"}
        )
        return frame.code

    assert await code(first) == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert await code(second) == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "it is not in sync"
    await first.peer.ask(alter([1, 2], epoch=1))
    await second.peer.close()

    async def is_lost() -> bool:
        return await code(second) == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED

    await until(is_lost)
    info = await first.peer.ask(GetReplicaInfo(broker_name=NAME))
    assert (info.master_broker_id, info.master_epoch) == (1, 1)


def alter(ids: list[int], *, epoch: int, master: int = 1, master_epoch: int = 1) -> AlterSyncStateSet:
    """The report of a set in sync, where the controller has the one of this epoch."""
    wanted = SyncStateSet(sync_state_set=ids, sync_state_set_epoch=epoch)
    return AlterSyncStateSet(
        broker_name=NAME, master_broker_id=master, master_epoch=master_epoch, body=wanted
    )


async def test_a_report_of_replicas_in_sync_is_refused_in_the_order_of_the_original(
    controller: ControllerServer, replica: Connect
) -> None:
    first, second = await replica(controller, 1, oneway=True), await replica(controller, 2)

    async def code(ask: AlterSyncStateSet) -> int:
        return (await refusal(first.peer, ask)).code

    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    unknown = AlterSyncStateSet(
        broker_name="unknown", master_broker_id=1, master_epoch=1, body=SyncStateSet()
    )
    assert await code(unknown) == failed
    await first.elect()
    await first.peer.ask(alter([1, 2], epoch=1))
    # Each has every later fault, too.
    assert await code(alter([1, 2], epoch=9, master=9, master_epoch=9)) == failed, "the same set"
    assert await code(alter([2, 3], epoch=9, master=9, master_epoch=9)) == (
        ResponseCode.CONTROLLER_INVALID_MASTER
    )
    assert await code(alter([2, 3], epoch=9, master_epoch=9)) == (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)
    assert await code(alter([2, 3], epoch=9)) == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert await code(alter([2, 3], epoch=2)) == ResponseCode.CONTROLLER_INVALID_REPLICAS
    assert await code(alter([2], epoch=2)) == failed, "without the master"
    await second.peer.close()

    async def is_lost() -> bool:
        return await code(alter([2], epoch=2)) == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE

    await until(is_lost)


async def test_requests_that_arrive_twice_change_nothing_more(
    controller: ControllerServer, replica: Connect
) -> None:
    first, second = await replica(controller, 1, oneway=True), await replica(controller, 2)
    await second.apply()
    await first.elect()
    again = await first.peer.call(ElectMaster.code, {"brokerName": NAME, "brokerId": "1"})
    assert again.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    register = RegisterReplica(
        cluster_name=CLUSTER, broker_name=NAME, broker_id=2, broker_address=second.address
    )
    assert await second.peer.ask(register) == await second.peer.ask(register)
    # A registration shows that the process has started; a heartbeat shows that it is alive.
    await second.beat()
    joined = alter([1, 2], epoch=1)
    assert (await first.peer.ask(joined)).new_sync_state_set_epoch == 2
    assert (await refusal(first.peer, joined)).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    left = alter([1], epoch=2)
    assert (await first.peer.ask(left)).new_sync_state_set_epoch == 3
    assert (await refusal(first.peer, left)).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    before = await first.peer.ask(GetReplicaInfo(broker_name=NAME))
    assert (before.master_epoch, before.body) == (1, SyncStateSet(sync_state_set=[1], sync_state_set_epoch=3))
    clean = CleanBrokerMetadata(cluster_name=CLUSTER, broker_name=NAME, broker_controller_ids_to_clean="2")
    await second.peer.close()
    await until_async(lambda: first.peer.ask(clean), anything, failing=Refusal)
    codes = {(await first.peer.call(clean.code, encode(clean).ext)).code for _ in range(2)}
    assert len(codes) == 1
    assert await first.peer.ask(GetReplicaInfo(broker_name=NAME)) == before


async def test_what_was_agreed_survives_a_restart(start: StartController, replica: Connect) -> None:
    controller = await start()
    first = await replica(controller, 1)
    await first.elect()
    await controller.stop()
    again = await start()
    async with await Peer.connect(again.address) as peer:
        info = await peer.ask(GetReplicaInfo(broker_name=NAME))
        assert (info.master_broker_id, info.master_epoch) == (1, 1)
        assert (await peer.ask(GetNextBrokerId(cluster_name=CLUSTER, broker_name=NAME))).next_broker_id == 2


async def test_tools_see_the_group_and_its_replicas(controller: ControllerServer, replica: Connect) -> None:
    first = await replica(controller, 1)
    await replica(controller, 2)
    await first.elect()
    found = await first.peer.ask(GetControllerMetadata())
    assert found.is_leader
    assert (found.controller_leader_id, found.controller_leader_address) == ("n0", controller.address)
    assert found.peers == f"n0:{controller.address};"
    body = (await first.peer.ask(GetSyncStateData(body=[NAME, "unknown"]))).body
    assert body is not None
    shown = body.replicas_info_table
    assert list(shown) == [NAME]
    assert [(each.broker_id, each.alive) for each in shown[NAME].in_sync_replicas] == [(1, True)]
    assert [each.broker_id for each in shown[NAME].not_in_sync_replicas] == [2]
    assert (await first.peer.ask(GetSyncStateData(body=[]))).body is None


async def test_cleaning_removes_the_dead_only(controller: ControllerServer, replica: Connect) -> None:
    first = await replica(controller, 1)
    second = await replica(controller, 2)
    await first.elect()

    def clean(ids: str | None) -> CleanBrokerMetadata:
        return CleanBrokerMetadata(cluster_name=CLUSTER, broker_name=NAME, broker_controller_ids_to_clean=ids)

    for ids in ("2", "two", None):
        refused = await refusal(first.peer, clean(ids))
        assert refused.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    await second.peer.close()

    async def is_cleaned() -> bool:
        frame = await first.peer.call(
            clean("2").code, {"brokerName": NAME, "brokerControllerIdsToClean": "2"}
        )
        return frame.code == 0

    await until(is_cleaned)
    refused = await refusal(
        first.peer,
        RegisterReplica(cluster_name=CLUSTER, broker_name=NAME, broker_id=2, broker_address="127.0.0.1:2"),
    )
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


async def test_settings_are_shown_and_changed_online(start: StartController, tmp_path: Path) -> None:
    controller = await start()
    async with await Peer.connect(controller.address) as peer:
        assert "masterLeaseMillis=1500\n" in await peer.ask(GetControllerConfig())
        await peer.ask(UpdateControllerConfig(body="masterLeaseMillis=900\n"))
        assert "masterLeaseMillis=900\n" in await peer.ask(GetControllerConfig())
        assert "masterLeaseMillis=900" in (tmp_path / "controller.properties").read_text()
        refused = await refusal(peer, UpdateControllerConfig(body="configStorePath=x\n"))
        assert (refused.code, refused.frame.remark) == (16, "Can not update config in black list.")
        assert (await refusal(peer, UpdateControllerConfig(body="listenPort=1\n"))).code == 1


async def test_codes_of_the_original_log_are_refused(controller: ControllerServer) -> None:
    async with await Peer.connect(controller.address) as peer:
        for code in (1014, 1018, 10):
            frame = await peer.call(code)
            assert frame.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert (frame.remark or "").startswith(f" request type {code} not supported")


async def test_a_heartbeat_without_an_id_is_refused(controller: ControllerServer, replica: Connect) -> None:
    first = await replica(controller, 1)
    refused = await refusal(first.peer, first.heartbeat(broker_id=None))
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert refused.frame.remark == "Heart beat with empty brokerId"


def test_the_address_comes_from_the_own_entry_of_the_group() -> None:
    config = ControllerConfig(peers_given="n0-127.0.0.1:9878", controller_path="x")
    assert (config.address.port, config.self_id) == (9878, "n0")
    with pytest.raises(ConfigError, match="is not in controllerDLegerPeers"):
        ControllerConfig(peers_given="n0-127.0.0.1:9878", self_id_given="n1")


async def test_a_folder_in_use_is_refused(start: StartController) -> None:
    await start()
    with pytest.raises(ConfigError, match="in use by another controller"):
        await start()
