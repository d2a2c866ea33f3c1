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
    with pytest.raises(ConfigError, match="groups of several are not supported"):
        ControllerConfig(peers_given="n0-127.0.0.1:9878;n1-127.0.0.1:9879")
    with pytest.raises(ConfigError, match="is not in controllerDLegerPeers"):
        ControllerConfig(peers_given="n0-127.0.0.1:9878", self_id_given="n1")


async def test_a_folder_in_use_is_refused(start: StartController) -> None:
    await start()
    with pytest.raises(ConfigError, match="in use by another controller"):
        await start()
