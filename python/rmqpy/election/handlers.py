"""Request handlers of a controller."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

from rmqpy._native import BrokerSet, ControllerOutcome
from rmqpy.config.controller import ControllerConfig
from rmqpy.election.driver import Driver
from rmqpy.election.group import Group
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import (
    AlterSyncStateSet,
    ApplyBrokerId,
    BrokerIdApplied,
    BrokerMetadataCleaned,
    CleanBrokerMetadata,
    ControllerMetadata,
    ElectMaster,
    GetControllerConfig,
    GetControllerMetadata,
    GetNextBrokerId,
    GetReplicaInfo,
    GetSyncStateData,
    GroupCall,
    GroupReply,
    MasterElected,
    MasterElectedBody,
    MemberGroup,
    NextBrokerId,
    RegisterReplica,
    ReplicaIdentity,
    ReplicaInfo,
    ReplicaRegistered,
    ReplicasInfo,
    SyncStateData,
    SyncStates,
    SyncStateSet,
    SyncStateSetAltered,
    UpdateControllerConfig,
)
from rmqpy.protocol.requests.registration import BrokerHeartbeat, HeartbeatTaken
from rmqpy.remoting.configuration import Configuration
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, handles

R = TypeVar("R")

#: The silence after which a broker counts as dead, if it names none.
_TIMEOUT_MS: Final = 10_000
#: The longest silence a broker may ask for.
_TIMEOUT_MS_MAX: Final = 600_000
#: Broker names in one query.
_NAMES_MAX: Final = 10_000


class BrokerHandlers:
    """Identities, registrations, heartbeats and in-sync sets of brokers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._native = driver.controller

    @handles(GetNextBrokerId)
    async def next_broker_id(self, ask: GetNextBrokerId) -> NextBrokerId:
        cluster, name = ask.cluster_name, ask.broker_name
        outcome = await self._outcome(lambda token: self._native.next_broker_id(token, cluster, name))
        next_id = 1 if outcome.set is None else outcome.set.next_id
        return NextBrokerId(cluster_name=cluster, broker_name=name, next_broker_id=next_id)

    @handles(ApplyBrokerId)
    async def apply_broker_id(self, ask: ApplyBrokerId) -> BrokerIdApplied:
        applied = BrokerIdApplied(cluster_name=ask.cluster_name, broker_name=ask.broker_name)
        await self._outcome(
            lambda token: self._native.apply_broker_id(
                token, ask.cluster_name, ask.broker_name, ask.applied_broker_id, ask.register_check_code
            ),
            lambda outcome: applied,
        )
        return applied

    @handles(RegisterReplica)
    async def register(self, ask: RegisterReplica, context: RequestContext) -> ReplicaRegistered:
        outcome = await self._outcome(
            lambda token: self._native.register(
                token,
                ask.cluster_name,
                ask.broker_name,
                ask.broker_id,
                ask.broker_address,
                context.connection,
            )
        )
        found, has_master = outcome.set, outcome.set is not None and outcome.set.master_id is not None
        return ReplicaRegistered(
            cluster_name=ask.cluster_name,
            broker_name=ask.broker_name,
            master_broker_id=found.master_id if found else None,
            master_address=found.master_address if found else None,
            master_epoch=found.master_epoch if found and has_master else None,
            sync_state_set_epoch=found.in_sync_epoch if found and has_master else None,
            body=_in_sync(found) if found else None,
        )

    @handles(GetReplicaInfo)
    async def replica_info(self, ask: GetReplicaInfo) -> ReplicaInfo:
        outcome = await self._outcome(lambda token: self._native.replica_info(token, ask.broker_name))
        found = outcome.set
        assert found is not None, "an unknown broker set is refused"
        return ReplicaInfo(
            master_broker_id=found.master_id,
            master_address=found.master_address,
            master_epoch=found.master_epoch,
            body=_in_sync(found),
        )

    @handles(AlterSyncStateSet)
    async def alter(self, ask: AlterSyncStateSet) -> SyncStateSetAltered:
        wanted = ask.body
        outcome = await self._outcome(
            lambda token: self._native.alter_sync_state_set(
                token,
                ask.broker_name,
                ask.master_broker_id,
                ask.master_epoch,
                wanted.sync_state_set,
                wanted.sync_state_set_epoch,
                waits_for_all=bool(ask.all_ack_in_sync_state_set),
            )
        )
        found = outcome.set
        return SyncStateSetAltered(
            new_sync_state_set_epoch=found.in_sync_epoch if found else None,
            body=_in_sync(found) if found else None,
        )

    @handles(BrokerHeartbeat)
    async def heartbeat(self, ask: BrokerHeartbeat, context: RequestContext) -> HeartbeatTaken:
        if ask.broker_id is None:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        name, broker_id = ask.broker_name, ask.broker_id
        timeout = ask.heartbeat_timeout_mills or _TIMEOUT_MS

        def beat(token: int | None) -> None:
            self._native.heartbeat(
                name,
                broker_id,
                token=token,
                connection=context.connection,
                timeout_ms=min(max(timeout, 1), _TIMEOUT_MS_MAX),
                epoch=-1 if ask.epoch is None else ask.epoch,
                max_offset=-1 if ask.max_offset is None else ask.max_offset,
                confirm_offset=-1 if ask.confirm_offset is None else ask.confirm_offset,
                priority=ask.election_priority,
                releases=bool(ask.release_lease),
            )

        if context.is_oneway:
            beat(None)
            self._driver.wake()
            return HeartbeatTaken()
        outcome = await self._outcome(beat)
        epoch = None if outcome.set is None else outcome.set.master_epoch
        return HeartbeatTaken(master_epoch=epoch, lease_millis=outcome.lease_ms)

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self._native.closed(event.connection)
        self._driver.wake()

    async def _outcome(
        self,
        ask: Callable[[int], None],
        refused: Callable[[ControllerOutcome], object | None] = lambda outcome: None,
    ) -> ControllerOutcome:
        outcome = await self._driver.outcome(ask)
        if outcome.code:
            _refuse(outcome, refused(outcome))
        return outcome


class ElectionHandlers:
    """Elections, and the removal of replicas."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._native = driver.controller

    @handles(ElectMaster)
    async def elect(self, ask: ElectMaster) -> MasterElected:
        outcome = await self._driver.outcome(
            lambda token: self._native.elect(
                token, ask.cluster_name, ask.broker_name, ask.broker_id, ask.designate_elect
            )
        )
        if outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            _refuse(outcome, _elected(outcome.set, has_members=False))
        if outcome.code:
            _refuse(outcome)
        return _elected(outcome.set, has_members=True)

    @handles(CleanBrokerMetadata)
    async def clean(self, ask: CleanBrokerMetadata) -> BrokerMetadataCleaned:
        ids: list[int] | None = None
        if ask.broker_controller_ids_to_clean:
            try:
                ids = [int(each) for each in ask.broker_controller_ids_to_clean.split(";") if each]
            except ValueError:
                remark = f"brokerControllerIdsToClean must be numbers: {ask.broker_controller_ids_to_clean}"
                raise Refused(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark) from None
        cleaned = BrokerMetadataCleaned(cluster_name=ask.cluster_name, broker_name=ask.broker_name)
        outcome = await self._driver.outcome(
            lambda token: self._native.clean(
                token, ask.cluster_name or "", ask.broker_name, ids, bool(ask.clean_living_broker)
            )
        )
        if outcome.code:
            _refuse(outcome, cleaned)
        return cleaned


class CallHandlers:
    """Calls of other controllers of the group."""

    def __init__(self, driver: Driver, group: Group) -> None:
        self._driver = driver
        self._group = group

    @handles(GroupCall)
    async def call(self, ask: GroupCall) -> GroupReply:
        if not self._group.is_from_member(ask):
            remark = (
                f"{ask.caller} of group {ask.group} is not another controller of this group: compare "
                "controllerDLegerGroup, controllerDLegerPeers, controllerDLegerSelfId and controllerGroupSecret"
            )
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return self._group.reply(ask, await self._driver.serve(ask.body))


class GroupHandlers:
    """The group of controllers, its broker sets, and settings."""

    def __init__(
        self, driver: Driver, configuration: Configuration[ControllerConfig], address: Callable[[], str]
    ) -> None:
        self._native = driver.controller
        self._configuration = configuration
        self._address = address

    @handles(GetControllerMetadata)
    def metadata(self, ask: GetControllerMetadata) -> ControllerMetadata:
        config, address = self._configuration.current, self._address()
        peers: Mapping[str, str] = config.peers or {config.self_id: address}
        is_leader = self._native.is_leader()
        leader = config.self_id if is_leader else self._native.leader() or ""
        if leader == config.self_id and not is_leader:
            # It does not know yet what earlier leaders decided.
            leader = ""
        return ControllerMetadata(
            group=config.group,
            controller_leader_id=leader,
            controller_leader_address=peers.get(leader, ""),
            is_leader=is_leader,
            peers="".join(f"{name}:{peer};" for name, peer in peers.items()),
        )

    @handles(GetSyncStateData)
    def sync_states(self, ask: GetSyncStateData) -> SyncStates:
        if not self._native.is_leader():
            raise Refused(ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state")
        if not ask.body:
            return SyncStates()
        found = (self._native.broker_set(name) for name in ask.body[:_NAMES_MAX])
        table = {each.name: _replicas(each) for each in found if each is not None}
        return SyncStates(body=SyncStateData(replicas_info_table=table))

    @handles(GetControllerConfig)
    def config(self, ask: GetControllerConfig) -> str:
        return self._configuration.text()

    @handles(UpdateControllerConfig)
    async def update(self, ask: UpdateControllerConfig) -> None:
        await self._configuration.change(ask.body)


def _refuse(outcome: ControllerOutcome, reply: object | None = None) -> NoReturn:
    raise Refused(ResponseCode(outcome.code), outcome.remark, reply)


def _in_sync(found: BrokerSet) -> SyncStateSet:
    return SyncStateSet(sync_state_set=found.in_sync, sync_state_set_epoch=found.in_sync_epoch)


def _elected(found: BrokerSet | None, *, has_members: bool) -> MasterElected:
    if found is None:
        return MasterElected()
    addresses = {str(replica.id): replica.address for replica in found.replicas}
    members = MemberGroup(broker_addrs=addresses, broker_name=found.name, cluster=found.cluster)
    body = MasterElectedBody(
        broker_member_group=members if has_members else None,
        sync_state_set=found.in_sync,
        # Apache's tool reads the body as a member group, its brokers read the member of that name.
        broker_addrs=addresses if has_members else None,
        broker_name=found.name if has_members else None,
        cluster=found.cluster if has_members else None,
    )
    return MasterElected(
        master_broker_id=found.master_id,
        master_address=found.master_address,
        master_epoch=found.master_epoch,
        sync_state_set_epoch=found.in_sync_epoch,
        body=body,
    )


def _replicas(found: BrokerSet) -> ReplicasInfo:
    identities = {
        is_in_sync: [
            ReplicaIdentity(
                broker_name=found.name,
                broker_id=replica.id,
                broker_address=replica.address,
                alive=replica.is_alive,
            )
            for replica in found.replicas
            if replica.is_in_sync is is_in_sync
        ]
        for is_in_sync in (True, False)
    }
    return ReplicasInfo(
        master_broker_id=found.master_id,
        master_address=found.master_address,
        master_epoch=found.master_epoch,
        sync_state_set_epoch=found.in_sync_epoch,
        in_sync_replicas=identities[True],
        not_in_sync_replicas=identities[False],
    )
